"""Settings: defaults, then one TOML file, then `HOLDFAST_*` variables, then arguments. Read once, at the edge.

A plain dataclass on purpose: every command reads its settings, and importing pydantic would cost more than the
rest of a listing.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from holdfast.enums import Backend
from holdfast.errors import ConfigInvalid

ENV_PREFIX = "HOLDFAST_"

# Variables with our prefix that are not settings: where the file is, and what tests and tools read for themselves.
NOT_SETTINGS = frozenset({"HOLDFAST_CONFIG", "HOLDFAST_TORTURE", "HOLDFAST_SEED", "HOLDFAST_TOKEN"})
# What holdfast sets in the commands that it starts.
NOT_SETTINGS |= {"HOLDFAST_SPOOL", "HOLDFAST_RUN_ID", "HOLDFAST_USAGE_FILE", "HOLDFAST_AGENT_COMMAND"}
NOT_SETTINGS_PREFIXES = ("HOLDFAST_SIMULATE", "HOLDFAST_TEST_", "HOLDFAST_BENCH_")

MAX_WAIT_S = 86_400.0  # a day: longer than any provider takes, and short enough for every clock
MAX_TRIES = 100
MAX_STEP_MB = 512  # a row of either database holds up to 1 GB, and drivers copy it
DATABASE_CONNECTIONS = 8  # with more of them hundreds of clients are served more slowly, on SQLite and on Postgres

PerProvider = tuple[tuple[str, int], ...]
"""A number for each backend that is named, with its server or without, and for all others under `*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one process. Paths are absolute; nothing is created or opened by making one."""

    data_dir: Path
    database_url: str = field(repr=False)  # may hold a password
    workspace_root: Path
    database_connections: int = DATABASE_CONNECTIONS
    run_budget_usd: float | None = None
    day_budget_usd: float | None = None
    max_parallel_runs: int = 4
    queues: tuple[str, ...] = ("runs",)  # the names there are; the first is for runs that name none
    max_parallel_model_calls: PerProvider = (("*", 16),)
    model_calls_per_minute: PerProvider = ()
    model_answer_timeout_s: float | None = None
    model_idle_timeout_s: float | None = None
    model_tries: int | None = None
    model_max_wait_s: float | None = None
    keep_prompts: bool = True
    search_url: str | None = None
    """Where the tool `web_search` asks; it answers as SearXNG does."""
    allowed_hosts: tuple[str, ...] = ()
    allow_unsandboxed: bool = False
    """Whether a request to `serve` may start a run whose commands are without a sandbox."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose word counts on whom they forward for."""
    keep_worktrees: bool = False
    carry_files: bool | None = None
    """Whether a run's files are stored in the database as well; without a word they are on Postgres."""
    carry_max_mb: int = 512
    """How big the files may be, as a pack, that a run starts from and brings along."""
    carry_step_max_mb: int = 256  # the same of what one step changes
    shared_roots: tuple[Path, ...] = ()
    """Folders that every machine sees under the same path: repositories in them are not carried."""
    allowed_repositories: tuple[str, ...] = ()
    """The repositories, by the beginning of their URL, that a request to `serve` may name."""
    gc_at: str | None = None
    """When `serve` cleans up, by the clock of its machine: `HH:MM`."""
    gc_older_than: float = 0.0  # seconds, as the next one
    gc_runs_older_than: float | None = None
    gc_max_size: int | None = None
    """Bytes."""
    flows: tuple[str, ...] = ()
    """The modules, or files, whose flows `serve` drives."""
    config_dir: Path

    @property
    def database_path(self) -> Path | None:
        """The file of a SQLite database, or `None` for another kind."""
        scheme, _, rest = self.database_url.partition(":///")
        return Path(rest) if scheme.partition("+")[0] == "sqlite" else None

    @property
    def carries_files(self) -> bool:
        """Whether the files of runs travel with their journals."""
        return self.database_path is None if self.carry_files is None else self.carry_files


@dataclass(frozen=True, slots=True)
class _RawValue:
    """A value as it was written, and where: `base` is what a relative path in it is relative to."""

    value: object
    origin: str
    base: Path


def load_config(**overrides: Any) -> Config:
    """Read the settings from every source; an override of `None` counts as not given.

    Raises `ConfigInvalid` for a value that cannot be used and for a name that is no setting, with `key` and `origin`.
    """
    file = _config_file(os.environ)
    raw = {
        **_from_file(file, is_required=bool(os.environ.get("HOLDFAST_CONFIG"))),
        **_from_environment(os.environ),
        **_from_arguments(overrides),
    }
    settings = {key: _parse(key, entry) for key, entry in raw.items()}
    settings.setdefault("data_dir", _user_folder("XDG_DATA_HOME", ".local/share") / "holdfast")
    settings.setdefault("database_url", f"sqlite+aiosqlite:///{settings['data_dir']}/holdfast.db")
    settings.setdefault("workspace_root", Path.home())
    return Config(**settings, config_dir=file.parent)


def _config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the one TOML file; its folder is the user's configuration folder, there or not."""
    named = environ.get("HOLDFAST_CONFIG")
    if named:
        return _parse_path("HOLDFAST_CONFIG", _RawValue(named, "environment variable HOLDFAST_CONFIG", Path.cwd()))
    return _user_folder("XDG_CONFIG_HOME", ".config") / "holdfast" / "config.toml"


def _user_folder(variable: str, fallback: str) -> Path:
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / fallback


def _from_file(file: Path, *, is_required: bool) -> dict[str, _RawValue]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not is_required:
            return {}
        _refuse("HOLDFAST_CONFIG", "environment variable HOLDFAST_CONFIG", f"there is no file {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{file} cannot be read: {error}.", key="", origin=str(file)) from error
    import tomllib  # only where there is a file: most commands never pay for it

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"{file} is not TOML: {error}.", key="", origin=str(file)) from error
    return {
        _known(key, origin := f"{file}, line {_line_of(key, text)}"): _RawValue(value, origin, file.parent)
        for key, value in content.items()
    }


def _line_of(key: str, text: str) -> int:
    begins = (line.strip().lstrip("[\"'").startswith(key) for line in text.splitlines())
    return next((number for number, is_it in enumerate(begins, start=1) if is_it), 1)


def _from_environment(environ: Mapping[str, str]) -> dict[str, _RawValue]:
    found = {}
    for variable, value in sorted(environ.items()):
        is_setting = variable.startswith(ENV_PREFIX) and variable not in NOT_SETTINGS
        if not is_setting or variable.startswith(NOT_SETTINGS_PREFIXES):
            continue
        origin = f"environment variable {variable}"
        key = _known(variable.removeprefix(ENV_PREFIX).lower(), origin)
        if value:  # an empty variable is how shells and compose files say "not set"
            found[key] = _RawValue(value, origin, Path.cwd())
    return found


def _from_arguments(overrides: Mapping[str, object]) -> dict[str, _RawValue]:
    return {
        _known(key, f"argument {key}"): _RawValue(value, f"argument {key}", Path.cwd())
        for key, value in overrides.items()
        if value is not None
    }


def _known(key: str, origin: str) -> str:
    if key in _PARSERS:
        return key
    import difflib

    close = difflib.get_close_matches(key, _PARSERS, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"The settings are {', '.join(_PARSERS)}."
    raise ConfigInvalid(f"{key} ({origin}) is not a setting.", hint=hint, key=key, origin=origin)


def _parse(key: str, raw: _RawValue) -> Any:
    return _PARSERS[key](key, raw)


def _refuse(key: str, origin: str, reason: str) -> NoReturn:
    raise ConfigInvalid(f"{key} ({origin}) cannot be used: {reason}.", key=key, origin=origin)


def _parse_path(key: str, raw: _RawValue) -> Path:
    if not isinstance(raw.value, str | os.PathLike) or not os.fspath(raw.value):
        _refuse(key, raw.origin, "it should be a path")
    text = os.fsdecode(raw.value)
    if "\0" in text:
        _refuse(key, raw.origin, "a path cannot hold a NUL character")
    try:
        return raw.base / Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigInvalid(f"{key} ({raw.origin}) cannot be used: {error}.", key=key, origin=raw.origin) from error


def _parse_folder(key: str, raw: _RawValue) -> Path:
    path = _parse_path(key, raw)
    if path.exists() and not path.is_dir():
        _refuse(key, raw.origin, f"{path} is a file, not a folder")
    return path


def _parse_database_url(key: str, raw: _RawValue) -> str:
    # The value is never shown: it may hold a password.
    if not isinstance(raw.value, str):
        _refuse(key, raw.origin, "it should be a URL")
    scheme, separator, rest = raw.value.partition("://")
    if scheme.partition("+")[0] not in ("sqlite", "postgresql", "postgres") or not separator:
        _refuse(key, raw.origin, "it should begin with sqlite+aiosqlite:/// or postgresql://")
    if scheme.startswith("sqlite") and not rest.removeprefix("/"):
        _refuse(key, raw.origin, "it names no file, and a database in memory would keep nothing")
    return raw.value


def _parse_address(key: str, raw: _RawValue) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(raw.value if isinstance(raw.value, str) else "")
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not isinstance(raw.value, str) or not raw.value.isprintable() or "@" in parts.netloc:
        _refuse(key, raw.origin, "it should be an address such as http://localhost:8080/search, without a password")
    return raw.value


def _parse_usd(key: str, raw: _RawValue) -> float:
    amount = _parse_number(key, raw)
    if not math.isfinite(amount) or amount <= 0:
        _refuse(key, raw.origin, "it should be an amount of dollars above 0; leave it out for no limit")
    return amount


def _parse_count(key: str, raw: _RawValue, most: int | None = None) -> int:
    amount = _parse_number(key, raw)
    if not amount.is_integer() or amount < 1:
        _refuse(key, raw.origin, "it should be a whole number from 1 on")
    if most is not None and amount > most:
        _refuse(key, raw.origin, f"it should be at most {most}")
    return int(amount)


def _parse_timeout(key: str, raw: _RawValue) -> float:
    seconds = _parse_wait(key, raw)
    if seconds == 0:
        _refuse(key, raw.origin, "it should be seconds above 0")
    return seconds


def _parse_wait(key: str, raw: _RawValue) -> float:
    seconds = _parse_number(key, raw)
    if not 0 <= seconds <= MAX_WAIT_S:  # never true of NaN
        _refuse(key, raw.origin, f"it should be seconds from 0 to {MAX_WAIT_S:g}, a day")
    return seconds


def _parse_per_provider(key: str, raw: _RawValue) -> PerProvider:
    """Parse one number for all, a table, or `openrouter=8,ollama=1`."""
    found = raw.value
    if isinstance(found, str) and "=" in found:
        found = {name.strip(): number.strip() for name, _, number in (part.partition("=") for part in found.split(","))}
    if not isinstance(found, Mapping):
        return (("*", _parse_count(key, raw)),)
    for name in found:
        if name != "*" and str(name).partition("@")[0] not in list(Backend):
            _refuse(key, raw.origin, f"{name!r} is no backend; they are {', '.join(Backend)}, and * for all others")
    return tuple((name, _parse_count(key, replace(raw, value=number))) for name, number in sorted(found.items()))


def _parse_list(key: str, raw: _RawValue) -> tuple[str, ...]:
    found = raw.value.split(",") if isinstance(raw.value, str) else raw.value
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        _refuse(key, raw.origin, "it should be names, as a list or with commas between them")
    return tuple(name.strip() for name in found if name.strip())


def _parse_names(key: str, raw: _RawValue) -> tuple[str, ...]:
    return tuple(name.lower() for name in _parse_list(key, raw))


def _parse_folders(key: str, raw: _RawValue) -> tuple[Path, ...]:
    return tuple(_parse_folder(key, _RawValue(name, raw.origin, raw.base)) for name in _parse_list(key, raw))


def _parse_modules(key: str, raw: _RawValue) -> tuple[str, ...]:
    """Parse modules and files: a list, a text with commas, or a table with `modules`."""
    if isinstance(raw.value, Mapping):
        if set(raw.value) - {"modules"}:
            _refuse(key, raw.origin, "it should hold modules and nothing else")
        raw = replace(raw, value=raw.value.get("modules", ()))
    return tuple(
        str(raw.base / Path(name).expanduser()) if name.endswith(".py") else name for name in _parse_list(key, raw)
    )


def _parse_networks(key: str, raw: _RawValue) -> tuple[str, ...]:
    import ipaddress  # only where there is a proxy

    names = _parse_names(key, raw)
    for name in names:
        try:
            network = ipaddress.ip_network(name)
        except ValueError as error:
            _refuse(key, raw.origin, f"{error}; it should be addresses or networks, such as 127.0.0.1 or 10.0.0.0/8")
        if network.prefixlen == 0:
            _refuse(key, raw.origin, f"{name} is everybody, who could then say to be anybody")
    return names


def _parse_switch(key: str, raw: _RawValue) -> bool:
    if isinstance(raw.value, bool):
        return raw.value
    found = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(str(raw.value).lower())
    if found is None:
        _refuse(key, raw.origin, "it should be true or false")
    return found


def _parse_time_of_day(key: str, raw: _RawValue) -> str:
    hour, colon, minute = str(raw.value).strip().partition(":")
    is_time = colon and (hour + minute).isdecimal() and (hour + minute).isascii() and len(minute) == 2
    if not is_time or int(hour) > 23 or int(minute) > 59:
        _refuse(key, raw.origin, "it should be a time of day, such as 03:30")
    return f"{int(hour):02}:{minute}"


def _parse_duration(key: str, raw: _RawValue) -> float:
    from holdfast.quantities import parse_duration

    try:
        return parse_duration(str(raw.value))
    except ValueError as error:
        _refuse(key, raw.origin, f"it should be {error}")


def _parse_size(key: str, raw: _RawValue) -> int:
    from holdfast.quantities import parse_size

    try:
        return parse_size(str(raw.value))
    except ValueError as error:
        _refuse(key, raw.origin, f"it should be {error}")


def _parse_number(key: str, raw: _RawValue) -> float:
    if isinstance(raw.value, int | float | str) and not isinstance(raw.value, bool):
        try:
            return float(raw.value)
        except (ValueError, OverflowError):
            pass
    _refuse(key, raw.origin, "it should be a number")


_PARSERS: dict[str, Callable[[str, _RawValue], object]] = {
    "data_dir": _parse_folder,
    "database_url": _parse_database_url,
    "workspace_root": _parse_folder,
    "database_connections": _parse_count,
    "run_budget_usd": _parse_usd,
    "day_budget_usd": _parse_usd,
    "max_parallel_runs": _parse_count,
    "max_parallel_model_calls": _parse_per_provider,
    "model_calls_per_minute": _parse_per_provider,
    "model_answer_timeout_s": _parse_timeout,
    "model_idle_timeout_s": _parse_timeout,
    "model_tries": partial(_parse_count, most=MAX_TRIES),
    "model_max_wait_s": _parse_wait,
    "keep_prompts": _parse_switch,
    "search_url": _parse_address,
    **dict.fromkeys(("allowed_hosts", "queues"), _parse_names),
    "allow_unsandboxed": _parse_switch,
    "trusted_proxies": _parse_networks,
    "keep_worktrees": _parse_switch,
    "carry_files": _parse_switch,
    "carry_max_mb": _parse_count,
    "carry_step_max_mb": partial(_parse_count, most=MAX_STEP_MB),
    "shared_roots": _parse_folders,
    "allowed_repositories": _parse_list,
    "gc_at": _parse_time_of_day,
    "gc_older_than": _parse_duration,
    "gc_runs_older_than": _parse_duration,
    "gc_max_size": _parse_size,
    "flows": _parse_modules,
}
