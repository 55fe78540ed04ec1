"""Keys: where they come from, and how they are kept out of everything that is written down.

A key is read from the environment or from the system's keyring, never from a file. Every value that was read, or that
stands in a variable named like a secret, is known here from then on and is blanked wherever agents are journaled.
"""

import contextlib
import json
import os
import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, TypeVar

from holdfast.errors import BackendUnavailable
from holdfast.keys import KEYRING_SERVICE, find_key, is_secret_name

_T = TypeVar("_T")

BLANK = "[secret]"

_MIN_CHARS = 8  # a shorter value would blank ordinary words
# Forms that providers give their keys, long enough that no word or identifier has them by chance.
_LOOKS_LIKE_A_KEY = re.compile(
    r"sk-(?:ant-|or-|proj-|svcacct-)?[A-Za-z0-9_-]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|AKIA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{35}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|(?<=Bearer )[A-Za-z0-9._~+/-]{20,}=*"
)


class Secrets:
    """The values that must not be written down. One for the process: what it knows it cannot unlearn."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, *values: str) -> None:
        """Know these from now on, also as they stand inside JSON text that a model writes."""
        long = [value for value in values if len(value) >= _MIN_CHARS]
        new = {form for value in long for form in (value, json.dumps(value)[1:-1])} - self._known
        if new:
            self._known |= new
            longest_first = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def learn_environment(self, environ: Mapping[str, str]) -> None:
        """Learn what stands in variables named like secrets, unless it is the path of a file."""
        named = (value.strip() for name, value in environ.items() if is_secret_name(name))
        self.learn(*(value for value in named if not value.startswith(("/", "~"))))

    def scrub_text(self, text: str, *, with_forms: bool = True) -> str:
        """Remove known secrets from a text and, with `with_forms`, what has the form of one."""
        if self._pattern is not None:
            text = self._pattern.sub(BLANK, text)
        return _LOOKS_LIKE_A_KEY.sub(BLANK, text) if with_forms else text

    def count_begun(self, text: str) -> int:
        """Count the characters at the end of a text with which a known secret begins that is not whole yet."""
        return max(
            (
                length
                for secret in self._known
                for length in range(1, min(len(secret), len(text) + 1))
                if text.endswith(secret[:length])
            ),
            default=0,
        )

    def scrub(self, data: Any, *, with_forms: bool = True) -> Any:
        """Return JSON data with secrets blanked, in keys and values."""
        if type(data) is str:
            return self.scrub_text(data, with_forms=with_forms)
        if type(data) is list:
            return [self.scrub(item, with_forms=with_forms) for item in data]
        if type(data) is dict:
            return {
                self.scrub_text(key, with_forms=with_forms): self.scrub(item, with_forms=with_forms)
                for key, item in data.items()
            }
        return data

    def scrub_error(self, error: BaseException) -> None:
        """Blank secrets in an exception itself and in what led to it: it is shown and journaled by others, too."""
        seen: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            current = pending.pop()
            if current is None or id(current) in seen:
                continue
            seen.add(id(current))
            self._scrub_one(current)
            pending += [current.__cause__, current.__context__]
            if isinstance(current, BaseExceptionGroup):
                pending += current.exceptions

    def _scrub_one(self, error: BaseException) -> None:
        error.args = tuple(self._scrub_value(value) for value in error.args)
        for name in ("message", "body", "hint", "error", "facts", "__notes__"):
            value = getattr(error, name, None)
            if isinstance(value, str | list | dict):
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(error, name, self._scrub_value(value))

    def _scrub_value(self, value: Any) -> Any:
        return self.scrub(value) if isinstance(value, str | list | dict) else value


SECRETS = Secrets()


def scrub_prompt(text: str) -> str:
    """Remove the secrets of this process from a text for an agent, before it is pinned in the journal."""
    SECRETS.learn_environment(os.environ)
    return SECRETS.scrub_text(text, with_forms=False)


def learn_keys(variables: Iterable[str | None]) -> None:
    """Know the keys by these names, wherever they are kept, before anything is written down that may hold them."""
    SECRETS.learn(*(find_key(variable) for variable in set(variables) if variable is not None))


async def scrubbed(work: Awaitable[_T]) -> _T:
    """Await `work`; an exception of it is raised without secrets."""
    try:
        return await work
    except Exception as error:
        SECRETS.scrub_error(error)
        raise


def read_key(variable: str, *, persona: str) -> str:
    """Read a key from an environment variable or, by that name, from the keyring. Raises `BackendUnavailable`."""
    key = find_key(variable)
    if not key:
        raise BackendUnavailable(
            f"Persona {persona} needs a key, and the environment variable {variable} is not set.",
            hint=f"Set {variable}, or keep the key in the system's keyring: keyring set {KEYRING_SERVICE} {variable}. "
            "To rehearse without a key, run with --simulate.",
            persona=persona,
            variable=variable,
        )
    SECRETS.learn(key)
    return key
