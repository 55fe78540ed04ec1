"""The log, for those who ask for it. It goes to standard error and never holds the value of a key."""

import json
import logging
import os
import re
import sys

_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
_MIN_SECRET_CHARS = 8


class _Redacted(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class _Json(_Redacted):
    def format(self, record: logging.LogRecord) -> str:
        told = {"ts": record.created, "level": record.levelname.lower(), "logger": record.name}
        return without_secrets(json.dumps({**told, "message": record.getMessage()}, ensure_ascii=False))


def show_log(*, is_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if is_json else _Redacted("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if _SECRET_NAMES.search(name) and len(value) >= _MIN_SECRET_CHARS:
            text = text.replace(value, f"[{name}]")
    return text
