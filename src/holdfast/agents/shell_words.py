"""What a command line is made of: words, redirections and the commands they belong to."""

import re
from dataclasses import dataclass


class NotUnderstood(Exception):
    """The line holds something that is not read here; the text says what."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the command gets it. If it is not `is_fixed`, parts of it come from somewhere else at run time."""

    text: str
    is_fixed: bool = True
    has_glob: bool = False
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Word

    @property
    def is_write(self) -> bool:
        is_copy = self.operator in (">&", "<&") and self.target.is_fixed and re.fullmatch(r"\d+|-", self.target.text)
        return ">" in self.operator and not is_copy


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One program call. `scope` tells which subshell it runs in: a longer one is inside a shorter one."""

    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    scope: tuple[int, ...] = ()
    is_fed: bool = False
    """Its standard input comes from another command or from the line itself."""
