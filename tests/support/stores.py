"""Every kind of store at a place from which it can be opened again, in this process or in another one."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.postgres_server import fresh_schema

from holdfast.runtime.checkpoint import Checkpointer, InMemoryCheckpointer, JSONLCheckpointer, SQLiteCheckpointer
from holdfast.runtime.events import Event, EventKind, create_event

ROOT = Path(__file__).parents[2]
DISK_KINDS = ("jsonl", "sqlite", "postgres")
KINDS = ("memory", *DISK_KINDS)


def open_store(kind: str, target: str) -> Checkpointer:
    if kind == "jsonl":
        return JSONLCheckpointer(target)
    if kind == "sqlite":
        return SQLiteCheckpointer(target)
    if kind == "postgres":
        from holdfast.runtime.checkpoint import PostgresCheckpointer

        return PostgresCheckpointer(target)
    return InMemoryCheckpointer()


@dataclass
class Place:
    """Where one test's store lives. A store in memory cannot be left, so opening it again gives the same one."""

    kind: str
    target: str
    _opened: list[Checkpointer] = field(default_factory=list)

    def open(self) -> Checkpointer:
        if self.kind == "memory" and self._opened:
            return self._opened[0]
        self._opened.append(open_store(self.kind, self.target))
        return self._opened[-1]

    def reopen(self) -> Checkpointer:
        self.close()
        return self.open()

    def close(self) -> None:
        for store in self._opened:
            store.close()
        if self.kind != "memory":
            self._opened.clear()

    def start_process(self, code: str, *args: object, **options: Any) -> "subprocess.Popen[str]":
        """Run `code` in another Python that finds this place's open store as `store`, and `args` as `args`."""
        opening = (
            "import sys\nfrom tests.support.stores import open_store, progress\n"
            "args = sys.argv[3:]\nstore = open_store(*sys.argv[1:3])\n"
        )
        return start_python(opening + code, self.kind, self.target, *args, **options)


def start_python(code: str, *args: object, **options: Any) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    command = [sys.executable, "-c", code, *map(str, args)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, cwd=ROOT, **{**pipes, **options})


def finish(process: "subprocess.Popen[str]") -> str:
    """Wait for a process that must end well, and return what it printed."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


@contextlib.contextmanager
def new_place(kind: str, folder: Path, get_server_url: Callable[[], str]) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        if kind == "postgres":
            target = stack.enter_context(fresh_schema(get_server_url()))
        else:
            target = str(folder / {"jsonl": "journals", "sqlite": "holdfast.db"}.get(kind, "nowhere"))
        place = Place(kind, target)
        stack.callback(place.close)
        yield place


def progress(run_id: str = "r", seq: int = 0, **payload: Any) -> Event:
    return create_event(run_id, EventKind.AGENT_PROGRESS, seq=seq, **payload)


def seqs(store: Checkpointer, run_id: str = "r", since_seq: int = 0) -> list[int]:
    return [event.seq for event in store.list_events(run_id, since_seq)]
