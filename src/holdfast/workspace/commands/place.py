"""Where commands of a run are started: a data directory, by an id that was written into it once, and a boot.

Rule: whoever finds the intent of a command asks first whether it was begun here. Of one that was begun elsewhere this
place's spool says nothing, and that a folder is missing here does not mean that the command never ran.
"""

import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.runtime.checkpoint.private_files import make_private_folder
from holdfast.workspace.commands.processes import read_boot_id
from holdfast.workspace.commands.spool import spool_folder
from holdfast.workspace.files import hold_lock, write_whole

_FILE = ".place"
_LEASES = ".leases"


@dataclass(frozen=True)
class CommandPlace:
    """A data directory on a machine; `host` and `boot` are for people."""

    data: str
    boot: str
    host: str

    def record_requests(self) -> dict[str, str]:
        return asdict(self)

    def is_same(self, facts: Mapping[str, Any]) -> bool:
        """Tell whether a command was begun here, on the files that are still here."""
        return facts.get("data") == self.data and not facts.get("is_left")


def lease_folder(data_dir: Path) -> Path:
    """Return the folder in which processes say until when they hold runs, for commands that end with a lease."""
    return data_dir / _LEASES


def find_place(data_dir: Path) -> CommandPlace:
    """Read the id of a data directory, written into it if it has none yet; an empty one is none."""
    path = data_dir.resolve() / _FILE
    name = _read_name(path)
    if not name:
        make_private_folder(path.parent)
        with hold_lock(path.with_name(f"{_FILE}.lock")):  # whoever is first has named it
            name = _read_name(path)
            if not name:  # none yet, or an earlier version lost it to a power cut: what ran here before is elsewhere's
                name = uuid.uuid4().hex
                write_whole(path, name)
    return CommandPlace(name, read_boot_id(), socket.gethostname())


def _read_name(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def announce(key: str, *, spool_dir: Path) -> None:
    """Make the folder of a command before its intent is recorded: from then on a missing folder is a lost one."""
    # crash: an empty folder of a command that nobody has begun; its step makes it again.
    spool_folder(spool_dir, key).mkdir(parents=True, exist_ok=True, mode=0o700)


def is_announced(key: str, *, spool_dir: Path) -> bool:
    return spool_folder(spool_dir, key).exists()
