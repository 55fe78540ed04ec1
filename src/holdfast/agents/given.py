"""Numbers that a persona, the configuration or nobody has set."""

from typing import TypeVar

Number = TypeVar("Number", int, float)


def first_given(own: Number | None, setting: Number | None, default: Number) -> Number:
    return next(number for number in (own, setting, default) if number is not None)
