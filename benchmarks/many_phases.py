"""What a full database costs: a run is resumed, and runs are listed, among few phases and among many.

The runs around it are rows and journals like any other's, four phases each. Both databases are asked by turns and by
processor time, git's included: machines differ from minute to minute, and the wall clock of a busy one says little.
`python -m benchmarks.many_phases` measures it alone.
"""

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.measure import Place, Reading, reading
from holdfast import engine as engine_module
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability
from holdfast.config import load_config
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import Backend
from holdfast.persistence.db import Database
from holdfast.persistence.listings import RunFilter, list_due, list_page
from holdfast.persistence.statements import insert
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Append, Statement, prepare
from holdfast.runtime.events import create_event
from holdfast.workflow import WorkflowTemplate

SMALL = 100
PHASES_PER_RUN = 4
EVENTS_PER_RUN = 24
RESUMED = "00000000-0000-4000-8000-000000000001"
TARGET = 1.3
_ROUNDS = {"resume": 21, "list": 101, "due": 101}
_WARM_UP = 3


def fill(place: Place) -> Reading:
    with reading() as found:
        for name, phases in (("small", SMALL), ("big", place.steps)):
            asyncio.run(_fill(place.folder / name, phases))
    return found


def resume_and_list(place: Place) -> Reading:
    """Medians of each question to each database, by turns."""
    times = asyncio.run(_measure(place.folder))
    medians = {name: statistics.median(taken[_WARM_UP:]) for name, taken in times.items()}
    return Reading(medians["resume_big_s"], extra=medians)


async def _fill(folder: Path, phases: int) -> None:
    (folder / "repo").mkdir(parents=True)
    (folder / "repo" / "app.py").write_text("print('hello')\n")
    git = ["git", "-C", str(folder / "repo"), "-c", "user.name=Bench", "-c", "user.email=bench@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    db, engine = _open(folder)
    await db.init_schema()
    result = await engine.run(_template(), repo_path=folder / "repo", pre_allocated_run_id=RESUMED)
    assert result.state == "paused", result.error
    for start in range(0, phases // PHASES_PER_RUN, 100):
        numbers = range(start, min(start + 100, phases // PHASES_PER_RUN))
        db.store.append([_past_run(number) for number in numbers])
    await db.dispose()


def _past_run(number: int) -> Append:
    """A completed run of the same workflow: its journal and its rows."""
    run_id = f"{number:08x}-0000-4000-8000-000000000000"
    at = f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
    created = {"workflow": "bench", "budget_micros": None}
    events = [create_event(run_id, "run.created", **created), create_event(run_id, "run.started")]
    for step in range(EVENTS_PER_RUN - 3):
        payload = {"key": f"p{step % 4}/1/m{step}", "result": {"text": "What a model or a tool said. " * 4}}
        events.append(create_event(run_id, "tool.result", f"p{step % 4}/1", **payload))
    events.append(create_event(run_id, "run.completed"))
    run = Statement(
        "INSERT INTO runs (id, template_id, template_hash, state, workflow, created_at, updated_at) "
        "SELECT :id, id, hash, 'completed', name, :at, :at FROM workflow_templates",
        {"id": run_id, "at": at},
    )
    rows = [run, insert("ledger", {"id": run_id, "run_id": run_id, "amount_micros": 1000, "day": at[:10]})]
    for place in range(PHASES_PER_RUN):
        phase = {"run_id": run_id, "phase_key": f"p{place}", "state": "completed", "position": place, "attempt": 1}
        rows.append(insert("run_phases", phase))
    return Append(run_id, [prepare(event) for event in events], None, rows)


async def _measure(folder: Path) -> dict[str, list[float]]:
    opened = {name: _open(folder / name) for name in ("small", "big")}
    times: dict[str, list[float]] = {}
    for question, rounds in _ROUNDS.items():
        for number in range(rounds):
            for name in ("small", "big") if number % 2 else ("big", "small"):
                ask = _questions(*opened[name])[question]
                started = _processor_s()
                await ask()
                times.setdefault(f"{question}_{name}_s", []).append(_processor_s() - started)
    for db, _ in opened.values():
        await db.dispose()
    return times


def _processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _questions(db: Database, engine: WorkflowEngine) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "resume": lambda: engine.resume(RESUMED),  # it waits for an approval, so that it can be resumed again
        "list": lambda: list_page(db, RunFilter(), limit=20),
        "due": lambda: list_due(db),
    }


def _open(folder: Path) -> tuple[Database, WorkflowEngine]:
    engine_module.build_agent = _build_agent  # type: ignore[assignment]  # it uses less of what it is given
    db = Database(f"sqlite+aiosqlite:///{folder}/holdfast.db")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "artifacts" / "note@1.json").write_text(json.dumps(schema))
    persona = {"name": "writer", "version": 1, "backend": "simulated", "model": "m", "capabilities": ["spec_write"]}
    made = WorkflowEngine(
        db=db,
        config=load_config(data_dir=folder, database_url=f"sqlite+aiosqlite:///{folder}/holdfast.db"),
        persona_pool=[AgentPersona.model_validate(persona)],
        artifact_registry=ArtifactSchemaRegistry(roots=[folder / "artifacts"]),
        available_backends=BackendAvailability(available_backends=frozenset({Backend.SIMULATED})),
    )
    return db, made


def _build_agent(_persona: Any, _config: Any, *, root_dir: Path, **_: Any) -> Any:
    async def ainvoke(_state: Any, **_: Any) -> dict[str, Any]:
        (root_dir / "note.json").write_text("{}")
        return {"messages": []}

    return SimpleNamespace(ainvoke=ainvoke)


def _template() -> WorkflowTemplate:
    phase = {
        "key": "note",
        "title": "A note",
        "risk": "high",
        "role": "author",
        "instructions": "Write a note.",
        "expected_artifact": {"path": "note.json", "schema": "note@1"},
    }
    return WorkflowTemplate.model_validate(
        {"name": "bench", "version": 1, "roles": [{"id": "author"}], "phases": [phase]}
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), "", 10_000)
        print(f"filled in {fill(place).wall_s:.1f} s")
        extra = resume_and_list(place).extra
    is_met = True
    for question in _ROUNDS:
        small, big = extra[f"{question}_small_s"], extra[f"{question}_big_s"]
        is_met &= big / small <= TARGET
        times = f"{small * 1000:7.2f} ms among {SMALL} phases, {big * 1000:7.2f} ms among 10,000"
        print(f"{question:<7} {times}: {big / small:.2f} × (at most {TARGET} ×)")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
