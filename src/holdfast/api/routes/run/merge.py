"""Bringing a run's result to where it belongs: `holdfast merge` over HTTP."""

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Identity, Operator
from holdfast.api.http.openapi import WRITE_ONE
from holdfast.api.results import LeftOutItem
from holdfast.api.schemas import Flag, RunIdPath, TargetBranch, Text
from holdfast.api.server.server import ServerDep
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.engine.pull_request import find_form
from holdfast.engine.run.load import get_run
from holdfast.enums import Role
from holdfast.workspace.transfer.clone_remote import without_password
from holdfast.workspace.transfer.pull_request_form import PullRequestForm
from holdfast.workspace.transfer.remotes import check_remote

router = APIRouter(prefix="/api/runs", tags=["results"])


class MergeRun(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"into": "main"}]})
    into: TargetBranch | None = Field(default=None, description="The branch to bring it to; else the run's base.")
    create: Flag = Field(default=False, description="Make the branch if there is none of that name.")
    squash: Flag = Field(default=False, description="As one commit.")
    message: Annotated[Text, Field(max_length=10_000, description="The commit's message.")] = ""
    dry_run: Flag = Field(default=False, description="Say what would happen, and change nothing.")
    pull_request: Flag = Field(
        default=False, description="Push it to a branch of its own at the repository's host; `into` does not count."
    )


class MergedFile(BaseModel):
    path: str
    added: int | None = Field(description="Lines; `null` of a binary file.")
    removed: int | None


class MergedRun(BaseModel):
    """Where the result is now: on a branch, or in a folder without git that the run had copied."""

    run_id: str
    message: str = Field(examples=["main: fast forwarded, 2 files, +10 −1, now at 4be1c90a77."])
    action: str | None = Field(
        default=None,
        description="`created`, `fast_forwarded`, `merged`, `squashed` or `nothing_to_do`.",
        examples=["fast_forwarded"],
    )
    branch: str | None = Field(default=None, examples=["main"])
    commit: str | None = Field(default=None, examples=["4be1c90a77f2d5c8e1f0a343f2a0b9e6c1d4e8f9"])
    folder: str | None = Field(default=None, examples=[None])
    paths: list[str] | None = Field(default=None, description="The files written there.", examples=[None])
    dry_run: bool = Field(default=False, description="Nothing was changed; this is what would happen.")
    commits: list[str] = Field(default_factory=list, description="The subjects of the commits the branch gets.")
    files: list[MergedFile] = Field(default_factory=list, description="The files that change on the branch.")
    link: str | None = Field(
        default=None,
        description="The form of the host that asks for the merge of a pull request.",
        examples=["https://github.com/team/shop/compare/main...run-4be1c90a-pay?expand=1"],
    )
    left_out: list[LeftOutItem] = Field(default_factory=list, description="What is no part of the result.")


@router.post("/{run_id}/merge", responses=WRITE_ONE, summary="Bring a run's result to a branch")
async def merge(run_id: RunIdPath, server: ServerDep, identity: Operator, body: MergeRun | None = None) -> MergedRun:
    """Make commits of what the completed phases made, without holdfast's own files. May be repeated.

    Refused while someone drives the run, and, with the files in `paths` and nothing changed, where it does not fit.
    """
    stored = await get_run(server.db, run_id)
    await server.engines.resolve_repository(stored.run.repo_path)  # the command line starts runs elsewhere too
    body = body or MergeRun()
    if body.pull_request:
        check_push(server, identity, await asyncio.to_thread(find_form, server.config.data_dir, stored.run))
    request = MergeRequest(
        body.into, body.create, body.squash, body.message, body.dry_run, is_pull_request=body.pull_request
    )
    merged = await server.tasks.run_shielded(
        merge_run(server.db, server.config, stored.run.id, request, by=identity.name)
    )
    files = [{**file, "path": _to_unicode(file["path"])} for file in merged.get("files", ())]
    return MergedRun.model_validate({**merged, "paths": _to_text(merged.get("paths")), "files": files})


def check_push(server: ServerDep, identity: Identity, form: PullRequestForm | None) -> None:
    """Raise `RepositoryNotAllowed` if this person may not push with the server's keys to the remote of a clone.

    An admin may: they set the server up with the clone. Others may only where `allowed_repositories` says so.
    """
    if form is not None and form.remote and not identity.role.includes(Role.ADMIN):
        url = without_password(form.repository)
        check_remote(url, allowed=server.config.allowed_repositories, is_request=True)


def _to_text(paths: list[str] | None) -> list[str] | None:
    """Make Unicode of file names, which they need not be; JSON must be."""
    return None if paths is None else [_to_unicode(path) for path in paths]


def _to_unicode(path: str) -> str:
    return path.encode(errors="replace").decode()
