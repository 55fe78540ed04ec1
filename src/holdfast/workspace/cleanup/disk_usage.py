"""How much of the disk a file or folder takes, as `du` counts it."""

import os
from pathlib import Path

_BLOCK_BYTES = 512  # what `st_blocks` counts in, whatever the file system's own blocks are


def disk_bytes(path: Path) -> int:
    """Measure the space that a file, or a folder with all in it, takes. What goes away meanwhile counts nothing."""
    seen: set[tuple[int, int]] = set()
    return _add_up(path, seen)


def _add_up(path: Path, seen: set[tuple[int, int]]) -> int:
    total = _own_bytes(path, seen)
    if path.is_symlink() or not path.is_dir():
        return total
    for folder, folders, files in os.walk(path):
        total += sum(_own_bytes(Path(folder) / name, seen) for name in (*folders, *files))
    return total


def _own_bytes(path: Path, seen: set[tuple[int, int]]) -> int:
    try:
        facts = path.lstat()
    except OSError:
        return 0
    if facts.st_nlink > 1 and (facts.st_dev, facts.st_ino) in seen:
        return 0
    seen.add((facts.st_dev, facts.st_ino))
    return facts.st_blocks * _BLOCK_BYTES
