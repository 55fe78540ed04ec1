"""The command crashtest: a workflow of the user's own, killed at one step after the other and resumed each time."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.output import print_json, print_text, say, waiting_notice
from holdfast.enums import RunStatus
from holdfast.errors import AgentFailed
from holdfast.runtime.events import Event, EventKind

_DEFAULT_POINTS = 5
# What a step leaves once it is done. Requests and starts may be there twice: of the call that was cut off, too.
_RESULTS = (
    EventKind.MODEL_RESPONSE,
    EventKind.TOOL_RESULT,
    EventKind.STEP_COMPLETED,
    EventKind.ARTIFACT_ACCEPTED,
    EventKind.PHASE_COMPLETED,
    EventKind.RUN_COMPLETED,
)


@dataclass(frozen=True)
class _FinishedRun:
    """What a run has come to, as far as a kill must not change it."""

    run_id: str
    state: str
    results: Counter[tuple[str, str, str]]
    numbers: tuple[int, ...]
    change: str


def crashtest(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A name, or a file.")],
    repo: Annotated[Path, typer.Option("--repo", metavar="PATH", help="The repository; it is not changed.")] = Path(),
    requirements: Annotated[
        str, typer.Option("--requirements", metavar="TEXT", help="What is wanted.")
    ] = "A rehearsal of the workflow.",
    points: Annotated[
        int, typer.Option("--points", metavar="N", min=1, help="How many kills, spread over the run.")
    ] = _DEFAULT_POINTS,
    all_points: Annotated[bool, typer.Option("--all", help="Kill at every moment of every step; takes long.")] = False,
    as_json: JSON = False,
) -> None:
    """Kill a workflow with the simulated model again and again, resume it, and compare.

    The workflow runs once undisturbed. Then it runs once for each kill: its process dies by SIGKILL before a step, in
    the middle of it, or right after its result was recorded, and a new process goes on. Each of these runs must end as
    the undisturbed one: the same results, none of them twice, no gap in the journal, the same change of the files.

    Everything happens in a folder of its own below the data folder, and is deleted at the end. Exit code 1 if a kill
    has changed anything.

    Example: holdfast crashtest feature-delivery --repo . --points 10
    """
    import shutil
    import uuid

    from holdfast.config import load_config
    from holdfast.runtime.checkpoint.private_files import make_private_folder

    place = load_config().data_dir / "scratch" / f"crashtest-{uuid.uuid4().hex[:8]}"
    make_private_folder(place)
    start = ("run", workflow, "--repo", str(repo), "--requirements", requirements, "--simulate", "--yes", "--json")
    try:
        with waiting_notice("running it undisturbed …"):
            reference, count = _run_undisturbed(place / "undisturbed", start)
        found = []
        for point in _choose(count, count if all_points else points):
            found.append(_crash(place / str(point), start, point, reference))
            if not as_json:
                _print_kill(found[-1])
    finally:
        shutil.rmtree(place, ignore_errors=True)
    failed = [kill for kill in found if kill["problems"]]
    if as_json:
        print_json({"ok": not failed, "moments": count, "kills": found})
    else:
        print_text(f"{'✕' if failed else '✓'} {len(found)} kills of {count} moments, {len(failed)} changed the outcome")
    raise typer.Exit(1 if failed else 0)


def _choose(count: int, most: int) -> list[int]:
    """Spread so many points over moments 1 to `count`, the first and the last among them."""
    if most >= count:
        return list(range(1, count + 1))
    return sorted({1 + round(index * (count - 1) / max(1, most - 1)) for index in range(most)})


def _run_undisturbed(folder: Path, start: Sequence[str]) -> tuple[_FinishedRun, int]:
    log = folder.with_suffix(".moments")
    done = _call(folder, [sys.executable, "-m", "holdfast.cli.crash_process", "0", str(log), *start])
    outcome = _read_outcome(folder)
    _forget(folder, outcome)
    if done.returncode != 0 or outcome is None:
        raise AgentFailed(
            f"The workflow does not end well even undisturbed (exit code {done.returncode}): "
            f"{(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}",
            hint="Try it first: holdfast run WORKFLOW --simulate --yes",
        )
    return outcome, int(log.read_text())


def _crash(folder: Path, start: Sequence[str], point: int, reference: _FinishedRun) -> dict[str, Any]:
    log = folder.with_suffix(".moments")
    _call(folder, [sys.executable, "-m", "holdfast.cli.crash_process", str(point), str(log), *start])
    moment = log.read_text()
    problems = ["the run is gone"]
    if events := _read_events(folder):
        resumed = _call(folder, _command("resume", events[0].run_id, "--yes", "--json"))
        outcome = _read_outcome(folder)
        if outcome is not None:
            problems = list(_compare(reference, outcome))
        if problems:
            problems += resumed.stderr.strip().splitlines()[-1:]
        _forget(folder, outcome)
    return {"point": point, "moment": moment, "problems": problems}


def _compare(expected: _FinishedRun, found: _FinishedRun) -> Iterator[str]:
    if found.state != expected.state:
        yield f"the run is {found.state}, not {expected.state}"
    for kind, lane, key in sorted(found.results - expected.results):
        yield f"{kind} of {key or lane} is there once too often"
    for kind, lane, key in sorted(expected.results - found.results):
        yield f"{kind} of {key or lane} is missing"
    if found.numbers != tuple(range(1, len(found.numbers) + 1)):
        yield "the numbers of the events have a gap"
    if found.change != expected.change:
        yield "the files were changed in another way"


def _read_outcome(folder: Path) -> _FinishedRun | None:
    from holdfast.runtime.state import fold

    events = _read_events(folder)
    if not events:
        return None
    run_id, state = events[0].run_id, fold(events)
    results = Counter(
        (str(event.kind), event.lane_id, str(event.payload.get("key", "")))
        for event in events
        if event.kind in _RESULTS
    )
    change = _call(folder, _command("runs", "diff", run_id)).stdout
    return _FinishedRun(
        run_id, str(state.status if state else ""), results, tuple(event.seq for event in events), change
    )


def _read_events(folder: Path) -> list[Event]:
    """Return the events of the one run that the folder has; none if it has not come so far."""
    from holdfast.runtime.checkpoint import SQLiteCheckpointer

    file = folder / "holdfast.db"
    if not file.exists():
        return []
    store = SQLiteCheckpointer(file)
    try:
        journals = [store.list_events(run_id) for run_id in store.list_runs()]
    finally:
        store.close()
    return next((events for events in journals if events and events[0].kind == EventKind.RUN_CREATED), [])


def _forget(folder: Path, outcome: _FinishedRun | None) -> None:
    """Take the run's refs and its worktree out of the repository, which is the user's own."""
    if outcome is None:
        return
    if outcome.state != RunStatus.COMPLETED:
        _call(folder, _command("abort", outcome.run_id))
    _call(folder, _command("runs", "rm", outcome.run_id, "--yes", "--unmerged"))


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *arguments]


def _call(folder: Path, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Call a command with a data folder and a database of its own, whichever the settings name."""
    environment = {
        **os.environ,
        "HOLDFAST_DATA_DIR": str(folder),
        "HOLDFAST_DATABASE_URL": f"sqlite+aiosqlite:///{folder}/holdfast.db",
    }
    return subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _print_kill(kill: dict[str, Any]) -> None:
    print_text(f"{'✕' if kill['problems'] else '✓'} killed {kill['moment']}")
    for problem in kill["problems"]:
        say(f"    {problem}")
