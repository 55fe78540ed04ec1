"""Limits that hold for all processes: what may be set, and where this process's own settings say something else."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.agents.calls.rate_limits import find_key
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.errors import LimitInvalid, did_you_mean
from holdfast.persistence.admission import (
    DAY_LIMIT,
    PROVIDER_LIMIT,
    RUN_LIMITS,
    drop_limit,
    list_limits,
    put_limit,
)
from holdfast.persistence.db import Database
from holdfast.quantities import format_number
from holdfast.workspace.transfer.remotes import check_remote, is_remote

KINDS = (*RUN_LIMITS, DAY_LIMIT, PROVIDER_LIMIT)
_NAMELESS = ("runs", DAY_LIMIT)
_MOST = 1_000_000
_LEAST_USD = 0.000001  # what rows count in
_DEFAULT_CALLS = next(each.default for each in fields(Config) if each.name == "max_parallel_model_calls")
_log = logging.getLogger("holdfast.fleet")


@dataclass(frozen=True)
class Limit:
    """A limit by its kind and the name of what it is for; `amount` is a number, or the dollars of a day."""

    kind: str
    name: str
    amount: float
    set_at: str = ""
    set_by: str = ""

    def describe(self) -> str:
        """Say what is limited, and to what."""
        if self.kind == DAY_LIMIT:
            return f"{_format_dollars(self.amount)} a day"
        unit = "call" if self.kind == PROVIDER_LIMIT else "run"
        to = f"to {self.name}" if "@" in self.name else f"to each server of {self.name}"
        of = {"runs": "in all", PROVIDER_LIMIT: to}.get(self.kind, f"of {self.kind} {self.name}")
        return f"{format_number(self.amount)} {unit if self.amount == 1 else unit + 's'} at a time {of}"


def _format_dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount == round(amount, 2) else f"${format_number(amount)}"


def check_limit(kind: str, name: str, amount: float | None = None) -> tuple[str, str]:
    """Return kind and name as they are stored. Raises `LimitInvalid`, and of a URL to be limited what a run would."""
    if kind not in KINDS:
        raise LimitInvalid(f"{kind!r} is no kind of limit.{did_you_mean(kind, KINDS)}", hint=f"Use {', '.join(KINDS)}.")
    if kind in _NAMELESS and name:
        raise LimitInvalid(f"The limit {kind} has no name; it holds for all.", hint="Leave the name out.")
    if kind not in _NAMELESS and not name.strip():
        raise LimitInvalid(f"Whose limit is it? Name the {kind}.")
    if kind == PROVIDER_LIMIT and name.partition("@")[0] not in list(Backend):
        raise LimitInvalid(
            f"{name!r} is no backend.{did_you_mean(name, list(Backend))}", hint=f"They are {', '.join(Backend)}."
        )
    if amount is not None:
        _check_amount(kind, amount)
        if kind == "repository" and is_remote(name):
            check_remote(name, allowed=[name])  # a password in it would be stored, and the limit would hold for nothing
    return kind, str(Path(name).expanduser().resolve()) if kind == "repository" and not is_remote(name) else name


def _check_amount(kind: str, amount: float) -> None:
    if kind == DAY_LIMIT:
        if not _LEAST_USD <= amount <= _MOST:
            least, most = format_number(_LEAST_USD), format_number(_MOST)
            raise LimitInvalid(
                f"A day's limit is an amount of dollars from ${least} to ${most}, not ${format_number(amount)}."
            )
    elif not 1 <= amount <= _MOST or amount != int(amount):
        raise LimitInvalid(f"A limit is a whole number from 1 to {_MOST}, not {format_number(amount)}.")


async def set_limit(db: Database, limit: Limit, *, by: str) -> Limit:
    """Set a limit for all processes. Raises `LimitInvalid`, with nothing written."""
    kind, name = check_limit(limit.kind, limit.name, limit.amount)
    amount = round(limit.amount * 1_000_000) if kind == DAY_LIMIT else int(limit.amount)
    await put_limit(db, kind, name, amount, by=by)
    return to_limit({"kind": kind, "name": name, "amount": amount, "set_at": "", "set_by": ""})


async def remove_limit(db: Database, kind: str, name: str) -> None:
    """Remove a limit. Raises `LimitInvalid` if there is none."""
    kind, name = check_limit(kind, name)
    if not await drop_limit(db, kind, name):
        raise LimitInvalid(f"There is no limit {f'{kind} {name}'.strip()}.")


async def read_all(db: Database) -> list[Limit]:
    """Read the limits that hold for all processes."""
    return [to_limit(row) for row in await list_limits(db)]


def to_limit(row: dict[str, Any]) -> Limit:
    """Return a row as people set it: of a day in dollars."""
    amount = int(row["amount"])
    in_words = amount / 1_000_000 if row["kind"] == DAY_LIMIT else float(amount)
    return Limit(row["kind"], row["name"], in_words, row["set_at"], row["set_by"])


def find_differences(config: Config, limits: Sequence[Limit]) -> list[str]:
    """Name the settings of this process that differ from a limit for all, which counts."""
    named = {limit.name for limit in limits if limit.kind == PROVIDER_LIMIT}
    return [
        f"{setting} is {format_number(value)} here; {limit.describe()} was set for all processes, and counts."
        for limit in limits
        for setting, value in _list_overridden(config, limit, but=named)
        if value != limit.amount
    ]


def _list_overridden(config: Config, limit: Limit, *, but: Collection[str]) -> list[tuple[str, float]]:
    """List the settings that a limit for all takes the place of; those `but` have one of their own."""
    if limit.kind == DAY_LIMIT and config.day_budget_usd is not None:
        return [("day_budget_usd", config.day_budget_usd)]
    if limit.kind != PROVIDER_LIMIT or config.max_parallel_model_calls == _DEFAULT_CALLS:
        return []  # nobody has set the default
    calls, name = dict(config.max_parallel_model_calls), "max_parallel_model_calls"
    own = find_key(calls, limit.name)
    servers = [key for key in calls if key.partition("@")[0] == limit.name != key and key not in but]
    return [
        (name if key in (limit.name, "*") else f"{name} of {key}", calls[key])
        for key in ([] if own is None else [own]) + servers
    ]


async def warn_of_differences(db: Database, config: Config) -> None:
    """Log where this process's settings do not count."""
    for difference in find_differences(config, await read_all(db)):
        _log.warning(difference)
