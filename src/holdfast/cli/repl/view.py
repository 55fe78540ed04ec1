"""A conversation as a person reads it: what is said for good goes up the screen, what is under way stays below.

A fold over the journal, like every view: the same lines come out while it happens, after a kill, and for any reader.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.repl.answer_text import INDENT, AnswerText
from holdfast.cli.terminal.markdown import text_width
from holdfast.cli.terminal.output import paint, plain
from holdfast.cli.terminal.run_view import message_text
from holdfast.enums import RunStatus
from holdfast.images import read_labels
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.call_line import describe_call


@dataclass
class ToolCallView:
    """A tool call, folded: one line, and what `/expand` shows."""

    key: str
    title: str
    args: Any = None
    result: str = ""


@dataclass
class TalkView:
    """What is known of a conversation after the events so far. Finished lines go to `tell`."""

    tell: Callable[[str], None]
    is_muted: bool = False
    trace: RunTrace = field(default_factory=RunTrace)
    """Where it stands and what it cost."""
    turns: int = 0
    is_answering: bool = False
    calls: list[ToolCallView] = field(default_factory=list)
    activity: str = ""
    turn_began: float = 0.0
    """When work on the turn began, later by the time in which nobody worked on it; 0 between turns."""
    answer: str = ""
    """The last thing the agent has said."""
    _said: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _cost_before_turn: int = 0
    _turn_calls: int = 0
    _worked_until: float = 0.0

    def __post_init__(self) -> None:
        self.text = AnswerText(self._emit)

    @property
    def last_seq(self) -> int:
        return self.trace.last_seq

    @property
    def reason(self) -> str:
        return self.trace.progress.pause_reason

    @property
    def is_working(self) -> bool:
        return self.trace.progress.status == RunStatus.RUNNING

    @property
    def cost_micros(self) -> int:
        return self.trace.money.cost_micros

    @property
    def is_simulated(self) -> bool:
        """Some of the cost is made up by the simulated model."""
        return self.trace.money.is_simulated

    def apply(self, event: Event) -> None:
        if event.seq <= self.last_seq:
            return
        self.trace.add(event)
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            getattr(self, handler.__name__)(event)
        if event.kind not in _BY_PEOPLE:
            self._worked_until = event.ts

    # -- what people say ----------------------------------------------------------------------------------------------

    def _on_message(self, event: Event) -> None:
        if not self.is_answering:
            self.turn_began = self.turn_began or event.ts
        lines = plain(str(event.payload.get("text", ""))).splitlines() or [""]
        self._emit("")
        for number, line in enumerate(lines):
            self._emit(paint(f"{'›' if number == 0 else ' '} {line}", "bold"))
        for label in read_labels(event.payload.get("images")):
            self._emit(paint(f"  {plain(str(label))}", "dim"))
        if self.is_working and self.turns:
            self._emit(paint("  queued: the agent is told before its next step", "dim"))

    def _on_step(self, event: Event) -> None:
        if "/inbox" in str(event.payload.get("key", "")):
            self._emit(paint("  ↳ the agent was told what you said meanwhile", "dim"))

    def _on_approval(self, event: Event) -> None:
        action = str(event.payload.get("action", "")).replace("_", " ")
        self._emit(paint(f"  {action} by {event.payload.get('by') or 'someone'}", "dim"))

    # -- what the agent says ------------------------------------------------------------------------------------------

    def _on_request(self, event: Event) -> None:
        if not _is_own_lane(event):
            return
        self.activity = f"asks {event.payload.get('model') or 'the model'}"
        if self._said.pop(str(event.payload.get("key", "")), ""):
            self.text.end()
            self._emit(paint("  (cut off there, and asked again)", "dim"))

    def _on_delta(self, event: Event) -> None:
        key = str(event.payload.get("key", ""))
        if _is_own_lane(event) and key not in self._answered:
            self._write(key, str(event.payload.get("text", "")))

    def _on_response(self, event: Event) -> None:
        key = str(event.payload.get("key", ""))
        if not _is_own_lane(event):
            return
        text, said = message_text(event.payload.get("result")), self._said.get(key, "")
        self._write(key, text[len(said) :] if text.startswith(said) else text)
        self.text.end()
        self._answered.add(key)
        self.answer = text or self.answer
        self.activity = ""

    def _write(self, key: str, text: str) -> None:
        self._said[key] = self._said.get(key, "") + text
        if not self.is_muted:
            self.text.write(text)

    # -- what the agent does ------------------------------------------------------------------------------------------

    def _on_tool_started(self, event: Event) -> None:
        self.activity = describe_call(event.payload)
        self._note_call(event)

    def _on_tool_result(self, event: Event) -> None:
        call = self._note_call(event)
        result = event.payload.get("result")
        call.result = message_text(result) or (result if isinstance(result, str) else "")
        denied, error = event.payload.get("denied"), event.payload.get("error")
        mark, tone = ("✕", "failed") if denied or error else ("▸", "dim")
        took = result.get("took_s") if isinstance(result, Mapping) else None
        depth = INDENT if _is_own_lane(event) else INDENT * 3
        seconds = f" · {took:.1f} s" if isinstance(took, int | float) and took >= 0.1 else ""
        refused = f" · {denied}" if denied else ""
        self._emit(f"{depth}{paint(mark, tone)} {paint(_short(f'{call.title}{seconds}{refused}'), 'dim')}")
        self.activity = ""
        self._turn_calls += 1

    def _note_call(self, event: Event) -> ToolCallView:
        key = str(event.payload.get("key", ""))
        known = next((call for call in reversed(self.calls) if call.key == key), None)
        if known is None:
            known = ToolCallView(key, describe_call(event.payload), event.payload.get("args"))
            self.calls.append(known)
        return known

    # -- how it goes --------------------------------------------------------------------------------------------------

    def _on_run(self, event: Event) -> None:
        if not self.is_working:
            self.text.end()
            self.activity = ""
        elif self.turns:
            self.activity = "thinks"
            if self.turn_began:
                self.turn_began += event.ts - max(self._worked_until, self.turn_began)

    def _on_turn(self, event: Event) -> None:
        self.turns += 1
        self.is_answering = True
        self.turn_began = self.turn_began or event.ts
        self._cost_before_turn, self._turn_calls = self.cost_micros, 0
        self.activity = "thinks"

    def _on_turn_over(self, event: Event) -> None:
        self.text.end()
        self.is_answering = False
        error = event.payload.get("error")
        if isinstance(error, Mapping) and error.get("code") == "interrupted":
            self._emit(paint("  ⊘ interrupted; what was done so far stays", "paused"))
        elif isinstance(error, Mapping):
            self._emit(f"  {paint('✕', 'failed')} {_short(plain(str(error.get('message', ''))), 400)}")
            if error.get("hint"):
                self._emit(paint(f"    {plain(str(error['hint']))}", "dim"))
        calls = f"{self._turn_calls} tool call{'s' if self._turn_calls != 1 else ''} · " if self._turn_calls else ""
        took = max(event.ts - self.turn_began, 0.0) if self.turn_began else 0.0
        self.turn_began = 0.0
        turn_cost = self.cost_micros - self._cost_before_turn
        played = " simulated" if self.is_simulated and turn_cost else ""
        self._emit(paint(f"  {calls}{took:.0f} s · ${turn_cost / 1_000_000:.4f}{played}", "dim"))

    def _on_exhausted(self, event: Event) -> None:
        self._emit(f"  {paint('◔', 'paused')} {plain(str(event.payload.get('message', '')))}")

    def _emit(self, line: str) -> None:
        if not self.is_muted:
            self.tell(line)


_BY_PEOPLE = (EventKind.MESSAGE_RECEIVED, EventKind.HUMAN_APPROVAL_RECEIVED)
_HANDLERS: Mapping[str, Callable[[TalkView, Event], None]] = {
    EventKind.MESSAGE_RECEIVED: TalkView._on_message,
    EventKind.STEP_COMPLETED: TalkView._on_step,
    EventKind.HUMAN_APPROVAL_RECEIVED: TalkView._on_approval,
    EventKind.MODEL_REQUEST: TalkView._on_request,
    EventKind.TEXT_DELTA: TalkView._on_delta,
    EventKind.MODEL_RESPONSE: TalkView._on_response,
    EventKind.TOOL_STARTED: TalkView._on_tool_started,
    EventKind.TOOL_RESULT: TalkView._on_tool_result,
    EventKind.TOOL_ERROR: TalkView._on_tool_result,
    EventKind.PHASE_STARTED: TalkView._on_turn,
    EventKind.PHASE_COMPLETED: TalkView._on_turn_over,
    EventKind.BUDGET_EXHAUSTED: TalkView._on_exhausted,
    **dict.fromkeys(
        (
            EventKind.RUN_STARTED,
            EventKind.RUN_RESUMED,
            EventKind.RUN_PAUSED,
            EventKind.RUN_FAILED,
            EventKind.RUN_CANCELLED,
            EventKind.RUN_COMPLETED,
        ),
        TalkView._on_run,
    ),
}


def _is_own_lane(event: Event) -> bool:
    """Tell whether this is of the one who speaks with the person, and not of a helper it has called."""
    return event.lane_id.count("/") <= 2


def _short(text: str, most: int = 0) -> str:
    most = most or text_width(len(INDENT)) - 4
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"
