"""What workflows and personas have in common: strict frozen models, a content hash, and the words in their fields."""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    StringConstraints,
    ValidationError,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

Loc = tuple[str | int, ...]
Item = TypeVar("Item")


def content_hash(plain: object) -> str:
    """Return the sha256 of canonical JSON: keys sorted, no spaces, UTF-8."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Definition(BaseModel):
    """A frozen model in which unknown keys are errors and whose dump is plain JSON data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_dump(self, *, mode: str = "json", **kwargs: Any) -> dict[str, Any]:
        """Return plain JSON data unless another `mode` is asked for; validating it again gives an equal model."""
        return super().model_dump(mode=mode, **kwargs)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("content_hash", None)
        return copied

    @cached_property
    def content_hash(self) -> str:
        """The identity of what is written in it.

        Every field counts except those that hold their default, so that a field added by a later version changes no
        hash that is already stored. For the same reason a default, once released, is never changed.
        """
        return content_hash(self.model_dump(by_alias=True, exclude_defaults=True))


def refuse(faults: Iterable[tuple[Loc, str]]) -> None:
    """Raise pydantic's `ValidationError` if there are faults, each at the field it belongs to."""
    details = [
        InitErrorDetails(type=PydanticCustomError("definition", "{reason}", {"reason": reason}), loc=loc, input=None)
        for loc, reason in faults
    ]
    if details:
        raise ValidationError.from_exception_data("definition", details)


@functools.lru_cache(maxsize=1000)  # a choice among personas compares each with each
def version_order(version: int | str) -> tuple[Any, ...]:
    """Return a sort key: numbers by value (1.10 above 1.9, 1 equal to 1.0), a pre-release below its release."""
    release, _, pre_release = str(version).partition("+")[0].partition("-")
    parts = [_order_of_part(part) for part in release.split(".")]
    while parts and parts[-1] == _order_of_part("0"):
        parts.pop()
    return tuple(parts), not pre_release, tuple(_order_of_part(part) for part in pre_release.split("."))


def _order_of_part(part: str) -> tuple[bool, int, str]:
    return (True, int(part), "") if part.isdecimal() else (False, 0, part)


def _check_version(value: object) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        # 1.10 without quotes is the number 1.1: taking it would lose what was meant.
        raise ValueError('should be a whole number or a quoted string such as "1.2.0"')
    if isinstance(value, int) and not 0 <= value < 2**31:
        raise ValueError("should be a whole number from 0 on")
    if isinstance(value, str) and not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}", value):
        raise ValueError("should be made of letters, digits, '.', '+' and '-'")
    return value


def _check_name(value: str) -> str:
    if not value.isprintable() or value != value.strip() or set(value) & set("/\\"):
        raise ValueError("should be one printable line without '/' and '\\' and without spaces around it")
    return value


def _check_is_list(value: object) -> object:
    if isinstance(value, str):
        raise ValueError('should be a list of words, such as ["make", "test"]; there is no shell')
    return value


def _check_argv(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not value[0] or "\0" in "".join(value):
        raise ValueError("should begin with a program and hold no NUL character")
    return value


def check_not_empty(value: tuple[Item, ...]) -> tuple[Item, ...]:
    """Refuse an empty list. With its own `min_length` pydantic reports a list as too short when an item is wrong."""
    if not value:
        raise ValueError("should have at least one entry")
    return value


def _check_workspace_path(value: str) -> str:
    path = PurePosixPath(value)
    if not value.isprintable() or "\\" in value:
        raise ValueError("should be a printable path with '/' between its parts")
    if path.is_absolute() or ".." in path.parts or value.startswith("~"):
        raise ValueError("should be relative and stay inside the workspace")
    if not path.parts or value.endswith("/"):
        raise ValueError("should name a file")
    if any(part.casefold() == ".git" for part in path.parts):
        raise ValueError("should not lie in .git, which belongs to git")
    return path.as_posix()


Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_check_name)]
Version = Annotated[int | str, PlainValidator(_check_version)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_check_is_list), AfterValidator(_check_argv)]
WorkspacePath = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_check_workspace_path)]
