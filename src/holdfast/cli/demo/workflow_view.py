"""How the workflow demo looks: the same hand as the demo of flows, readable at 40 columns, in files and in ASCII."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table

from holdfast.cli.commands.runs.diff import read_diff
from holdfast.cli.demo.flow_view import View
from holdfast.cli.terminal.approval_text import describe_change
from holdfast.runtime.events import EventKind

if TYPE_CHECKING:
    from holdfast.cli.demo.workflow_proof import Proof, Share
    from holdfast.runtime.events import Event

_INDENT = 5
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_STYLES = {"✓": "green", "✕": "red", "◔": "yellow", "↷": "cyan", "●": "bold"}


class StoryView(View):
    """Prints the story, one thing at a time."""

    def show_title(self, feature: str = "") -> None:
        self._print()
        self._print(("holdfast", "bold"), "  A workflow is killed, goes on, asks you, and is done")
        note = "The model plays a script: no key, no network. All else is real."
        self._print((note, "dim"), indent=10)

    def show_project(self, folder: Path, bug: str, tests: str, request: str) -> None:
        self._print(("repository  ", "dim"), str(folder), indent=_INDENT, hang=12)
        self._print(("bug         ", "dim"), bug, indent=_INDENT, hang=12)
        self._print(("its tests   ", "dim"), (tests, "red"), indent=_INDENT, hang=12)
        self._print(("request     ", "dim"), f"“{request}”", indent=_INDENT, hang=12)
        self._print(
            ("workflow    ", "dim"), "spec → plan → a person approves → implement → review", indent=_INDENT, hang=12
        )

    def show_command(self, arguments: list[str]) -> None:
        words = [argument[:8] if len(argument) == 36 else argument for argument in arguments]
        self._print((f"$ holdfast {shlex.join(words)}", "bold"), indent=_INDENT, hang=4)

    def show_line(self, line: str) -> None:
        """Show one line of a process's own progress."""
        text = line.rstrip()
        style = _STYLES.get(text[:1], "dim" if text.startswith(" ") else "")
        self._print((text, style), indent=_INDENT + 2, hang=4)

    def show_end(self, pid: int, exit_code: int) -> None:
        if exit_code == -9:
            self._print(
                (f"✗ kill -9 {pid}", "bold red"), ("  gone at once, in the middle of its work", "red"), indent=_INDENT
            )
        else:
            meaning = {0: "done", 3: "the run waits for a person"}.get(exit_code, "failed")
            self._print((f"process {pid} ended with exit code {exit_code}: {meaning}", "dim"), indent=_INDENT, hang=2)

    def show_in_flight(self, events: "Sequence[Event]") -> None:
        """Say what the kill cut off, as the journal has it."""
        for event in events:
            phase = event.lane_id.partition("/")[0]
            is_model = event.kind == EventKind.MODEL_REQUEST
            call = f"a model call of phase {phase}" if is_model else f"{event.payload.get('tool')} in phase {phase}"
            sentence = f"In flight was {call}: cut off, so it is made again."
            self._print((sentence, "yellow"), indent=_INDENT, hang=2)

    def show_own_answer(self, question: dict[str, Any]) -> None:
        details = question["shown"]
        self._print(
            f"Phase {question['phase_key']} is done and waits for approval ({details.get('artifact')}, "
            f"{describe_change(details)}). Nobody can be asked here, so the demo says yes.",
            indent=_INDENT,
        )

    def say(self, text: str) -> None:
        self._print((text, "green"), indent=_INDENT, hang=2)

    def show_proof_row(self, share: "Share") -> tuple[str, str]:
        if share.is_skipped:
            return "done before", "cyan"
        if not share.made and not share.replayed:
            return "·", "dim"
        made = f"{share.made} calls" if share.made else ""
        replayed = f"{share.replayed} replayed" if share.replayed else ""
        return ", ".join(filter(None, (replayed, made))), "green"

    def show_table(self, proof: "Proof", *_: Any) -> None:  # type: ignore[override]  # another story, another table
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
        table.add_column("phase", overflow="fold")
        for pid in proof.pids:
            table.add_column(str(pid), overflow="fold")
        for phase in proof.phases:
            cells = [
                self.show_proof_row(proof.shares[pid, phase]) for pid in proof.pids if (pid, phase) in proof.shares
            ]
            table.add_row(phase, *(self._text(cell) for cell in cells))
        self._console.print(Padding(table, (0, 0, 0, _INDENT if self._console.width >= 60 else 0)))
        spent_micros = proof.spent_micros - proof.unanswered_micros
        self._print(
            f"cost ${spent_micros / 1_000_000:.4f} (simulated dollars)",
            (f", and ${proof.unanswered_micros / 1_000_000:.4f} reserved for the call cut off", "dim")
            if proof.unanswered_micros
            else "",
            indent=_INDENT,
        )

    def show_result(self, run_id: str, proof: "Proof", tests: str) -> None:
        """Show what is left of the run: its artifacts, its report, what the tests say there, and the whole diff."""
        for path in proof.artifacts:
            self._print(("artifact  ", "dim"), path, indent=_INDENT, hang=10)
        self._print(("report    ", "dim"), str(Path(*Path(proof.report).parts[-3:])), indent=_INDENT, hang=10)
        self._print(("tests     ", "dim"), (tests, "green"), indent=_INDENT, hang=10)
        self._print(("diff", "dim"), indent=_INDENT)
        for line in read_diff(run_id).splitlines():
            if not line.startswith(("diff --git", "index ")):
                self._print((line or " ", _DIFF_STYLES.get(line[:1], "")), indent=_INDENT + 2, hang=2)

    def show_holds(self, claims: Iterable[tuple[str, bool]]) -> None:
        for text, holds in claims:
            mark = ("✓ ", "green") if holds else ("✗ ", "bold red")
            self._print(mark, text if holds else (f"not so: {text}", "red"), indent=_INDENT, hang=2)

    def show_broken(self, lines: list[str]) -> None:
        for line in lines[-10:]:
            self._print((line, "red"), indent=_INDENT)
        self._print(("The demo did not go as it must; the exit code says so.", "bold red"))

    def show_stopped(self, folder_left: Path | None = None) -> None:
        self._print()
        self._print(
            f"Stopped; {folder_left} is left as it is." if folder_left else "Stopped; the temporary folder is removed."
        )

    def show_farewell(self, folder_left: Path | None) -> None:
        self._print()
        if folder_left is not None:
            self._print(
                f"Look around: export HOLDFAST_DATA_DIR={folder_left}/data; holdfast runs list; holdfast serve",
                indent=2,
            )
        self._print(
            "Next, in a repository of yours: holdfast init. In the browser: holdfast serve prints the link.",
            indent=2,
        )
        self._print()
