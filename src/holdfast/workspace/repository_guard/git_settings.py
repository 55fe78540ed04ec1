"""Settings of a repository that would run programs, found and overruled before git reads them.

What stands in a repository's own `.git/config` may be a stranger's: it came with an archive, or with a folder that is
laid out as a repository. What stands in the user's own configuration is the user's, and stays. Git LFS is known by
name: its filters work wherever they are set, as long as nothing else is set for it to run.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

# Settings without a name of their own are overruled always: in `git._SAFE` and `git._clean_environment`.
_FILTER = re.compile(r"filter\.(.*)\.(clean|smudge|process)", re.DOTALL)
_MERGE_DRIVER = re.compile(r"merge\.(.*)\.(driver|recursive)", re.DOTALL)
_HOOK = re.compile(r"hook\.(.*)\.command", re.DOTALL)
_HELPER = re.compile(r"credential\.(.*\.)?helper", re.DOTALL)
_LFS_PROGRAM = re.compile(r"lfs\.(customtransfer|extension)\..*|lfs\.(.*\.)?standalonetransferagent", re.DOTALL)
_LFS_COMMANDS = frozenset(
    f"{program} {command}"
    for program in ("git-lfs", "git lfs")
    for command in ("clean -- %f", "smudge -- %f", "smudge --skip -- %f", "filter-process", "filter-process --skip")
)
_OWN_SCOPES = ("local", "worktree")
_MOST_REMEMBERED = 500

Setting = tuple[str, str]
Stamp = tuple[tuple[str, int, int, int], ...]


def find_overrides(settings: Iterable[Setting]) -> dict[str, str]:
    """Return the settings to give git, so that none of a repository's own ones runs a program."""
    own = list(settings)
    overrides: dict[str, str] = {}
    runs_with_lfs = any(_LFS_PROGRAM.fullmatch(key) for key, _ in own)
    for key, value in own:
        if (found := _FILTER.fullmatch(key)) and (runs_with_lfs or not _is_lfs(found[1], value)):
            overrides |= _without_filter(found[1])
        if found := _MERGE_DRIVER.fullmatch(key):
            # As if no driver were set: the lines are merged, and what conflicts is told.
            overrides[f"merge.{found[1]}.driver"] = "git merge-file -q %A %O %B"
        if found := _HOOK.fullmatch(key):
            overrides[f"hook.{found[1]}.enabled"] = "false"
        if _HELPER.fullmatch(key):
            overrides["credential.helper"] = ""  # forgets every helper that was named before
        if key == "core.sshcommand":
            overrides["core.sshCommand"] = "ssh"
    return overrides | (_without_filter("lfs") if runs_with_lfs else {})


def _is_lfs(name: str, command: str) -> bool:
    return name == "lfs" and command in _LFS_COMMANDS


def _without_filter(name: str) -> dict[str, str]:
    # An empty process takes the place of the other two; a filter that is required and does nothing would be an error.
    return {f"filter.{name}.{key}": "" for key in ("process", "clean", "smudge")} | {f"filter.{name}.required": "false"}


def to_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give git these settings. With `-c`, a name that holds `=` would be cut there."""
    numbered = list(enumerate(overrides.items()))
    keys = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in numbered}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in numbered}
    return {"GIT_CONFIG_COUNT": str(len(numbered))} | keys | values if numbered else {}


def parse_settings(listed: bytes) -> tuple[list[Setting], list[Path]]:
    """Read `git config --list --show-scope --show-origin -z`: the repository's own settings, and their files."""
    words = listed.decode(errors="surrogateescape").split("\0")
    settings: list[Setting] = []
    files: dict[str, None] = {}
    for scope, origin, entry in zip(words[::3], words[1::3], words[2::3], strict=False):
        if scope in _OWN_SCOPES:
            key, _, value = entry.partition("\n")
            settings.append((key, value))
            files[origin.removeprefix("file:")] = None
    return settings, [Path(name) for name in files]


class OverridesCache:
    """Remembers the overrides of a place for as long as no file that they were read from has changed."""

    def __init__(self) -> None:
        self._found: dict[object, tuple[tuple[Path, ...], Stamp, dict[str, str]]] = {}
        self._lock = threading.Lock()

    def get(
        self, place: object, base: Path, more: Iterable[Path], load: Callable[[], tuple[list[Setting], list[Path]]]
    ) -> dict[str, str]:
        """Return the overrides of a place; paths of files are relative to `base`, `more` are further ones to watch."""
        known = self._found.get(place)
        if known is not None and _stamp(known[0]) == known[1]:
            return known[2]
        before = _stamp(more)
        settings, files = load()
        overrides = find_overrides(settings)
        read = [base / file for file in files]
        # What is included on a condition (the branch that is checked out) can change with no file of these.
        is_conditional = any(key.startswith("includeif.") for key, _ in settings)
        if not is_conditional and all(map(Path.is_file, read)) and _stamp(more) == before:
            watched = tuple(dict.fromkeys([*read, *more]))
            with self._lock:
                if len(self._found) > _MOST_REMEMBERED:
                    self._found.clear()
                self._found[place] = (watched, _stamp(watched), overrides)
        return overrides


def _stamp(files: Iterable[Path]) -> Stamp:
    stamps = []
    for file in files:
        try:
            stat = file.stat()
            stamps.append((str(file), stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            stamps.append((str(file), 0, 0, 0))
    return tuple(stamps)
