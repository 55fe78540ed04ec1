"""A run that goes on until it is done, in a process that dies at a given point.

The workflow has everything that can be cut in two: set-up, two reading phases side by side, a writing one with a check,
an approval and a budget, all done by the simulated model through the real agent framework.
"""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.crash.sent_batches import watch_pipelines
from tests.support.engine_world import CATALOG, personas

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability
from holdfast.config import load_config
from holdfast.engine import WorkflowEngine
from holdfast.engine.conversation.journal import message_event, to_phase_message
from holdfast.engine.phase import attempt, commands, person_messages
from holdfast.engine.phase import commands as engine_commands
from holdfast.engine.run import base_files, carrier, stop, workspace
from holdfast.enums import Backend, RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.runs import find_run, read_approvals
from holdfast.workflow import WorkflowTemplate

RUN_ID = "5eed0000-0000-4000-8000-000000000001"
REQUIREMENTS = "Add a hat."
"""Words so short that nobody searches for them: a search would find what a phase beside it has written, or not yet."""
WORDS = "Mind the hat's size."
_EFFECT = "echo {} >> $HOME/effects"


def workflow() -> WorkflowTemplate:
    def make(key: str, **options: Any) -> dict[str, Any]:
        return {
            "key": key,
            "title": f"The {key}",
            "risk": "low",
            "role": "author",
            "instructions": "Do what is wanted.",
            "expected_artifact": {"path": f"out/{key}.json", "schema": "dev/spec@1"},
            **options,
        }

    return WorkflowTemplate.model_validate(
        {
            "name": "killed",
            "version": 1,
            "roles": [{"id": "author", "required_capabilities": ["spec_write"]}],
            "setup": [["sh", "-c", _EFFECT.format("set-up")]],
            "sandbox": False,  # effects are counted outside of the worktree
            "phases": [
                make("outline"),
                make("style", needs=["outline"], read_only=True),
                make("proof", needs=["outline"], read_only=True),
                make(
                    "build",
                    needs=["style", "proof"],
                    risk="high",
                    budget_usd=2,
                    checks=[["sh", "-c", _EFFECT.format("check")]],
                ),
            ],
        }
    )


class Points:
    """Counts the places where dying could matter, over the threads of one process, and dies at one of them.

    It is named by its number, or by its name and how often that came: `after write:2`.
    """

    def __init__(self, dies_at: int | str | None) -> None:
        self._dies_at = dies_at
        self._lock = threading.Lock()
        self.names: list[str] = []

    def pass_by(self, name: str) -> None:
        with self._lock:
            self.names.append(name)
            if self._dies_at in (len(self.names) - 1, f"{name}:{self.names.count(name)}"):
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, to_label: Callable[..., str] | None = None) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            label = to_label(*args) if to_label else name
            self.pass_by(f"before {label}")
            result = original(*args, **kwargs)
            self.pass_by(f"after {label}")
            return result

        setattr(owner, name, wrapped)

    def around_async(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.pass_by(f"before {name}")
            result = await original(*args, **kwargs)
            self.pass_by(f"after {name}")
            return result

        setattr(owner, name, wrapped)


def watch(points: Points, db: Database) -> None:
    from holdfast.agents.tools.files import WholeFileBackend

    points.around(db.store, "append", _name_append)
    watch_pipelines(
        db.store,
        before=lambda batch: points.pass_by(f"before {_name_append(batch)}"),
        after=lambda batch: points.pass_by(f"after {_name_append(batch)}"),
    )
    points.around(db.store, "claim_many", lambda *_args: "claim")
    for tool in ("write", "edit"):
        points.around(WholeFileBackend, tool)
    points.around(workspace, "prepare_workspace")
    points.around(commands, "snapshot")
    points.around(attempt, "move_aside")
    points.around(attempt, "write_tree")
    points.around(attempt, "check_artifact")
    points.around_async(engine_commands, "run_spooled")
    points.around(carrier, "make_pack")
    points.around(base_files, "make_base_pack")
    points.around_async(person_messages.PhaseMessages, "read_waiting")
    points.around_async(stop, "write_report")


def _name_append(batch: Any) -> str:
    kinds = [str(prepared.event.kind) for append in batch for prepared in append.events]
    return "+".join(kinds) or f"rows of {batch[0].run_id}"


async def go_on_carried(url: str, folder: Path, dies_at: int | str | None) -> dict[str, Any]:
    """The same with files that travel, and a message to the last phase, which waits there from the beginning.

    Even a small base has so many parts that they are written in several transactions.
    """
    base_files.PART_BYTES = 16
    return await go_on(url, folder, dies_at, is_carried=True)


async def go_on(url: str, folder: Path, dies_at: int | str | None, *, is_carried: bool = False) -> dict[str, Any]:
    """Start the run, or go on with it, until it is over; a person who is asked approves."""
    os.environ["HOME"] = str(folder)
    points = Points(dies_at)
    db = Database(url)
    watch(points, db)
    engine = WorkflowEngine(
        db=db,
        config=load_config(data_dir=folder / "data", **({"carry_files": True} if is_carried else {})),
        persona_pool=personas(),
        artifact_registry=ArtifactSchemaRegistry(roots=[CATALOG / "artifacts"]),
        available_backends=BackendAvailability(available_backends=frozenset({Backend.SIMULATED})),
    )
    state = await _state(db)
    while state is None or not RunStatus(state).is_terminal:
        if state is None:
            options: dict[str, Any] = {"requirements_md": REQUIREMENTS, "budget_usd": 5}
            start = engine.create if is_carried else engine.run
            message = to_phase_message(message_event(RUN_ID, WORDS, by="ann"), "build")
            then = {"then": [message]} if is_carried else {}
            await start(workflow(), repo_path=folder / "repo", pre_allocated_run_id=RUN_ID, **options, **then)
        else:
            # Asked, and killed before it paused: a person who answered then would spare the run its pause.
            is_waiting = state == RunStatus.PAUSED
            for approval in await read_approvals(db, run_id=RUN_ID, state="pending") if is_waiting else ():
                await engine.decide(RUN_ID, approval.id, "approve", by="ann")
            await engine.resume(RUN_ID)
        state = await _state(db)
    await db.dispose()
    return {"state": state, "points": points.names}


async def _state(db: Database) -> str | None:
    stored = await find_run(db, RUN_ID)
    return stored.run.state if stored else None
