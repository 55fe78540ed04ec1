"""The command that starts a run."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.completion import complete_role_personas, complete_workflows
from holdfast.cli.options import JSON, YES, get_user, is_interactive
from holdfast.errors import PersonaIneligible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHORT_CHARS = 60


class _Wish(NamedTuple):
    """What the command line asks for."""

    workflow: str
    repo: Path
    options: dict[str, Any]
    is_simulated: bool
    is_yes: bool
    is_json: bool


def run(
    workflow: Annotated[
        str,
        typer.Argument(metavar="WORKFLOW", help="A workflow's name, or a file.", autocompletion=complete_workflows),
    ],
    repo: Annotated[Path, typer.Option("--repo", metavar="PATH", help="The repository, or any folder.")] = Path(),
    base: Annotated[str, typer.Option("--base", metavar="BRANCH", help="The branch to start from.")] = "main",
    requirements: Annotated[str | None, typer.Option("--requirements", metavar="TEXT", help="What is wanted.")] = None,
    requirements_file: Annotated[
        str | None, typer.Option("--requirements-file", metavar="FILE", help="What is wanted; - is standard input.")
    ] = None,
    persona: Annotated[
        list[str] | None,
        typer.Option(
            "--persona",
            metavar="ROLE=NAME",
            help="Who fills a role; can be repeated.",
            autocompletion=complete_role_personas,
        ),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Rehearse with the simulated model; costs nothing.")
    ] = False,
    yes: YES = False,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0, help="Spend no more than this.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it to holdfast serve or a worker.")] = False,
    as_json: JSON = False,
) -> None:
    """Start a workflow on a repository.

    On a terminal you watch it and answer its questions; Ctrl-C pauses it, holdfast resume goes on.

    Example: holdfast run feature-delivery --repo . --requirements "Add a --verbose flag" --simulate
    """
    import asyncio

    options = {
        "base_branch": base,
        "requirements_md": _read_requirements(requirements, requirements_file),
        "persona_overrides": dict(_split(item) for item in persona or ()),
        "budget_usd": budget,
        "started_by": get_user(),
    }
    wish = _Wish(workflow, repo, options, simulate, yes, as_json)
    try:
        code = asyncio.run(_create(wish) if detach else _run(wish))
    except PersonaIneligible as error:
        if missing := error.facts.get("missing"):
            error.hint = f"{_describe_remedy(missing)}\nOr rehearse without: {_rehearsal_command(wish)}"
        raise
    raise typer.Exit(code)


def _describe_remedy(missing: "Sequence[Mapping[str, str]]") -> str:
    """What to do for the first that lacks a key, else for the first."""
    entry = next((entry for entry in missing if entry["finding"] == f"{entry['thing']} is not set"), None)
    remedy = missing[0]["remedy"] if entry is None else f"Set a key: export {entry['thing']}=…"
    return f"{remedy}   Who is ready: holdfast personas list"


def _rehearsal_command(wish: _Wish) -> str:
    words = ["holdfast", "run", wish.workflow, "--repo", str(wish.repo)]
    requirements = wish.options["requirements_md"]
    if requirements and len(requirements) <= _SHORT_CHARS and requirements.isprintable():
        words += ["--requirements", requirements]
    elif requirements:
        return f"{shlex.join(words)} --requirements … --simulate"
    return shlex.join([*words, "--simulate"])


async def _run(wish: _Wish) -> int:
    import asyncio
    import uuid

    from holdfast.cli.output import finish, told_to_wait

    with told_to_wait("starting …"):
        from holdfast.cli.driving import drive
        from holdfast.cli.opening import YesToAll, open_engine

    template, consents, readiness = _prepare(wish)
    callback = YesToAll() if wish.is_yes else None
    opened = open_engine(
        repo=wish.repo,
        is_starting=True,
        is_simulated=wish.is_simulated,
        callback=callback,
        consents=consents,
        readiness=readiness,
    )
    async with opened as (engine, db, _config):
        run_id, interrupted = str(uuid.uuid4()), asyncio.Event()
        result = await drive(
            engine,
            db,
            run_id,
            lambda: engine.run(template, repo_path=wish.repo, pre_allocated_run_id=run_id, **wish.options),
            phase_keys=[phase.key for phase in template.phases],
            can_ask=is_interactive() and not wish.is_json,
            interrupted=interrupted,
        )
        return finish(result, is_json=wish.is_json, is_interrupted=interrupted.is_set())


async def _create(wish: _Wish) -> int:
    from holdfast.cli.opening import open_engine
    from holdfast.cli.output import print_json, say

    template, consents, readiness = _prepare(wish)
    opened = open_engine(
        repo=wish.repo, is_starting=True, is_simulated=wish.is_simulated, consents=consents, readiness=readiness
    )
    async with opened as (engine, _db, _config):
        run_id = await engine.create(template, repo_path=wish.repo, **wish.options)
    if wish.is_json:
        print_json({"run_id": run_id, "state": "pending"})
    say(f"Run {run_id} waits for a holdfast serve or worker.")
    say(f"Watch it: holdfast runs watch {run_id[:8]}   Drive it here: holdfast resume {run_id[:8]}")
    return 0


def _prepare(wish: _Wish) -> tuple[Any, Any, Any]:
    """The template, where consents are found once a person has agreed to what needs it, and who is ready."""
    from holdfast.cli.describing import get_workflow
    from holdfast.cli.output import say
    from holdfast.cli.trusting import agree
    from holdfast.cli.uncommitted import name_uncommitted

    entry = get_workflow(wish.workflow, wish.repo)
    can_ask = is_interactive() and not wish.is_json
    overrides = wish.options["persona_overrides"]
    if named := name_uncommitted(wish.repo):
        say(f"Not committed, so the run does not see it: {named}.")
    consents, readiness = agree(
        wish.repo, entry, overrides, is_simulated=wish.is_simulated, is_yes=wish.is_yes, can_ask=can_ask
    )
    return entry.definition, consents, readiness


def _split(item: str) -> tuple[str, str]:
    role, separator, name = item.partition("=")
    if not separator or not role or not name:
        raise typer.BadParameter(f"It takes ROLE=NAME, not {item!r}.", param_hint="--persona")
    return role, name


def _read_requirements(text: str | None, file: str | None) -> str:
    if text is not None and file is not None:
        raise typer.BadParameter("Give either this or --requirements-file.", param_hint="--requirements")
    if file is None:
        return text or ""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}.", param_hint="--requirements-file") from error
