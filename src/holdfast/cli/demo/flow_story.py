"""The demo of flows: a run of plain Python steps is killed, resumed by another process, approved, finished by a third.

Nothing is staged: the processes, the signal, the files and the journal are real, and the claims at the end are counted
from the files and the journal. The exit code is 0 only if all of them hold.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast import decide
from holdfast.cli.demo.flow_process import FEATURE, FILES, KILLED_IN, LEDGER, RUN_ID, STORE
from holdfast.cli.demo.flow_view import View
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.transcript import transcript

_WORK_S = 0.3
_READ_S = 0.6


@dataclass
class FlowPart:
    """One process's part in the run: the facts it reported, and how it ended."""

    pid: int
    facts: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int = 0

    def keys(self, fact: str) -> list[str]:
        return [report["key"] for report in self.facts if report["fact"] == fact]


@dataclass(frozen=True)
class FlowClaim:
    text: str
    holds: bool


class StoryBroken(Exception):
    """A process of the demo did not end as it must; it has said why on the standard error."""


class FlowStory:
    """The demo in two halves: `act` runs the processes, `report` shows what the files and the journal say of it."""

    def __init__(self, folder: Path, view: View, *, is_fast: bool) -> None:
        self._folder = folder
        self._view = view
        self._is_fast = is_fast
        self._parts: list[FlowPart] = []

    def act(self) -> None:
        view = self._view
        view.show_title(FEATURE)
        self._wait()
        view.show_act(1, "A process starts the run")
        self._run(kill_at=KILLED_IN)
        self._wait()
        view.show_act(2, "Another process runs the same flow with the same run id")
        self._run()
        self._wait()
        view.show_act(3, "A person answers; meanwhile no process of the run is alive")
        asyncio.run(decide(RUN_ID, "publish", "approve", by="you", store=self._folder / STORE))
        view.show_decision(RUN_ID, "publish", "approve")
        self._wait()
        view.show_act(4, "A third process goes on")
        self._run()
        self._wait()

    def show_table(self) -> None:
        self._view.show_table(self._parts, Counter(key for key, _ in _read_ledger(self._folder / LEDGER)))

    def report(self) -> bool:
        """Show the table, the transcript and the claims; true if all claims hold."""
        events = _read_journal(self._folder / STORE)
        claims = _check(self._parts, events, self._folder)
        self.show_table()
        self._wait()
        self._view.show_transcript(transcript(events))
        self._wait()
        self._view.show_claims([(claim.text, claim.holds) for claim in claims])
        return all(claim.holds for claim in claims)

    def _run(self, kill_at: str | None = None) -> None:
        pace_s = 0.0 if self._is_fast else _WORK_S
        self._parts.append(_watch(self._folder, pace_s, self._view.show_fact, kill_at))
        self._view.show_end(self._parts[-1].pid, self._parts[-1].exit_code)
        if self._parts[-1].exit_code != (-signal.SIGKILL if kill_at else 0):
            raise StoryBroken

    def _wait(self) -> None:
        if not self._is_fast:
            time.sleep(_READ_S)


def _watch(folder: Path, pace_s: float, show: Callable[[dict[str, Any]], None], kill_at: str | None) -> FlowPart:
    """Run the flow in a process of its own, to its end or until the effect of `kill_at` is there."""
    command = [sys.executable, "-m", "holdfast.cli.demo.flow_process", str(pace_s)]
    # A session of its own: Ctrl-C is for the parent, which ends the process itself.
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        part = FlowPart(process.pid)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                report = json.loads(line)
                part.facts.append(report)
                show(report)
                if report["fact"] == "effect" and report["key"] == kill_at:
                    time.sleep(2 * pace_s)
                    process.send_signal(signal.SIGKILL)
        except BaseException:
            process.kill()
            raise
        part.exit_code = process.wait()
    return part


def _read_journal(path: Path) -> list[Event]:
    store = SQLiteCheckpointer(path)
    try:
        return store.list_events(RUN_ID)
    finally:
        store.close()


def _read_ledger(path: Path) -> list[tuple[str, int]]:
    """Return the key and the process of every side effect, in the order they happened."""
    fields = [line.split(" ") for line in path.read_text().splitlines()]
    return [(key.partition(":")[2], int(pid)) for key, pid, _ in fields]


def _check(parts: Sequence[FlowPart], events: Sequence[Event], folder: Path) -> list[FlowClaim]:
    killed, resumed, last = parts
    calls = Counter(key for key, _ in _read_ledger(folder / LEDGER))
    recorded = killed.keys("called")
    return [
        FlowClaim(
            f"Process {killed.pid} was killed by signal 9 in node 3 of 5",
            killed.exit_code == -signal.SIGKILL and killed.keys("effect")[-1] == KILLED_IN,
        ),
        FlowClaim("Three different processes took part", len({part.pid for part in parts}) == 3),
        FlowClaim(
            f"The {len(recorded)} steps recorded before the kill were replayed, not called again",
            resumed.keys("replayed")[: len(recorded)] == recorded and not set(recorded) & set(resumed.keys("called")),
        ),
        FlowClaim("The step in flight was found to be done, and not done again", resumed.keys("found") == [KILLED_IN]),
        FlowClaim(f"Each of the {len(FILES)} side effects happened exactly once", calls == dict.fromkeys(FILES, 1)),
        FlowClaim("Every file is there", all((folder / name).is_file() for name in FILES.values())),
        FlowClaim("Nothing was published before a person had approved", _is_published_last(events, last)),
        FlowClaim(
            f"The journal has {len(events)} events, numbered without a gap, and ends with the result",
            [event.seq for event in events] == list(range(1, len(events) + 1))
            and events[-1].kind == EventKind.RUN_COMPLETED
            and events[-1].payload.get("result") == last.facts[-1].get("result"),
        ),
    ]


def _is_published_last(events: Sequence[Event], last: FlowPart) -> bool:
    published = [event.seq for event in events if event.payload.get("key") == "publish" and "step" in event.kind]
    answered = [event.seq for event in events if event.kind == EventKind.HUMAN_APPROVAL_RECEIVED]
    return len(answered) == 1 and bool(published) and published[0] > answered[0] and last.keys("called") == ["publish"]


def play(*, is_fast: bool = False, console: Console | None = None) -> int:
    """Tell the story on a console and return the exit code. The scratch folder is gone afterwards."""
    _clean_up_when_ended()
    view = View(console or Console(highlight=False))
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        story = FlowStory(Path(folder), view, is_fast=is_fast)
        try:
            story.act()
            return 0 if story.report() else 1
        except StoryBroken:
            return 1
        except KeyboardInterrupt:
            view.show_stopped()
            return 130


def _clean_up_when_ended() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
