"""The demo: a workflow is killed in front of your eyes, resumed by another process, approved by you, and finished.

The model's answers come from a script (`engineer.yaml`). Everything else is real: the processes, the signal, the
repository, the tool calls, the tests, the files and the journal. The exit code is 0 only if every claim holds.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.cli.demo.flow_story import StoryBroken
from holdfast.cli.demo.workflow_project import (
    REQUEST,
    SuiteResult,
    install_engineer,
    make_project,
    run_tests,
    see_bug,
)
from holdfast.cli.demo.workflow_proof import Proof, check, find_in_flight, read_proof
from holdfast.cli.demo.workflow_view import StoryView
from holdfast.cli.terminal.arguments import is_interactive
from holdfast.cli.terminal.questions import ApprovalInput, ask, find_question
from holdfast.cli.terminal.store import read_events
from holdfast.runtime.events import EventKind
from holdfast.workspace.user_checkout import read_status

WORKFLOW = "feature-delivery"
KILLED_IN = "plan"
_PACE_S = 0.45  # for each answer of the model
_FAST_PACE_S = 0.3  # only for the process that is killed, so that it cannot be done before the signal arrives
_READ_S = 1.2
_LOOK_S = 0.005


@dataclass
class ProcessPart:
    """One process's part in the run."""

    pid: int
    lines: list[str] = field(default_factory=list)
    exit_code: int = 0
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The run that it has started, as its lines say; empty before they do."""
        return next((line.removeprefix("run ").strip() for line in self.lines if line.startswith("run ")), "")


class WorkflowStory:
    """The acts in order; each leaves what happened in `parts`."""

    def __init__(self, folder: Path, view: StoryView, *, is_fast: bool) -> None:
        self.project = folder / "till"
        self.parts: list[ProcessPart] = []
        self._view = view
        self._is_fast = is_fast
        self._can_ask = is_interactive() and not is_fast
        self._run_id = ""
        self._status_before = ""
        self._tests_before: SuiteResult | None = None

    def act(self) -> None:
        view = self._view
        view.show_title()
        make_project(self.project)
        self._status_before = read_status(self.project)
        self._tests_before = run_tests(self.project)
        view.show_act(1, "A project with a bug, and a request to fix it")
        view.show_project(self.project, see_bug(self.project), self._tests_before.last_line, REQUEST)
        self._wait()
        view.show_act(2, f"A process works, and is killed in the middle of phase {KILLED_IN}")
        self._start(
            ["run", WORKFLOW, "--repo", str(self.project), "--simulate", "--requirements", REQUEST], is_killed=True
        )
        self._run_id = self.parts[0].run_id
        view.show_in_flight(find_in_flight(read_events(self._run_id)))
        self._wait()
        view.show_act(3, "Another process resumes the run; what is recorded is not done again")
        self._start(["resume", self._run_id])
        self._wait()
        view.show_act(4, "A person decides; meanwhile no process of the run is alive")
        self._decide()
        view.show_act(5, "A third process finishes it")
        self._start(["resume", self._run_id])
        self._wait()

    def prove(self) -> bool:
        """Show what the run made and what the journal says; true if every claim holds."""
        proof = read_proof(self._run_id, [part.pid for part in self.parts if part.answer or part.exit_code < 0])
        self._view.show_act(6, "Who did what, counted from the journal")
        self._view.show_table(proof)
        self._wait()
        self._view.show_act(7, "What the run made, in a worktree of its own")
        tests_after = run_tests(proof.worktree)
        self._view.show_result(self._run_id, proof, f"{tests_after.tests} tests: {tests_after.last_line}")
        self._wait()
        self._view.show_act(8, "What holds")
        assert self._tests_before is not None
        claims = check(
            proof,
            self.parts[0].exit_code,
            is_untouched=read_status(self.project) == self._status_before,
            tests=(self._tests_before, tests_after),
        )
        self._view.show_holds(claims)
        return all(holds for _text, holds in claims)

    def _decide(self) -> None:
        while (question := find_question(self._run_id)) is not None:
            answer = self._get_answer(question)
            short = question["approval_id"][:8]
            if answer.action == "request_changes":
                self._call(["reject", short, "--changes", "--comment", answer.comment])
                self._start(["resume", self._run_id])
            else:
                self._call(["approve", short])

    def _get_answer(self, question: dict[str, Any]) -> ApprovalInput:
        if not self._can_ask:
            self._view.show_own_answer(question)
            return ApprovalInput("approve", "")
        answer = ask(question)
        if answer is None or answer.action == "reject":
            self._view.say("The demo needs a yes to go on, and says it for you.")
            return ApprovalInput("approve", "")
        return answer

    def _call(self, arguments: list[str]) -> None:
        """Run one of the small commands, as a person would type it."""
        self._view.show_command(arguments)
        done = subprocess.run([*_HOLDFAST, *arguments], capture_output=True, text=True, check=False)
        self._view.say((done.stdout or done.stderr).strip())
        if done.returncode:
            raise StoryBroken

    def _start(self, arguments: list[str], *, is_killed: bool = False) -> None:
        pace_s = _FAST_PACE_S if is_killed else 0.0
        pace_s = pace_s if self._is_fast else _PACE_S
        self._view.show_command(arguments)
        part = _watch([*arguments, "--json"], pace_s, self._view.show_line, is_killed=is_killed)
        self.parts.append(part)
        self._view.show_end(part.pid, part.exit_code)
        if (part.exit_code == -signal.SIGKILL) is not is_killed or part.exit_code not in (-signal.SIGKILL, 0, 3):
            raise StoryBroken

    def _wait(self) -> None:
        if not self._is_fast:
            time.sleep(_READ_S)


_HOLDFAST = (sys.executable, "-m", "holdfast")


def _watch(arguments: list[str], pace_s: float, show: Callable[[str], None], *, is_killed: bool) -> ProcessPart:
    """Run a holdfast command in a process of its own, to its end or until it is killed in phase `KILLED_IN`."""
    environment = {**os.environ, "HOLDFAST_SIMULATE_DELAY_S": str(pace_s)}
    with subprocess.Popen(
        [*_HOLDFAST, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the parent, which ends the process itself
    ) as process:
        part = ProcessPart(process.pid)
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stderr:
                part.lines.append(line.rstrip("\n"))
                show(part.lines[-1])
                if is_killed and _is_near(part.lines):
                    _kill_in_model_call(process, part.run_id)
                    is_killed = False
            output = process.stdout.read()
        except BaseException:
            process.kill()
            raise
        part.exit_code = process.wait()
    part.answer = json.loads(output) if output else {}
    return part


def _is_near(lines: list[str]) -> bool:
    """Return whether the phase has looked around and run the tests, so that its next model call writes the artifact."""
    begun = next((index for index, line in enumerate(lines) if f"{KILLED_IN}: started" in line), None)
    return begun is not None and any("execute" in line for line in lines[begun:])


def _kill_in_model_call(process: "subprocess.Popen[str]", run_id: str) -> None:
    """Wait until the journal says that the model was asked and has not answered, and kill the process then."""
    while process.poll() is None:
        if any(event.kind == EventKind.MODEL_REQUEST for event in find_in_flight(read_events(run_id))):
            process.send_signal(signal.SIGKILL)
            return
        time.sleep(_LOOK_S)


def play(*, is_fast: bool = False, keeps_folder: bool = False, view: StoryView | None = None) -> int:
    """Tell the story on a console and return the exit code. The folder is gone afterwards, unless it is to stay."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    view = view or StoryView(Console(highlight=False))
    if keeps_folder:
        return _play_in(Path(tempfile.mkdtemp(prefix="holdfast-demo-")), view, is_fast=is_fast, keeps_folder=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        return _play_in(Path(folder), view, is_fast=is_fast, keeps_folder=False)


def _play_in(folder: Path, view: StoryView, *, is_fast: bool, keeps_folder: bool) -> int:
    # The whole demo, its questions included, has a place of its own: nothing of the user's is read or written.
    os.environ["HOLDFAST_DATA_DIR"] = str(folder / "data")
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    for name in ("HOLDFAST_DATABASE_URL", "HOLDFAST_CONFIG", "HOLDFAST_RUN_BUDGET_USD", "HOLDFAST_DAY_BUDGET_USD"):
        os.environ.pop(name, None)
    install_engineer(folder / "config" / "holdfast")
    story = WorkflowStory(folder, view, is_fast=is_fast)
    try:
        story.act()
        is_proved = story.prove()
    except StoryBroken:
        view.show_broken(story.parts[-1].lines if story.parts else [])
        return 1
    except KeyboardInterrupt:
        view.show_stopped(folder if keeps_folder else None)
        return 130
    view.show_farewell(folder if keeps_folder else None)
    return 0 if is_proved else 1


__all__ = ["Proof", "WorkflowStory", "play"]
