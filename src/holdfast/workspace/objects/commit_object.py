"""A commit of ours as git stores it: its text, its id, and the file in the repository's object folder.

A snapshot makes one for every attempt; a process of git for these two hundred bytes costs more than all else in it.
"""

import hashlib
import os
import tempfile
import zlib
from datetime import datetime
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.git import HOLDFAST


def write_commit(repo: Path, tree_id: str, *, parent: str, message: str, at: datetime) -> str:
    """Write a commit by holdfast at the time `at`, as `git commit-tree` would, and return its id."""
    who = f"{HOLDFAST.name} <{HOLDFAST.email}> {int(at.timestamp())} +0000"
    lines = (f"tree {tree_id}", f"parent {parent}", f"author {who}", f"committer {who}", "", message.rstrip("\n"), "")
    text = "\n".join(lines).encode("utf-8", "surrogateescape")
    whole = b"commit %d\0" % len(text) + text
    made = (hashlib.sha256(whole) if len(tree_id) == 64 else hashlib.sha1(whole, usedforsecurity=False)).hexdigest()
    path = repo / "objects" / made[:2] / made[2:]
    try:
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            _write(path, zlib.compress(whole, 1))
    except OSError as failed:
        hint = "Free some space, or give this user the right to write there."
        raise WorkspaceError(f"No commit was written to {path.parent}: {failed.strerror}.", hint=hint) from failed
    return made


def _write(path: Path, content: bytes) -> None:
    number, part = tempfile.mkstemp(prefix="tmp_obj_", dir=path.parent)  # git clears away files of such names
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(part).chmod(0o444)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
