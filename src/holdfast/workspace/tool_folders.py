"""Folders that a tool fills and can fill again: virtual environments, `node_modules`, caches.

Those that set-up made are on a list, and snapshots leave them out whole, however large they are and whatever is added
to them later. A folder counts only if git knew no file in it, and its name or a mark inside says what it is.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.workspace.files import write_whole
from holdfast.workspace.git import Git
from holdfast.workspace.worktree import Workspace

_LIST = "setup.json"
_NAMES = frozenset({"node_modules", "__pycache__", ".tox", ".nox"})
_MARKS = ("pyvenv.cfg", "CACHEDIR.TAG")  # of a virtual environment, and of any cache (bford.info/cachedir)


ALWAYS_LEFT_OUT = tuple(f"{name}/" for name in sorted(_NAMES))
"""Patterns as in `.gitignore`: folders of these names that git does not know are nobody's work, whoever made them."""


def find_tool_folders(git: Git, worktree: Path) -> dict[str, int]:
    """Find such folders that the index of `git` has no file of; by path the number of files in each."""
    listing = ("ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
    unknown = [name.rstrip("/") for name in git.run(*listing).names if name.endswith("/")]
    found = (folder for name in unknown for folder in _walk(worktree / name))
    return {folder.relative_to(worktree).as_posix(): _count_files(folder) for folder in found}


def _walk(top: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(top):
        if Path(place).name in _NAMES or any(mark in files for mark in _MARKS):
            yield Path(place)
            folders.clear()
        elif ".git" in (*folders, *files):
            folders.clear()  # a repository of its own: git looks no further either


def _count_files(folder: Path) -> int:
    return sum(len(files) for _place, _folders, files in os.walk(folder))


def read_tool_folders(workspace: Workspace) -> dict[str, int]:
    """Read the list: paths from the worktree's top, and the number of files when set-up was done."""
    path = workspace.state_dir / _LIST
    return dict(json.loads(path.read_text())) if path.exists() else {}


def add_tool_folders(workspace: Workspace, folders: dict[str, int]) -> None:
    """Put folders on the list; snapshots leave them out from here on."""
    if folders:
        write_whole(workspace.state_dir / _LIST, json.dumps({**read_tool_folders(workspace), **folders}))


def to_patterns(folders: dict[str, int]) -> list[str]:
    """Turn the paths into patterns as in `.gitignore`, each for that one folder."""
    return ["/" + "".join(f"\\{char}" if char in "*?[]\\ " else char for char in path) + "/" for path in folders]
