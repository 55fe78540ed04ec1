"""What a user may name as the store of a flow, and a look into it from beside."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.postgres_server import fresh_schema
from tests.support.stores import start_python

from holdfast.errors import SequenceConflict
from holdfast.runtime.checkpoint import Checkpointer, InMemoryCheckpointer, JSONLCheckpointer, SQLiteCheckpointer
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

FENCED_KINDS = ("path", "sqlite", "postgres")
DISK_KINDS = (*FENCED_KINDS, "jsonl")
KINDS = (*DISK_KINDS, "memory", "own")


class OwnCheckpointer:
    """What a user would write in an afternoon: the seven methods of the contract and nothing else."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._snapshots: dict[str, str] = {}

    def save_event(self, event: Event) -> Event:
        lines = self._lines.setdefault(event.run_id, [])
        last_seq = json.loads(lines[-1])["seq"] if lines else 0
        if event.seq and event.seq <= last_seq:
            raise SequenceConflict(f"{event.seq} is not above {last_seq}")
        lines.append(json.dumps({**event.to_dict(), "seq": event.seq or last_seq + 1}))
        return Event.from_dict(json.loads(lines[-1]))

    def save_snapshot(self, run_id: str, state: RunState) -> None:
        self._snapshots[run_id] = json.dumps(state.to_dict())

    def load_latest(self, run_id: str) -> RunState | None:
        return RunState.from_dict(json.loads(self._snapshots[run_id])) if run_id in self._snapshots else None

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        events = [Event.from_dict(json.loads(line)) for line in self._lines.get(run_id, [])]
        return [event for event in events if event.seq > since_seq]

    def list_runs(self) -> list[str]:
        return list(reversed(self._lines))

    def delete_run(self, run_id: str) -> None:
        self._lines.pop(run_id, None)

    def close(self) -> None:
        pass


def name_store(kind: str, target: str) -> Any:
    """What is handed to `run_flow` as `store`."""
    if kind == "sqlite":
        return SQLiteCheckpointer(target)
    if kind == "jsonl":
        return JSONLCheckpointer(target)
    if kind == "memory":
        return InMemoryCheckpointer()
    return OwnCheckpointer() if kind == "own" else target


@dataclass
class FlowStore:
    """One test's store. `named` is what flows are given; `read` looks past them, on a connection of its own."""

    kind: str
    target: str
    named: Any = None
    _beside: list[Checkpointer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.named = name_store(self.kind, self.target)

    def open_beside(self) -> Checkpointer:
        if self.kind in ("memory", "own", "jsonl"):
            return self.named
        if not self._beside:
            if self.kind == "postgres":
                from holdfast.runtime.checkpoint import PostgresCheckpointer

                self._beside.append(PostgresCheckpointer(self.target))
            else:
                self._beside.append(SQLiteCheckpointer(self.target))
        return self._beside[0]

    def events(self, run_id: str = "r") -> list[Event]:
        return self.open_beside().list_events(run_id)

    def kinds(self, run_id: str = "r") -> list[str]:
        return [str(event.kind) for event in self.events(run_id)]

    def start_process(self, code: str, *args: object) -> "subprocess.Popen[str]":
        """Run `code` in another Python that finds this store as `store`, and `args` as `args`."""
        opening = (
            "import asyncio, os, signal, sys\n"
            "from holdfast import *\nfrom tests.support.flow_stores import name_store\n"
            "args = sys.argv[3:]\nstore = name_store(*sys.argv[1:3])\n"
        )
        return start_python(opening + code, self.kind, self.target, *args)

    def close(self) -> None:
        for store in self._beside:
            store.close()
        if self.kind in ("sqlite", "jsonl", "memory"):
            self.named.close()


@contextlib.contextmanager
def new_flow_store(kind: str, folder: Path, get_server_url: Callable[[], str]) -> Iterator[FlowStore]:
    with contextlib.ExitStack() as stack:
        if kind == "postgres":
            target = stack.enter_context(fresh_schema(get_server_url()))
        else:
            target = str(folder / ("journals" if kind == "jsonl" else "flows.db"))
        store = FlowStore(kind, target)
        stack.callback(store.close)
        yield store
