"""The log, for those who ask for it. It goes to standard error and never holds the value of a key.

What is a key is known to `holdfast.agents.redaction`: what stands in variables named like one, what was read from the
keyring, and what has the form of one. Passwords in addresses are blanked too.
"""

import json
import logging
import os
import re
import sys
from typing import Any

from holdfast.agents.redaction import BLANK, SECRETS
from holdfast.cli.terminal.output import plain, to_json_text

_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)([^\s:/@]*):([^\s/@]+)(?=@)")
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Redacted(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = _facts(record)
        fields = f" {json.dumps(facts, ensure_ascii=False, default=str)}" if facts else ""
        first, line_end, rest = super().format(record).partition("\n")
        return plain(without_secrets(f"{first}{fields}{line_end}{rest}"))


class _Json(_Redacted):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {"ts": record.created, "level": record.levelname.lower(), "logger": record.name}
        entry |= {"message": record.getMessage(), **_facts(record)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # Blanked before it is encoded: a key with a quotation mark in it looks otherwise afterwards.
        data = json.loads(json.dumps(entry, ensure_ascii=False, default=str))
        return to_json_text(_blanked(data))


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields logged beside the message, as `extra`, without secrets."""
    facts = {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
    blanked: dict[str, Any] = _blanked(json.loads(json.dumps(facts, default=str)))
    return blanked


def _blanked(data: Any) -> Any:
    if isinstance(data, str):
        return without_secrets(data)
    if isinstance(data, dict):
        return {without_secrets(name): _blanked(value) for name, value in data.items()}
    return [_blanked(item) for item in data] if isinstance(data, list) else data


def show_log(*, is_json: bool, level: int = logging.INFO) -> None:
    """Show what is logged from now on; whoever asked first decides how."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if is_json else _Redacted("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def without_secrets(text: str) -> str:
    SECRETS.learn_environment(os.environ)
    return _PASSWORD_IN_ADDRESS.sub(rf"\1:{BLANK}", SECRETS.scrub_text(text))
