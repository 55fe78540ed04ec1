"""What is not committed is not in a run's worktree; better said before it starts than wondered about afterwards."""

from pathlib import Path

from holdfast.config import load_config
from holdfast.errors import WorkspaceError
from holdfast.workspace.repository import find_dirty_paths, find_repository

_SHOWN = 3


def name_uncommitted(repo: Path) -> str:
    """The changed files a run would not see, the first of them by name; empty where there are none."""
    try:
        found = find_repository(repo.expanduser().absolute())
        dirty = find_dirty_paths(found, data_dir=load_config().data_dir) if found else ()
    except WorkspaceError:
        return ""  # the run itself says what is wrong with it
    paths = [path for path in dirty if not path.startswith(".holdfast/")]  # definitions are read where they lie
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{', '.join(paths[:_SHOWN])}{more}"
