"""The command that starts a run."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.terminal.arguments import DETACH, JSON, YES, check_detached, get_user, is_interactive
from holdfast.cli.terminal.completion import complete_workflows
from holdfast.cli.terminal.requirements import (
    IMAGE,
    PERSONA,
    PRIORITY,
    QUEUE,
    REPOSITORY,
    REQUIREMENTS,
    REQUIREMENTS_FILE,
    UNSANDBOXED,
    ask_requirements,
    read_images,
    read_overrides,
    read_requirements,
    refuse_missing,
    to_order,
)
from holdfast.errors import ConfigInvalid, PersonaIneligible, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.workflow import WorkflowTemplate


_MOST_NAMED = 3


def describe_uncommitted(repo: Path) -> str:
    """Name the first of the changed files that a run would not see; return the empty text where there are none."""
    from holdfast.config import load_config
    from holdfast.workspace.repository import find_dirty_paths, find_repository

    try:
        found = find_repository(repo.expanduser().absolute())
        dirty = find_dirty_paths(found, data_dir=load_config().data_dir) if found else ()
    except WorkspaceError:
        return ""  # the run itself says what is wrong with it
    paths = [path for path in dirty if not path.startswith(".holdfast/")]  # definitions are read where they lie
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return f"{', '.join(paths[:_MOST_NAMED])}{more}"


_SHORT_CHARS = 60


class _RunOptions(NamedTuple):
    """What the command line asks for."""

    workflow: str
    repo: str
    options: dict[str, Any]
    is_simulated: bool
    is_yes: bool
    is_json: bool
    is_elsewhere: bool
    """Whether it is left to others to drive the run."""

    @property
    def folder(self) -> Path | None:
        """The folder that the repository is; a URL has none."""
        from holdfast.workspace.transfer.remotes import to_folder

        return to_folder(self.repo)

    @property
    def can_ask(self) -> bool:
        return is_interactive() and not self.is_json


def run(
    workflow: Annotated[
        str,
        typer.Argument(metavar="WORKFLOW", help="A workflow's name, or a file.", autocompletion=complete_workflows),
    ],
    repo: REPOSITORY = ".",
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="BRANCH", help="The branch to start from; by default the one that is checked out."
        ),
    ] = None,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    image: IMAGE = None,
    persona: PERSONA = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Rehearse with the simulated model, at no cost.")
    ] = False,
    yes: YES = False,
    unsandboxed: UNSANDBOXED = False,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0, help="Spend no more than this.")
    ] = None,
    queue: QUEUE = "",
    priority: PRIORITY = 0,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Start then, such as 03:30 or 2026-12-24T18:00+01:00.")
    ] = None,
    detach: DETACH = False,
    as_json: JSON = False,
) -> None:
    """Start a workflow on a repository.

    The run starts from the branch that is checked out, of a URL from the remote's own; holdfast merge brings the
    result back. On a terminal you
    watch it and answer its questions. Ctrl-C pauses it; holdfast resume continues it.

    Example: holdfast run feature-delivery --repo . --requirements "Add a --verbose flag" --simulate
    """
    import asyncio

    if detach or at:
        check_detached(is_yes=yes)
    options = {
        "base_branch": base,
        "requirements_md": read_requirements(requirements, requirements_file),
        "images": read_images(image),
        "persona_overrides": read_overrides(persona),
        "budget_usd": budget,
        "started_by": get_user(),
        "is_unsandboxed": unsandboxed,
        "order": to_order(queue, priority, at),
    }
    request = _RunOptions(workflow, repo, options, simulate, yes, as_json, is_elsewhere=bool(detach or at))
    try:
        code = asyncio.run(_create(request) if request.is_elsewhere else _run(request))
    except PersonaIneligible as error:
        if missing := error.facts.get("missing"):
            others = _describe_others(request, str(error.facts.get("role_id")))
            error.hint = f"{_describe_remedy(missing)}{others}\nOr rehearse without: {_rehearsal_command(request)}"
        raise
    raise typer.Exit(code)


def _describe_remedy(missing: "Sequence[Mapping[str, str]]") -> str:
    """Say what to do for the first that lacks a key, else for the first."""
    entry = next((entry for entry in missing if entry["finding"] == f"{entry['thing']} is not set"), None)
    remedy = missing[0]["remedy"] if entry is None else f"Set a key: export {entry['thing']}=…"
    return f"{remedy}   Who is ready: holdfast personas list."


def _describe_others(request: _RunOptions, role_id: str) -> str:
    """Say that a persona can be named for workers that have its key, where workers drive the run and none was named."""
    from holdfast.binding import advise_names
    from holdfast.config import load_config

    is_for_workers = request.is_elsewhere and load_config().database_path is None
    return f"\n{advise_names(role_id)}" if is_for_workers and role_id not in _names_of(request) else ""


def _names_of(request: _RunOptions) -> "Mapping[str, str]":
    return request.options["persona_overrides"] or {}


def _rehearsal_command(request: _RunOptions) -> str:
    words = ["holdfast", "run", request.workflow, "--repo", request.repo]
    requirements = request.options["requirements_md"]
    if requirements and len(requirements) <= _SHORT_CHARS and requirements.isprintable():
        words += ["--requirements", requirements]
    elif requirements:
        return f"{shlex.join(words)} --requirements … --simulate"
    return shlex.join([*words, "--simulate"])


async def _run(request: _RunOptions) -> int:
    import uuid

    from holdfast.cli.terminal.output import finish, waiting_notice

    with waiting_notice("starting …"):
        from holdfast.cli.terminal.drive import drive
        from holdfast.cli.terminal.engine import YesToAll, open_engine

    template, consents, agreed = _prepare(request)
    callback = YesToAll() if request.is_yes else None
    opened = open_engine(
        repo=request.folder,
        is_simulated=request.is_simulated,
        callback=callback,
        consents=consents,
        agreed=agreed,
    )
    async with opened as (engine, db, _config):
        run_id = str(uuid.uuid4())
        end = await drive(
            engine,
            db,
            run_id,
            lambda: engine.run(template, repo_path=request.repo, pre_allocated_run_id=run_id, **request.options),
            phase_keys=[phase.key for phase in template.phases],
            can_ask=request.can_ask,
        )
        return finish(end.result, is_json=request.is_json, is_interrupted=end.is_interrupted)


async def _create(request: _RunOptions) -> int:
    from holdfast.cli.terminal.engine import open_engine
    from holdfast.cli.terminal.output import show_detached

    template, consents, agreed = _prepare(request)
    opened = open_engine(
        repo=request.folder,
        is_simulated=request.is_simulated,
        consents=consents,
        agreed=agreed,
        is_leaving=True,
    )
    async with opened as (engine, db, _config):
        run_id = await engine.create(template, repo_path=request.repo, **request.options)
        due_at = request.options["order"].due_at
        show_detached(run_id, "pending", is_shared=db.path is None, is_json=request.is_json, due_at=due_at)
    return 0


def _prepare(request: _RunOptions) -> tuple[Any, Any, Any]:
    """Return the template, the consents once a person has agreed to what needs one, and the personas they saw."""
    from holdfast.cli.commands.trust import agree
    from holdfast.cli.terminal.catalog import get_workflow
    from holdfast.cli.terminal.output import say

    folder = request.folder
    if folder is None:
        _check_url(request.repo)
    elif not folder.expanduser().is_dir():
        raise ConfigInvalid(f"{request.repo} is no folder.", hint="Name a repository with --repo.", key="--repo")
    entry = get_workflow(request.workflow, folder)
    overrides = request.options["persona_overrides"]
    origin = _complete(request, entry.definition) if folder is None or folder.is_dir() else ""  # the engine refuses it
    consents, agreed = agree(
        folder,
        entry,
        overrides,
        is_simulated=request.is_simulated,
        is_yes=request.is_yes,
        can_ask=request.can_ask,
        is_elsewhere=request.is_elsewhere,
    )
    if origin:
        say(origin)
    if folder is not None and (named := describe_uncommitted(folder)):
        say(f"Not committed, so not among the run's files: {named}.")
    return entry.definition, consents, agreed


def _check_url(url: str) -> None:
    from holdfast.config import load_config
    from holdfast.workspace.transfer.remotes import check_remote

    check_remote(url, allowed=load_config().allowed_repositories)


def _complete(request: _RunOptions, template: "WorkflowTemplate") -> str:
    """Fix the branch to start from, and ask what is wanted if nobody has said that; return the line that says where
    the run starts, unless it was said before the question.

    Raises `BaseBranchMissing`, and `BadParameter` if there is nobody to ask.
    """
    from holdfast.cli.terminal.output import plain, say
    from holdfast.workspace.start import find_start

    options = request.options
    options["requirements_md"] = options["requirements_md"] or ""
    if request.folder is None:
        origin = plain(f"From {request.repo}; holdfast merge pushes the result back there.")
    else:
        start = find_start(request.folder.expanduser().resolve(), options["base_branch"])
        options["base_branch"] = start.name
        origin = plain(start.describe())
    if options["requirements_md"].strip() or not template.requires_text:
        return origin
    if request.can_ask:
        say(origin)
        options["requirements_md"] = ask_requirements()
    if not options["requirements_md"].strip():
        raise refuse_missing()
    return ""
