"""The people around the fleet: they start runs, answer what waits for them, and try again whenever nobody answers."""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
from sqlalchemy.exc import OperationalError
from tests.support.chaos.jobs import PAY
from tests.support.chaos.machines import Fleet
from tests.support.progress_limit import waiting_until

from holdfast.errors import ApprovalNotFound, RunAlreadyTerminal, RunBusy, StoreError
from holdfast.flows.answers import decide
from holdfast.flows.service.handle import get_flow
from holdfast.flows.service.start import start_flow
from holdfast.runtime.checkpoint.base import JournalStore

_AGAIN_S = 0.1
_LOOK_S = 0.25
_PATIENCE_S = 60.0  # with a server that may have died with the request
_OPEN = """
SELECT (SELECT count(*) FROM runs WHERE state NOT IN ('completed', 'failed', 'cancelled'))
     + (SELECT count(*) FROM flow_runs WHERE status NOT IN ('completed', 'failed', 'cancelled'))
"""
_STILL_OPEN = """
WITH still AS (
    SELECT id, state, pause_reason, waits_for FROM runs WHERE state NOT IN ('completed', 'failed', 'cancelled')
    UNION ALL SELECT run_id, status, flow, waits_for FROM flow_runs
    WHERE status NOT IN ('completed', 'failed', 'cancelled')
)
SELECT still.*, (SELECT wake FROM runs WHERE runs.id = still.id), owner, lease_until, clock_timestamp()
FROM still LEFT JOIN journal_runs ON run_id = still.id COLLATE "C"
"""
_LONG_TRANSACTIONS = """
SELECT pid, state, wait_event, xact_start, left(query, 200) FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - interval '10 s'
"""
_HELD = "SELECT count(*) FROM journal_runs WHERE owner IS NOT NULL AND lease_until > clock_timestamp()"
_ASKING = "SELECT run_id, waits_for FROM flow_runs WHERE status = 'paused' AND waits_for <> 'crashing'"
# Three machines in a row were lost with it: that is chance here.
_CRASHING = """
SELECT id FROM runs WHERE state = 'paused' AND pause_reason = 'crashing' AND wake IS NULL
UNION ALL SELECT run_id FROM flow_runs WHERE status = 'paused' AND waits_for = 'crashing' AND wake_at IS NULL
"""


class People:
    """Everybody who has to do with the runs of one database."""

    def __init__(self, fleet: Fleet, store: JournalStore, repo: Path) -> None:
        self.runs: list[str] = []
        self.flows: list[str] = []
        self.seen: list[Mapping[str, Any]] = []
        """What was heard of flows, each followed by itself."""
        self._fleet = fleet
        self._store = store
        self._repo = repo

    async def start(self, number: int, *, is_flow: bool) -> None:
        """Start a flow or a workflow's run. Whoever asks again because of no answer starts no second."""
        if is_flow:
            run_id = str(uuid.uuid4())
            await self.until_done(lambda: start_flow("order", run_id, run_id=run_id, store=self._store))
            self.flows.append(run_id)
            return
        shipper = "ships-ask" if len(self.runs) % 2 else "ships-rerun"
        body = {
            "workflow": "deliver",
            "repo_path": str(self._repo),
            "persona_overrides": {"author": "mine", "shipper": shipper},
        }
        answer = await self.ask("POST", "/api/runs", json=body, headers={"Idempotency-Key": f"chaos-{number}"})
        assert answer.status_code == 202, answer.text
        self.runs.append(str(answer.json()["run_id"]))

    async def answer_all(self, done: asyncio.Event) -> None:
        """Say yes to everything, and resume what was lost with its machines, until there is nothing left to ask."""
        while not done.is_set():
            listed = await self.ask("GET", "/api/approvals?limit=200")
            for item in listed.json()["items"]:
                await self.ask("POST", f"/api/approvals/{item['approval_id']}", json={"action": "approve"})
            for run_id, waits_for in await self.read(_ASKING):
                await self.until_done(lambda run_id=run_id, key=waits_for: self._decide(run_id, key))  # type: ignore[misc]
            for (run_id,) in await self.read(_CRASHING):
                await self.ask("POST", f"/api/runs/{run_id}/resume")
            await asyncio.sleep(_LOOK_S)

    async def _decide(self, run_id: str, key: str) -> None:
        # It may have an answer, or go on with one.
        with contextlib.suppress(ApprovalNotFound, RunAlreadyTerminal, RunBusy):
            await decide(run_id, key, "rerun" if key == PAY else "approve", store=self._store)

    async def follow(self, run_id: str) -> None:
        """Hear of everything in a flow until it is over; after trouble go on behind what was heard last."""
        last = 0
        while True:
            try:
                async for event in get_flow(run_id, store=self._store).events(last):
                    last = event.seq
                    self.seen.append({"run_id": run_id, "seq": last})
                return
            except (StoreError, OperationalError, psycopg.OperationalError):
                await asyncio.sleep(_AGAIN_S)

    async def wait_for_all(self) -> None:
        """Wait until all runs are over; each end is progress."""
        count = await self.count_open()
        while count:
            with waiting_until(self.describe_open):
                while await self.count_open() >= count:
                    await asyncio.sleep(_AGAIN_S)
            count = await self.count_open()

    async def count_open(self) -> int:
        return int((await self.read(_OPEN))[0][0])

    def describe_open(self) -> str:
        """Say of the runs that are not over who has them, and with what their journals end."""
        with psycopg.connect(self._fleet.url) as connection:
            rows = connection.execute(_STILL_OPEN).fetchall()
            sessions = connection.execute(_LONG_TRANSACTIONS).fetchall()
        ends = {row[0]: [(e.seq, e.kind, e.payload) for e in self._store.list_events(row[0])[-4:]] for row in rows}
        listed = [f"{row} {ends[row[0]]}" for row in rows]
        return "\n".join(["all runs are over, but not these:", *listed, f"long transactions: {sessions}"])

    async def count_held(self) -> int:
        """How many runs somebody has. Of one whose owner was killed behind its end the lease ends by itself."""
        return int((await self.read(_HELD))[0][0])

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to the server until it answers; what it says of trouble of its own is no answer."""
        async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
            while True:
                try:
                    answer = await client.request(method, f"{self._fleet.address}{path}", **options)
                    if answer.status_code < 500:
                        return answer
                except httpx.TransportError:
                    pass
                await asyncio.sleep(_AGAIN_S)

    async def read(self, sql: Any) -> list[Any]:
        """Read rows past holdfast."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._fleet.url) as connection:
                    return await (await connection.execute(sql)).fetchall()
            except psycopg.OperationalError:
                await asyncio.sleep(_AGAIN_S)

    async def until_done(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Ask until the database is there to answer."""
        while True:
            try:
                await ask()
                return
            except (StoreError, OperationalError, psycopg.OperationalError):
                await asyncio.sleep(_AGAIN_S)
