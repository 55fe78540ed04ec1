"""The home folder of a coding agent inside the sandbox: its own, with its settings and its account and nothing else.

It lies with the run's data, so that a session survives whatever ends the agent. What the agent puts there is the work
of a stranger: links are not followed, and of its account only renewed values go back to the user's file.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from holdfast.agents.coding_agent.adapters.base import Needs
from holdfast.workspace.files import write_whole

_MAX_BYTES = 1_000_000
_RECORD = ".holdfast-account.json"


class PrivateHome:
    """A folder that an agent has as its home; `user_home` is whose settings and account it uses."""

    def __init__(self, folder: Path, needs: Needs, user_home: Path) -> None:
        self.folder = folder
        self._needs = needs
        self._user_home = user_home

    def prepare(self) -> None:
        """Bring settings and account up to date. No agent may run in it meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.return_account()  # crash: the last agent's renewal may not have been returned
        for name in self._needs.settings:
            if (content := _read(self._user_home / name)) is not None:
                self._write(name, content)
        for name, text in self._needs.seeds.items():
            if not os.path.lexists(self.folder / name):
                self._write(name, text.encode())
        record = {}
        for name in self._needs.account:
            if (content := _read(self._user_home / name)) is not None:
                self._write(name, content)
                record[name] = _digest(content)
        write_whole(self._record_file, json.dumps(record), mode=0o600)

    def return_account(self) -> None:
        """Give the user what the agent has renewed, such as a token, unless the user's own file has changed since."""
        record = _read_record(self._record_file)
        for name, digest in record.items():
            renewed, current = self._read_own(name), _read(self._user_home / name)
            if renewed is None or current is None or _digest(renewed) == digest or _digest(current) != digest:
                continue
            if _is_renewal(_parse(current), _parse(renewed)):
                write_whole((self._user_home / name).resolve(), renewed, mode=0o600)
                record[name] = _digest(renewed)
        if record:
            write_whole(self._record_file, json.dumps(record), mode=0o600)

    def close(self) -> None:
        """Return what was renewed and leave no copy of the account behind."""
        self.return_account()
        for name in self._needs.account:
            if (path := self._find_own(name)) is not None:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    @property
    def _record_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}{_RECORD}")  # beside it: the agent must not change it

    def _find_own(self, name: str) -> Path | None:
        path = self.folder / name
        is_inside = path.parent.resolve() == (self.folder.resolve() / name).parent
        return path if is_inside else None

    def _write(self, name: str, content: bytes) -> None:
        with contextlib.suppress(OSError):  # what the agent made there in its place is its own trouble
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (path := self._find_own(name)) is not None:
                write_whole(path, content, mode=0o600)

    def _read_own(self, name: str) -> bytes | None:
        path = self._find_own(name)
        return None if path is None or path.is_symlink() else _read(path)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= _MAX_BYTES else None
    except OSError:
        return None


def _read_record(path: Path) -> dict[str, str]:
    found = _parse(_read(path) or b"{}")
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_renewal(old: Any, new: Any) -> bool:
    """Tell whether only values differ: no field more or less, no address changed. Anything else is not taken over."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_is_renewal(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_is_renewal, old, new))
    if isinstance(old, str) and isinstance(new, str):
        return old == new or not ("://" in old or "://" in new)
    is_number = isinstance(old, int | float) and isinstance(new, int | float)
    return old == new or (is_number and not isinstance(old, bool) and not isinstance(new, bool))
