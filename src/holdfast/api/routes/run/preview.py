"""What starting a run would do, without doing it: who would work, what it may cost, and what stands in the way.

Rule: nothing is written, and what is wrong comes back beside the field it is wrong in, all of it at once.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import WRITE
from holdfast.api.preview.cost import Estimate, estimate, explain_limits
from holdfast.api.preview.roles import FieldProblem, RolePreview, find_role_problems, preview_roles, to_problem
from holdfast.api.schemas import StartRun
from holdfast.api.serialize import to_usd
from holdfast.api.server.engines import NamedRepository
from holdfast.api.server.server import Server, ServerDep
from holdfast.api.workflow_statistics import to_statistics
from holdfast.catalog.model_table import load_model_table
from holdfast.concurrency import in_remote_thread
from holdfast.consent import open_consents
from holdfast.errors import BaseBranchMissing, HoldfastError, PersonaIneligible
from holdfast.persistence.admission import read_day_limit
from holdfast.persistence.listings import read_money
from holdfast.persistence.statements import now_text
from holdfast.persistence.statistics import read_past_runs
from holdfast.persona import AgentPersona
from holdfast.presentation.format import plural
from holdfast.presentation.status import Note
from holdfast.readiness import Readiness, find_available
from holdfast.workflow import WorkflowTemplate, check_schemas
from holdfast.workspace.repository import Repository, find_dirty_paths, find_repository
from holdfast.workspace.start import find_current_branch, find_start
from holdfast.workspace.transfer.remotes import list_branches as list_remote_branches

router = APIRouter(prefix="/api/runs", tags=["runs"])
_MOST_BRANCHES = 200


class RepositoryPreview(BaseModel):
    path: str
    is_git: bool = Field(description="A folder without git is copied; the run gets a private repository.")
    branches: list[str]
    current_branch: str | None
    uncommitted: list[str] = Field(description="Changes that a run would not see; at most a hundred.")
    found: Note = Field(description="What it is, in words.")
    unseen: str = Field(description="What the run would not see, in words; empty if there is nothing.")


class LimitsPreview(BaseModel):
    budget_usd: float | None = Field(description="The run's limit: the one asked for, or the setting's.")
    day_limit_usd: float | None
    day_left_usd: float | None
    notes: list[Note] = Field(description="What they mean for this run.")


class RunPreview(BaseModel):
    workflow: str
    version: str | None
    repository: RepositoryPreview | None
    roles: list[RolePreview]
    estimate: Estimate | None
    limits: LimitsPreview
    problems: list[FieldProblem]


@dataclass(frozen=True)
class _Inspection:
    """What was read from files and git, off the event loop."""

    repository: RepositoryPreview | None
    template: WorkflowTemplate | None
    roles: list[RolePreview]
    personas: dict[str, AgentPersona]
    problems: list[FieldProblem]
    readiness: Readiness | None = None


@router.post("/preview", responses=WRITE, summary="What starting a run would do")
async def preview(body: StartRun, server: ServerDep, _identity: Operator) -> RunPreview:
    """Take what `POST /api/runs` takes, and start nothing. Everything that would refuse the run is in `problems`."""
    problems: list[FieldProblem] = []
    repo: NamedRepository | None = None
    template: WorkflowTemplate | None = None
    try:
        repo = await server.engines.resolve_repository(body.repo_path)
    except HoldfastError as error:
        problems.append(to_problem("repo_path", error))
    try:
        template = await server.engines.find_workflow(None if repo is None else repo.folder, body.workflow)
    except HoldfastError as error:
        problems.append(to_problem("workflow", error))
    in_thread = asyncio.to_thread if repo is None or repo.folder is not None else in_remote_thread
    inspection = await in_thread(lambda: _inspect(server, body, repo, template))
    if repo is not None and template is not None:
        problems += await _find_missing_trust(server, body, repo.folder, inspection.readiness)
    guess = await _estimate(server, template, inspection.personas, is_simulated=body.simulate)
    return RunPreview(
        workflow=body.workflow,
        version=str(template.version) if template else None,
        repository=inspection.repository,
        roles=inspection.roles,
        estimate=guess,
        limits=await _limits(server, body, guess),
        problems=[*problems, *inspection.problems],
    )


async def _find_missing_trust(
    server: Server, body: StartRun, repo: Path | None, readiness: Readiness | None
) -> list[FieldProblem]:
    """Find what the repository brings along and nobody has agreed to."""
    try:
        await server.engines.check_trust(
            repo,
            body.workflow,
            is_simulated=body.simulate,
            overrides=body.persona_overrides,
            readiness=readiness,
        )
    except PersonaIneligible:
        return []  # told beside its role; until it is known who works, nobody can agree to them
    except HoldfastError as error:
        return [to_problem("repo_path", error)]
    return []


def _inspect(
    server: Server, body: StartRun, named: NamedRepository | None, template: WorkflowTemplate | None
) -> _Inspection:
    problems: list[FieldProblem] = []
    repository = None if named is None else _inspect_repository(named, body.base_branch, server, problems)
    repo = None if named is None else named.folder
    if template is None:
        return _Inspection(repository, None, [], {}, problems)
    catalog = server.engines.catalog(repo)
    try:
        check_schemas(template, catalog.artifact_registry())
    except HoldfastError as error:
        problems.append(to_problem("workflow", error))
    entries = catalog.list_personas()
    readiness = server.engines.readiness(entries, repo)
    available = find_available(is_simulated=body.simulate, readiness=readiness.before_trust(is_blind=True))
    pool = [entry.definition for entry in entries]
    if not body.simulate:
        readiness.ask_servers(pool)
    roles, personas = preview_roles(
        template, pool, body.persona_overrides, consents=open_consents(server.config), available=available
    )
    problems += find_role_problems(template, roles, body.persona_overrides)
    return _Inspection(repository, template, roles, personas, problems, readiness)


def _inspect_repository(
    named: NamedRepository, base_branch: str | None, server: Server, problems: list[FieldProblem]
) -> RepositoryPreview | None:
    path = named.folder
    try:
        if path is None:
            return _inspect_remote(named.name, base_branch, problems)
        repository = find_repository(path)
        if repository is None:
            return _to_repository(path, is_git=False)
        branches = _list_branches(repository)
        try:
            find_start(path, base_branch, data_dir=server.config.data_dir)
        except HoldfastError as error:
            problems.append(to_problem("base_branch", error))
        return _to_repository(
            path,
            branches=branches,
            current_branch=find_current_branch(repository),
            uncommitted=list(find_dirty_paths(repository, data_dir=server.config.data_dir)),
        )
    except HoldfastError as error:
        problems.append(to_problem("repo_path", error))
    except OSError as error:
        problems.append(FieldProblem(field="repo_path", code="workspace_error", message=f"It cannot be read: {error}."))
    return None


def _inspect_remote(url: str, base_branch: str | None, problems: list[FieldProblem]) -> RepositoryPreview:
    branches, current = list_remote_branches(url)
    if branches and (base_branch or current) not in branches:
        message = f"The repository has no branch {base_branch or current!r}."
        problems.append(to_problem("base_branch", BaseBranchMissing(message, branches=branches)))
    return _to_repository(url, branches=branches, current_branch=current)


def _to_repository(
    path: Path | str,
    *,
    is_git: bool = True,
    branches: Sequence[str] = (),
    current_branch: str | None = None,
    uncommitted: Sequence[str] = (),
) -> RepositoryPreview:
    found = Note("idle", "A folder without git: the run works on a copy with a repository of its own.")
    if is_git:
        on = f", on {current_branch}" if current_branch else ""
        words = f"A git repository with {plural(len(branches), 'branch', 'branches')}{on}"
        found = Note("good", words if branches else "A git repository without commits: the run begins from nothing")
    them = "it" if len(uncommitted) == 1 else "them"
    unseen = f"{plural(len(uncommitted), 'change')} not committed: the run does not see {them}" if uncommitted else ""
    return RepositoryPreview(
        path=str(path),
        is_git=is_git,
        branches=list(branches[:_MOST_BRANCHES]),
        current_branch=current_branch,
        uncommitted=list(uncommitted),
        found=found,
        unseen=unseen,
    )


def _list_branches(repository: Repository) -> list[str]:
    """List the branches of people; those that runs left behind would bury them, and can still be typed."""
    names = repository.git.line("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    return [name for name in names if not name.startswith("holdfast/")]


async def _estimate(
    server: Server, template: WorkflowTemplate | None, personas: dict[str, AgentPersona], *, is_simulated: bool
) -> Estimate | None:
    if template is None:
        return None
    past = to_statistics(await read_past_runs(server.db))
    table = await asyncio.to_thread(load_model_table, server.config.config_dir)
    same = next((one for one in past if one.workflow == template.name), None)
    return estimate(template, personas, past=same, table=table, is_simulated=is_simulated)


async def _limits(server: Server, body: StartRun, guess: Estimate | None) -> LimitsPreview:
    config = server.config
    today = now_text()[:10]
    limit, _ = await read_day_limit(server.db, config.day_budget_usd)
    spent = (await read_money(server.db, since_day=today)).by_day.get(today, 0) if limit is not None else 0
    budget = config.run_budget_usd if body.budget_usd is None and not body.simulate else body.budget_usd
    left = None if limit is None else max(0.0, limit - to_usd(spent))
    notes = explain_limits(guess, budget_usd=budget, left_usd=left, day_usd=limit)
    return LimitsPreview(budget_usd=budget, day_limit_usd=limit, day_left_usd=left, notes=notes)
