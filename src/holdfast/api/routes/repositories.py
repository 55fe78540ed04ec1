"""Repositories a run can be started on: the ones used before, and the ones that lie under the workspace root."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import READ, READ_ONE
from holdfast.api.schemas import ShortText, Text
from holdfast.api.server.server import ServerDep
from holdfast.config import Config
from holdfast.errors import RepositoryNotAllowed
from holdfast.persistence.statistics import UsedRepository, read_used_repositories
from holdfast.presentation.format import match_names
from holdfast.workspace.transfer.remotes import check_remote, is_remote
from holdfast.workspace.user_checkout import list_files

router = APIRouter(tags=["catalog"])
_DEPTH = 2
_MOST_LOOKED_AT = 2000  # a home folder can hold a great many; the picker is a help, not an index
_MOST_FOUND = 100
_MOST_OFFERED = 20


class RepositoryItem(BaseModel):
    path: str = Field(description="A folder, or a URL.", examples=["/srv/code/shop"])
    base_branch: str | None = Field(description="The branch of the last run here.")
    runs: int
    last_used_at: str | None
    is_there: bool = Field(description="Whether the folder is there; of a URL it is not asked.")


class RepositoryList(BaseModel):
    workspace_root: str = Field(description="Repositories must lie under this folder.", examples=["/srv/code"])
    items: list[RepositoryItem]


@router.get("/api/repositories", responses=READ, summary="Repositories that a run can be started on")
async def list_repositories(server: ServerDep, _identity: Operator) -> RepositoryList:
    """List used ones first, the latest at the top; then git repositories up to two folders below the workspace root."""
    used = await read_used_repositories(server.db)
    return await asyncio.to_thread(_collect, server.config, used)


class FileNames(BaseModel):
    paths: list[str] = Field(description="From the repository's root; those first that begin with the text.")


@router.get("/api/repositories/files", responses=READ_ONE, summary="Files of a repository by a part of their name")
async def list_repository_files(
    server: ServerDep,
    _identity: Operator,
    repo_path: Annotated[Text, Query(max_length=4000)],
    text: Annotated[ShortText, Query(description="A part of the path.")] = "",
) -> FileNames:
    """List files that can be named as `@path` in a message: what git knows or would add; none of a URL."""
    repo = await server.engines.resolve_repository(repo_path)
    names = await asyncio.to_thread(list_files, repo.folder) if repo.folder else []
    return FileNames(paths=match_names(text, (name for name in names if _is_text(name)), _MOST_OFFERED))


def _collect(config: Config, used: list[UsedRepository]) -> RepositoryList:
    root = config.workspace_root.resolve()
    items = {
        one.repo_path: RepositoryItem(
            path=one.repo_path,
            base_branch=one.base_branch,
            runs=one.runs,
            last_used_at=one.last_used_at,
            is_there=is_remote(one.repo_path) or Path(one.repo_path).is_dir(),
        )
        for one in used
        if _is_allowed(one.repo_path, root, config)
    }
    for path in sorted(find_git_folders(root)):
        if path not in items:
            items[path] = RepositoryItem(path=path, base_branch=None, runs=0, last_used_at=None, is_there=True)
    return RepositoryList(workspace_root=str(root), items=list(items.values())[: 2 * _MOST_FOUND])


def _is_allowed(path: str, root: Path, config: Config) -> bool:
    try:
        if is_remote(path):
            check_remote(path, allowed=config.allowed_repositories, is_request=True)
            return True
        return Path(path).resolve().is_relative_to(root)
    except (OSError, ValueError, RepositoryNotAllowed):
        return False


def find_git_folders(root: Path) -> list[str]:
    """Find folders with a `.git`, no deeper than two levels; hidden ones and links are not followed."""
    found: list[str] = []
    left = _MOST_LOOKED_AT
    level = [str(root)]
    for _ in range(_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            if Path(folder, ".git").exists():
                found.append(folder)
            else:
                below += _subfolders(folder)
            left -= 1
            if left <= 0 or len(found) >= _MOST_FOUND:
                return [path for path in found if _is_text(path)]
        level = below
    return [path for path in found if _is_text(path)]


def _subfolders(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from [
                entry.path
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return


def _is_text(path: str) -> bool:
    """Tell whether a name is valid Unicode; one that is not cannot stand in JSON, nor come back in a request."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
