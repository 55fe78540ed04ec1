"""The workspace as the file tools see it: a change is there as a whole or not at all, whenever the process dies.

The framework's own backend empties a file before it writes it. After a kill in between, neither the old text nor the
new one would be left, and no journal could tell what was in it.
"""

import errno
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from deepagents.backends import FilesystemBackend
from deepagents.backends.protocol import EditResult, GrepResult, WriteResult

from holdfast.agents.policy.file_policy import is_secret, to_relative


class WholeFileBackend(FilesystemBackend):
    """A `FilesystemBackend` that prepares new content in `staging_dir`, outside the workspace, and moves it in."""

    def __init__(self, root_dir: Path, *, staging_dir: Path) -> None:
        super().__init__(root_dir=root_dir, virtual_mode=True)
        self._staging_dir = staging_dir

    def _resolve_path(self, key: str) -> Path:
        relative = to_relative(self.cwd, key)
        path = super()._resolve_path(f"/{relative}")
        found = PurePosixPath(path.relative_to(self.cwd))
        # A command may have put a link here since the call was judged by its path.
        if found != relative and (".git" in found.parts or is_secret(found)):
            raise PermissionError(errno.EACCES, "It is a link to what is not for agents")
        return path

    def grep(self, *args: Any, **kwargs: Any) -> GrepResult:
        """Search as the framework does, but name no secret file: a search must not show what a read would be denied."""
        result = super().grep(*args, **kwargs)
        if result.matches:
            matches = [match for match in result.matches if not is_secret(PurePosixPath(match["path"]))]
            return replace(result, matches=matches)
        return result

    def write(self, file_path: str, content: str) -> WriteResult:
        try:
            target = self._resolve_path(file_path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with _staged(self._staging_dir) as staged:
                staged.path.write_bytes(content.encode())
                staged.move_to(target)
        except (OSError, RuntimeError, UnicodeEncodeError) as error:
            return WriteResult(error=f"Error writing file '{file_path}': {_describe(error)}")
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        try:
            target = self._resolve_path(file_path)
            if not target.is_file():
                return super().edit(file_path, old_string, new_string, replace_all)  # it knows how to refuse
            with _staged(self._staging_dir) as staged:
                shutil.copyfile(target, staged.path)
                elsewhere = FilesystemBackend(root_dir=staged.path.parent, virtual_mode=True)
                result = elsewhere.edit(f"/{staged.path.name}", old_string, new_string, replace_all)
                if result.error is not None:
                    return EditResult(error=result.error.replace(f"/{staged.path.name}", file_path))
                staged.move_to(target)
        except (OSError, RuntimeError) as error:
            return EditResult(error=f"Error editing file '{file_path}': {_describe(error)}")
        return EditResult(path=file_path, occurrences=result.occurrences)


class _staged:  # noqa: N801 - reads as a word after `with`
    """A new file in the staging folder, removed unless it was moved."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        os.close(handle)
        self.path = Path(name)

    def __enter__(self) -> "_staged":
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)

    def move_to(self, target: Path) -> None:
        """Put the file in place of `target`, with the mode `target` has, and keep it there over a power cut."""
        if target.exists():
            shutil.copymode(target, self.path)
        else:
            self.path.chmod(0o644)
        _sync(self.path)
        try:
            # crash: before this line the old file is there, after it the new one.
            self.path.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # with the workspace on another disk only copying works
                raise
            shutil.copy(self.path, target)
            _sync(target)
        _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _describe(error: Exception) -> str:
    """Say the reason without paths of the machine, which would make two runs of the same work differ."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
