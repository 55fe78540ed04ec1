"""Files that a stranger may have put there: read whole within a bound, and only if they are plain files.

Opening a pipe waits for somebody who writes into it, and a device never ends: either would hold a thread for ever.
"""

import os
import stat
from pathlib import Path


class TooLarge(ValueError):
    """Says that a file is larger than it may be."""


def read_file(path: Path, max_bytes: int) -> bytes:
    """Read a plain file. Raises `OSError`, also for what is no plain file, and `TooLarge`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no plain file", str(path))
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise TooLarge(f"it is larger than {max_bytes} bytes")
    return content


def is_plain_file(path: Path) -> bool:
    """Tell whether there is a plain file; a name that is too long for one is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Tell whether there is a folder; a name that is too long for one is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_below(path: Path, folder: Path) -> bool:
    """Tell whether a path stays in a folder when every link on its way is followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
