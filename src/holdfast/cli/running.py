"""The commands that move a run: run, resume, retry, abort, fork."""

import asyncio
import contextlib
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.errors import ConfigInvalid

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
YES = Annotated[bool, typer.Option("--yes", help="Approve everything.")]
RUN_ID = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")]


def run(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A workflow's name, or a file.")],
    repo: Annotated[Path, typer.Option("--repo", help="The repository, or any folder.")] = Path(),
    base: Annotated[str, typer.Option("--base", help="The branch to start from.")] = "main",
    requirements: Annotated[str | None, typer.Option("--requirements", help="What is wanted.")] = None,
    requirements_file: Annotated[
        str | None, typer.Option("--requirements-file", help="A file that says what is wanted; - is standard input.")
    ] = None,
    persona: Annotated[
        list[str] | None, typer.Option("--persona", metavar="ROLE=NAME", help="Who fills a role.")
    ] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Rehearse with the simulated model.")] = False,
    yes: YES = False,
    budget: Annotated[float | None, typer.Option("--budget", metavar="USD", help="Spend no more than this.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it to holdfast serve or a worker.")] = False,
    as_json: JSON = False,
) -> None:
    """Start a workflow on a repository.

    Example: holdfast run feature-delivery --repo . --requirements "Add a --verbose flag" --simulate
    """
    overrides = dict(_split(item) for item in persona or ())
    wanted = _read_requirements(requirements, requirements_file)
    code = asyncio.run(
        _run(
            workflow,
            repo,
            base=base,
            wanted=wanted,
            overrides=overrides,
            is_simulated=simulate,
            is_yes=yes,
            budget=budget,
            is_detached=detach,
            is_json=as_json,
        )
    )
    raise typer.Exit(code)


async def _run(
    workflow: str,
    repo: Path,
    *,
    base: str,
    wanted: str,
    overrides: dict[str, str],
    is_simulated: bool,
    is_yes: bool,
    budget: float | None,
    is_detached: bool,
    is_json: bool,
) -> int:
    from holdfast.catalog import Catalog
    from holdfast.cli.opening import YesToAll, open_engine
    from holdfast.cli.output import finish, print_json, say
    from holdfast.cli.progress import shown_progress
    from holdfast.config import load_config

    template = Catalog.for_repository(repo, load_config().config_dir).get_workflow(workflow).definition
    callback = YesToAll() if is_yes else None
    async with open_engine(repo=repo, is_simulated=is_simulated, callback=callback) as (engine, db, _config):
        run_id = str(uuid.uuid4())
        options: dict[str, Any] = {
            "repo_path": repo,
            "base_branch": base,
            "requirements_md": wanted,
            "pre_allocated_run_id": run_id,
            "persona_overrides": overrides,
            "budget_usd": budget,
            "started_by": _user(),
        }
        if is_detached:
            await engine.create(template, **options)
            if is_json:
                print_json({"run_id": run_id, "state": "pending"})
            say(f"Run {run_id} waits for a holdfast serve or worker. Drive it here: holdfast resume {run_id[:8]}")
            return 0
        say(f"run {run_id}")
        async with shown_progress(db, run_id):
            result = await engine.run(template, **options)
        return finish(result, is_json=is_json)


def resume(run_id: RUN_ID, yes: YES = False, as_json: JSON = False) -> None:
    """Go on with a run that was interrupted, or that waited for you.

    Example: holdfast resume 3f2a
    """
    _move(run_id, "resume", is_yes=yes, is_json=as_json)


def retry(run_id: RUN_ID, yes: YES = False, as_json: JSON = False) -> None:
    """Open a failed run again at the phase that failed.

    Example: holdfast retry 3f2a
    """
    _move(run_id, "retry", is_yes=yes, is_json=as_json)


def abort(
    run_id: RUN_ID,
    reason: Annotated[str, typer.Option("--reason", help="Why; it stands in the report.")] = "",
    as_json: JSON = False,
) -> None:
    """End a run for good; what it made is kept.

    Example: holdfast abort 3f2a --reason "wrong repository"
    """
    _move(run_id, "abort", is_json=as_json, is_success_if="cancelled", reason=reason, by=_user())


def fork(
    run_id: RUN_ID,
    phase: Annotated[str, typer.Argument(metavar="PHASE", help="The phase to begin with.")],
    yes: YES = False,
    as_json: JSON = False,
) -> None:
    """Start a new run from where another stood before a phase, files included.

    Example: holdfast fork 3f2a implement
    """
    _move(run_id, "fork", phase, is_yes=yes, is_json=as_json, started_by=_user())


def _move(
    given: str, verb: str, *args: str, is_json: bool, is_yes: bool = False, is_success_if: str = "", **options: Any
) -> None:
    from holdfast.cli.reading import find_run_id

    raise typer.Exit(
        asyncio.run(
            _do(
                find_run_id(given),
                verb,
                *args,
                is_json=is_json,
                is_yes=is_yes,
                is_success_if=is_success_if,
                **options,
            )
        )
    )


async def _do(
    run_id: str, verb: str, *args: str, is_json: bool, is_yes: bool, is_success_if: str, **options: Any
) -> int:
    from holdfast.cli.opening import YesToAll, open_engine
    from holdfast.cli.output import finish
    from holdfast.cli.progress import shown_progress

    callback = YesToAll() if is_yes else None
    repo = _repository_of(run_id)
    async with open_engine(repo=repo, callback=callback) as (engine, db, _config):
        head = db.store.read_heads([run_id]).get(run_id, 0)
        is_shown = verb in ("resume", "retry", "abort")
        async with shown_progress(db, run_id, after=head) if is_shown else contextlib.nullcontext():
            result = await getattr(engine, verb)(run_id, *args, **options)
        code = finish(result, is_json=is_json)
        return 0 if result.state.value == is_success_if else code


def _repository_of(run_id: str) -> Path | None:
    from holdfast.cli.reading import query

    rows = query("SELECT repo_path FROM runs WHERE id = :id", {"id": run_id})
    return Path(rows[0]["repo_path"]) if rows else None


def _split(item: str) -> tuple[str, str]:
    role, separator, name = item.partition("=")
    if not separator or not role or not name:
        raise ConfigInvalid(f"--persona takes ROLE=NAME, not {item!r}.", key="--persona")
    return role, name


def _read_requirements(text: str | None, file: str | None) -> str:
    if text is not None and file is not None:
        raise ConfigInvalid("Give either --requirements or --requirements-file.", key="--requirements")
    if file is None:
        return text or ""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{file} cannot be read: {error}.", key="--requirements-file") from error


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
