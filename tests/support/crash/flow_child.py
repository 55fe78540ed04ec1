"""The program that dies: one flow with everything in it, on one store, with a trap at one of its crash points.

A point is named after what happens there ("append:step.completed@plan:before"), so that lanes may interleave as they
like; the second time it is passed in the life of the run it is called "…~2". Every point passed is written to a trace
that outlives the process.
"""

import asyncio
import functools
import json
import os
import signal
import sqlite3
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import psycopg
from tests.support.crash.full_disk import fill_disk
from tests.support.crash.sent_batches import watch_pipelines
from tests.support.stores import open_store

from holdfast import Context, Done, HoldfastError, NotDone, decide, run_flow, step_key
from holdfast.runtime.checkpoint import Checkpointer
from holdfast.runtime.checkpoint.base import Append
from holdfast.runtime.checkpoint.jsonl import run_file
from holdfast.runtime.checkpoint.postgres.pipeline import PostgresPipeline
from holdfast.runtime.events import Event

RUN_ID = "trip"
BIG_CHARS = 100_000
EFFECTS, TRACE, ERRORS = "effects", "trace", "stderr"


@dataclass(frozen=True)
class Job:
    """What one process is to do, and where it is to come to grief: at a named point, or at a line of the trace."""

    kind: str
    target: str
    folder: str
    trap: str | int | None = None
    action: Literal["kill", "stop", "full"] = "kill"
    answer: tuple[str, str, Any] | None = None
    """Key, action and result to decide; the flow is run if there is none."""
    program: Literal["trip", "errand", "cancelled", "served", "plain", "mended"] = "trip"

    @property
    def path(self) -> Path:
        return Path(self.folder)


class Trace:
    """The points this run has passed, over all its processes. Springs the trap."""

    def __init__(self, job: Job) -> None:
        self._job = job
        passed = read_lines(job.path / TRACE)
        self._count = len(passed)
        self._times = Counter(name.partition("~")[0] for name in passed)
        self._fd = os.open(job.path / TRACE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock = threading.Lock()  # a journal appends on the loop or in its writer's thread

    def at(self, name: str) -> None:
        with self._lock:
            self._times[name] += 1
            self._count += 1
            label = name if self._times[name] == 1 else f"{name}~{self._times[name]}"
            os.write(self._fd, f"{label}\n".encode())
            if self._job.trap in (label, self._count):
                self._spring()

    def _spring(self) -> None:
        if self._job.action == "full":
            fill_disk(self._job.target)
        elif self._job.action == "stop":
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # else another thread stops first, we go on
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# -- watching a store -------------------------------------------------------------------------------------------------


class Watch:
    """Makes points of what a store does: before, inside (written in part, or written and not committed) and after."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._now = threading.local()

    def wrap(self, store: Any) -> Checkpointer:
        if hasattr(store, "claim_many"):
            store.append = self._wrapped(store.append, _names_of_batch)
            store.claim_many = self._wrapped(store.claim_many, lambda _run_ids: ["claim"])
            store.release_many = self._wrapped(store.release_many, lambda _claims: ["release"])
            watch_pipelines(store, self._before_sending, lambda batch: self._pass(_names_of_batch(batch), "after"))
        else:
            store.save_event = self._wrapped(store.save_event, lambda event: [_name(event)])
        return store

    def _wrapped(self, work: Callable[..., Any], to_names: Callable[[Any], list[str]]) -> Callable[..., Any]:
        @functools.wraps(work)
        def watched(what: Any, **options: Any) -> Any:
            names = to_names(what)
            self._pass(names, "before")
            self._now.names = names
            try:
                result = work(what, **options)
            finally:
                self._now.names = []
            self._pass(names, "after")
            return result

        return watched

    def _before_sending(self, batch: Sequence[Append]) -> None:
        self._now.names = _names_of_batch(batch)
        self._pass(self._now.names, "before")

    def _pass(self, names: Sequence[str], when: str) -> None:
        for name in names:
            self._trace.at(f"{name}:{when}")

    def inside(self) -> None:
        names, self._now.names = getattr(self._now, "names", []), []
        self._pass(names, "inside")

    def look_inside(self) -> None:
        """Make points of COMMIT and of the middle of a line of JSONL, until the end of the process."""
        watch = self

        class WatchedSQLite(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                if sql == "COMMIT":
                    watch.inside()
                return super().execute(sql, *args)

        execute, write_all, commit = psycopg.Connection.execute, run_file.write_all, PostgresPipeline._commit

        def watched_execute(connection: Any, query: Any, *args: Any, **options: Any) -> Any:
            if query == "COMMIT":
                watch.inside()
            return execute(connection, query, *args, **options)

        def watched_commit(pipeline: PostgresPipeline) -> None:
            watch.inside()
            commit(pipeline)

        def write_in_two(fd: int, text: bytes, offset: int) -> None:
            half = len(text) // 2
            write_all(fd, text[:half], offset)
            watch.inside()
            write_all(fd, text[half:], offset + half)

        sqlite3.connect = functools.partial(sqlite3.connect, factory=WatchedSQLite)
        psycopg.Connection.execute = watched_execute
        PostgresPipeline._commit = watched_commit
        run_file.write_all = write_in_two


def _names_of_batch(batch: Sequence[Append]) -> list[str]:
    return [_name(prepared.event) for append in batch for prepared in append.events]


def _name(event: Event) -> str:
    key = event.payload.get("key")
    return f"append:{event.kind}@{key}" if key else f"append:{event.kind}"


# -- the flow ---------------------------------------------------------------------------------------------------------


class Trip:
    """A flow with steps in sequence and in lanes, retries, a caught failure, a sleep, an approval and every policy."""

    def __init__(self, job: Job, trace: Trace, store: Checkpointer) -> None:
        self._effects = job.path / EFFECTS
        self._trace = trace
        self._store = store

    async def flow(self, ctx: Context, days: int) -> dict[str, Any]:
        plan = await ctx.step("plan", self.act, days)
        big = await ctx.step("big", self.act_big)
        lanes = await ctx.gather(
            self._two_steps(ctx),
            ctx.step("flaky", self.act_at_second_try, retries=2, backoff_s=0.01),
            self._nested(ctx),
            ctx.step("charge", self.act, "ask", on_unknown="ask"),
        )
        try:
            await ctx.step("refuse", self.act_and_fail)
            refusal = ""
        except ValueError as error:
            refusal = str(error)
        await ctx.sleep(0.02)
        order = await ctx.step("order", self.act, "fail", on_unknown="fail")
        decision = await ctx.approval("gate", show={"plan": plan})
        ship = await ctx.step("ship", self.act, "reconcile", on_unknown=self.reconcile)
        thanks = await ctx.step("thank", self.act, days)
        return {"steps": [plan, len(big), lanes, refusal, order, ship, thanks], "decision": decision}

    async def _two_steps(self, ctx: Context) -> list[str]:
        return [await ctx.step("pack", self.act, 1), await ctx.step("pack", self.act, 2)]

    async def _nested(self, ctx: Context) -> list[Any]:
        start = await ctx.step("near", self.act, 0)
        return [
            start,
            *await ctx.gather(
                ctx.step("fetch", self.act, "reconcile", on_unknown=self.reconcile),
                ctx.step("book", self.act, "fail", on_unknown="fail"),
                ctx.step("note", self.act, 3),
            ),
        ]

    async def act(self, what: object) -> str:
        await asyncio.sleep(0)
        return self._happen(f"{what} done")

    def act_big(self) -> str:
        self._happen("big")
        return "x" * BIG_CHARS

    def act_and_fail(self) -> None:
        self._happen("refused")
        raise ValueError("no way")

    def act_at_second_try(self) -> str:
        """Fail until a failure is on record: what is tried again after a kill fails again, as it did before."""
        result = self._happen("flaky done")
        recorded = {(event.kind, event.payload.get("key")) for event in self._store.list_events(RUN_ID)}
        if ("step.failed", _key()) not in recorded:
            raise ConnectionError("not yet")
        return result

    async def reconcile(self, key: str) -> Done | NotDone:
        results = [line["result"] for line in map(json.loads, read_lines(self._effects)) if line["key"] == key]
        return Done(results[0]) if results else NotDone()

    def _happen(self, result: str) -> str:
        """The side effect of a step, which nobody can take back."""
        return happen(self._effects, self._trace, result)


def happen(effects: Path, trace: Trace, result: str) -> str:
    """Do something that a step does and nobody can take back: a line in a file."""
    trace.at(f"effect:{_key()}:before")
    line = json.dumps({"key": step_key(), "result": result}) + "\n"
    fd = os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, line.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    trace.at(f"effect:{_key()}:after")
    return result


def _key() -> str:
    return step_key().removeprefix(f"{RUN_ID}:")


# -- the process ------------------------------------------------------------------------------------------------------


def main(job: Job, outcome: Connection) -> None:
    """Do a job and report its result, or the error it ended with. A process that is killed reports nothing."""
    warnings.simplefilter("error")
    os.dup2(os.open(job.path / ERRORS, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    try:
        outcome.send({"result": _work(job)})
    except HoldfastError as error:
        outcome.send({"code": error.code, "keys": error.facts.get("keys") or [error.facts.get("key")]})
    except BaseException:
        traceback.print_exc()
        raise


def _work(job: Job) -> Any:
    trace = Trace(job)
    watch = Watch(trace)
    watch.look_inside()
    store = watch.wrap(open_store(job.kind, job.target))
    if job.answer is not None:
        key, action, result = job.answer
        return asyncio.run(decide(RUN_ID, key, action, result=result, store=store, by="ann"))
    if job.program != "trip":
        from tests.support.crash import operations

        return asyncio.run(operations.run(job, trace, store))
    trip = Trip(job, trace, store)
    return asyncio.run(run_flow(trip.flow, 7, run_id=RUN_ID, store=store))
