"""One event in words: a phrase on one line, and where it has one a longer text. Pure, and safe to print.

Rule: what an event holds may have been written by anyone, so nothing of it reaches the terminal but printable text.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.images import read_labels
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.run_fold.call_line import describe_call

_PHRASES: Mapping[str, str] = {
    EventKind.RUN_CREATED: "run created: {purpose}",
    EventKind.RUN_STARTED: "run started",
    EventKind.RUN_RESUMED: "run resumed",
    EventKind.RUN_PAUSED: "run paused{cause}{waiting}",
    EventKind.RUN_COMPLETED: "run completed{outcome}",
    EventKind.RUN_FAILED: "run failed: {error}",
    EventKind.RUN_CANCEL_REQUESTED: "cancelling asked for{by}{reason}",
    EventKind.RUN_PAUSE_REQUESTED: "pause asked for{by}",
    EventKind.RUN_RESUME_REQUESTED: "resume asked for{by}",
    EventKind.RUN_CANCELLED: "run cancelled{by}{reason}",
    EventKind.RUN_MERGE_REQUESTED: "merge asked for{by}",
    EventKind.RUN_MERGED: "merged{branch}{by}",
    EventKind.WORKSPACE_PREPARED: "workspace ready{root}",
    EventKind.WORKSPACE_MOVED: "files {rebooted}{rescue_ref}",
    EventKind.RUN_CHANGED: "run changed{by}{changes}{reopened}",
    EventKind.PHASE_STARTED: "phase {phase} started{attempt_no}{persona}{rescue_ref}",
    EventKind.PHASE_SKIPPED: "phase {phase} was done before, not repeated",
    EventKind.PHASE_COMPLETED: "phase {phase} completed{artifact}",
    EventKind.PHASE_FAILED: "phase {phase} failed: {error}",
    EventKind.PHASE_REOPENED: "phase {phase} starts another attempt",
    EventKind.STEP_STARTED: "{key} started{attempt}",
    EventKind.STEP_COMPLETED: "{key} completed{attempt}{resolved}: {result}",
    EventKind.STEP_FAILED: "{key} failed{attempt}: {error}{retry_at}",
    EventKind.STEP_UNKNOWN: "{key} had no outcome when the run went on: {resolution}",
    EventKind.TIMER_STARTED: "{key} for {seconds} s",
    EventKind.VALUE_RECORDED: "{key}: {result}",
    EventKind.EVENT_RECEIVED: "event {name} came: {data}",
    EventKind.WAIT_STARTED: "waits for event {name}",
    EventKind.WAIT_COMPLETED: "event {name} read",
    EventKind.WAIT_EXPIRED: "event {name} did not come in time",
    EventKind.CHILD_STARTED: "child flow {flow} started: {child}",
    EventKind.CHILD_COMPLETED: "child flow {key} completed: {result}",
    EventKind.CHILD_FAILED: "child flow {key} failed: {error}",
    EventKind.SCOPE_OPENED: "{name} is done if this fails",
    EventKind.SCOPE_CLOSED: "{key} is no longer needed",
    EventKind.CANCEL_DELIVERED: "the flow is told that it is cancelled",
    EventKind.VERSION_MARKED: "version marker {key}: {result}",
    EventKind.LOG_WRITTEN: "{message}{fields}",
    EventKind.STATUS_SET: "status: {text}",
    EventKind.PARTIAL_EMITTED: "partial result: {value}",
    EventKind.MESSAGE_RECEIVED: "message{by}{partner}",
    EventKind.AGENT_STARTED: "agent started",
    EventKind.AGENT_FINISHED: "agent finished",
    EventKind.AGENT_ERROR: "agent failed: {error}",
    EventKind.MODEL_REQUEST: "asks {model}",
    EventKind.MODEL_RESPONSE: "model answered{took_s}{calls}",
    EventKind.MODEL_ERROR: "model call failed: {error}{retry_at}",
    EventKind.TEXT_DELTA: "{text}",
    EventKind.TOOL_STARTED: "calls {call}",
    EventKind.TOOL_RESULT: "{call} ended{exit_code}{took_s}{network}",
    EventKind.TOOL_ERROR: "{call} failed: {error}",
    EventKind.TOOL_UNKNOWN: "{key} had no outcome when the run went on: {resolution}",
    EventKind.CHECKPOINT_SAVED: "files saved",
    EventKind.HUMAN_APPROVAL_REQUESTED: "{key} waits for a person: {show}",
    EventKind.HUMAN_APPROVAL_RECEIVED: "{key} answered{by}: {action}{comment}",
    EventKind.HUMAN_APPROVAL_FIRST: "first of two approvals{by}{comment}",
    EventKind.ARTIFACT_WRITTEN: "artifact {path} found",
    EventKind.ARTIFACT_ACCEPTED: "artifact is valid",
    EventKind.ARTIFACT_REJECTED: "artifact is not valid",
    EventKind.BUDGET_RESERVED: "{amount_micros} reserved",
    EventKind.BUDGET_SETTLED: "{amount_micros} spent{tokens}",
    EventKind.BUDGET_EXHAUSTED: "{message}",
    EventKind.BUDGET_RAISED: "budget raised by {amount_micros}{by}",
}
_IF_THERE: Mapping[str, str] = {
    "artifact": ": {}",
    "branch": " into {}",
    "by": " by {}",
    "comment": ", {}",
    "fields": " {}",
    "reason": ": {}",
    "rescue_ref": "; what lay in the worktree is kept under {}",
    "resolved": ", {}",
    "retry_at": ", to be tried again",
    "root": " in {}",
    "took_s": " after {} s",
}


class EventText(NamedTuple):
    """A phrase on one line, and a text of any length that belongs to it: what was said, printed or commented."""

    phrase: str
    detail: str = ""


def describe_event(event: Event, *, max_chars: int = 80) -> EventText:
    """Say what an event is about; values within the phrase are cut to `max_chars`, the detail is whole.

    An event of a newer version is shown with its kind and payload.
    """
    phrase = _PHRASES.get(event.kind)
    if phrase is None:
        facts = _show(event.payload, max_chars) if event.payload else ""
        return EventText(f"{clean(event.kind)} {facts}".rstrip())
    words = _Words(event.payload, max_chars)
    return EventText(phrase.format_map(words), find_detail(event))


def find_detail(event: Event) -> str:
    """Return the longer text of an event: the model's words, a tool's output, a person's comment."""
    payload, result = event.payload, event.payload.get("result")
    if event.kind == EventKind.PHASE_REOPENED:
        return str(payload.get("comment") or "")
    if event.kind == EventKind.MESSAGE_RECEIVED:
        return "\n".join([str(payload.get("text") or ""), *_describe_images(payload)])
    if event.kind == EventKind.RUN_CREATED:
        return ", ".join(_describe_images(payload))
    if event.kind == EventKind.RUN_CHANGED:
        return "\n".join(filter(None, [str(payload.get("requirements_md") or ""), *_describe_images(payload)]))
    if event.kind == EventKind.AGENT_FINISHED and isinstance(result, dict):
        return str(result.get("text") or "")
    if event.kind in (EventKind.MODEL_RESPONSE, EventKind.TOOL_RESULT):
        output = result.get("output") if isinstance(result, dict) else None
        return output if isinstance(output, str) else message_text(result)
    return ""


def _describe_images(payload: Mapping[str, Any]) -> list[str]:
    return [f"[{label}]" for label in read_labels(payload.get("images"))]


def message_text(value: Any) -> str:
    """Return the text of the first recorded message in a result; nothing where there is none."""
    message = find_message(value)
    if message is None:
        return value if isinstance(value, str) else ""
    return content_text(message)


def content_text(message: Mapping[str, Any]) -> str:
    """Return the text of a recorded message, its blocks on lines of their own."""
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return content if isinstance(content, str) else ""


def find_message(value: Any) -> Mapping[str, Any] | None:
    """Return the first message that a result holds."""
    return next(iter_messages(value), None)


def iter_messages(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded messages that a result holds, whatever surrounds them."""
    if isinstance(value, Mapping):
        recorded = value.get("$msg")
        if isinstance(recorded, list) and len(recorded) == 2 and isinstance(recorded[1], Mapping):
            yield recorded[1]
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from iter_messages(item)


def describe_request(request: Mapping[str, Any]) -> str:
    """Describe what a command asked the network proxy for: the host, how often, and what came of it."""
    count = request.get("count")
    times = f", {count} times" if count not in (None, 1) else ""
    if not request.get("allowed"):
        how = f"refused: {request.get('reason')}"
    else:
        how = f"{request.get('sent') or 0} bytes sent, {request.get('received') or 0} received"
    return f"{request.get('host')}:{request.get('port')}{times}, {how}"


class _Words(dict[str, str]):
    """The words of a payload as a phrase asks for them; what is not there says nothing."""

    def __init__(self, payload: Mapping[str, Any], max_chars: int) -> None:
        super().__init__()
        self._payload = payload
        self._max_chars = max_chars
        result = payload.get("result")
        self._result: Mapping[str, Any] = result if isinstance(result, dict) else {}

    def __missing__(self, name: str) -> str:
        value = self._payload.get(name)
        if (own := getattr(self, f"_to_{name}", None)) is not None:
            return str(own(value))
        if name in _IF_THERE:
            value = value or self._result.get(name)
            return _IF_THERE[name].format(self._show(value)) if value else ""
        if name == "error" and isinstance(value, dict):
            value = value.get("message") or value.get("type")
        return self._show(value)

    def _show(self, value: Any) -> str:
        return _show(value, self._max_chars)

    def _to_attempt(self, value: Any) -> str:
        return f" (attempt {self._show(value)})" if value not in (None, 1) else ""

    _to_attempt_no = _to_attempt

    def _to_rebooted(self, value: Any) -> str:
        return "put back as recorded: the machine had restarted" if value else "brought to another machine"

    def _to_waiting(self, value: Any) -> str:
        if not value:
            return ""
        return f", waits for {' and '.join(map(self._show, value)) if isinstance(value, list) else self._show(value)}"

    def _to_persona(self, value: Any) -> str:
        """Name who works: a conversation has the whole persona in its events."""
        value = value or self._result.get("persona")
        name = value.get("name") if isinstance(value, Mapping) else value
        return f", by {self._show(name)}" if name else ""

    def _to_partner(self, _value: Any) -> str:
        persona = self._payload.get("persona")
        return f" to {self._show(persona.get('name'))}" if isinstance(persona, Mapping) else ""

    def _to_changes(self, _value: Any) -> str:
        personas = self._payload.get("personas")
        named = personas.items() if isinstance(personas, Mapping) else ()
        parts = ["other requirements"] if "requirements_md" in self._payload else []
        parts += [f"{role} is {one.get('name')}" for role, one in named if isinstance(one, Mapping)]
        return f": {self._show(', '.join(parts))}" if parts else ""

    def _to_reopened(self, value: Any) -> str:
        return f", starts anew: {self._show(', '.join(map(str, value)))}" if isinstance(value, list) and value else ""

    def _to_cause(self, _value: Any) -> str:
        reason = self._payload.get("reason")
        return f" ({self._show(reason)})" if reason else ""

    def _to_outcome(self, _value: Any) -> str:
        if "result" in self._payload or "report" not in self._payload:
            return f": {self._show(self._payload.get('result'))}"
        return f", report in {self._show(self._payload['report'])}"

    def _to_call(self, _value: Any) -> str:
        name = (find_message(self._result) or {}).get("name")
        return describe_call(self._payload, self._max_chars) or self._show(name or self._payload.get("key") or "a call")

    def _to_calls(self, _value: Any) -> str:
        calls = (find_message(self._result) or {}).get("tool_calls")
        calls = calls if isinstance(calls, list) else []
        names = [str(call.get("name")) for call in calls if isinstance(call, Mapping)]
        return f", calls {self._show(', '.join(names))}" if names else ""

    def _to_network(self, _value: Any) -> str:
        """Name the hosts that a command asked for and did not reach; the others are in the event."""
        requests = self._result.get("network")
        listed = [one for one in requests if isinstance(one, Mapping)] if isinstance(requests, list) else []
        refused = [f"{one.get('host')}:{one.get('port')}" for one in listed if not one.get("allowed")]
        return f", did not reach {self._show(', '.join(refused))}" if refused else ""

    def _to_exit_code(self, _value: Any) -> str:
        code = self._result.get("exit_code")
        return f" with exit code {self._show(code)}" if code is not None else ""

    def _to_show(self, value: Any) -> str:
        if isinstance(value, Mapping) and value.get("question"):
            return self._show(value["question"])
        if isinstance(value, Mapping) and isinstance(value.get("files"), list):
            count = len(value["files"])
            changed = f"{count} file{'s' if count != 1 else ''}, +{value.get('added', 0)} −{value.get('removed', 0)}"
            return f"{self._show(value.get('artifact'))}, {changed}"
        return self._show(value)

    def _to_amount_micros(self, value: Any) -> str:
        return f"${value / 1_000_000:.4f}" if isinstance(value, int) else self._show(value)

    def _to_tokens(self, _value: Any) -> str:
        counts = [self._payload.get(name) for name in ("input_tokens", "output_tokens")]
        return f" ({counts[0]} tokens in, {counts[1]} out)" if any(counts) else ""


def _show(value: Any, max_chars: int) -> str:
    text = value if isinstance(value, str) else to_json(value)[0].decode()
    return clean(text if len(text) <= max_chars else f"{text[: max_chars - 1]}…")


def clean(text: str, *, keep: str = "") -> str:
    """Return the text without anything a terminal would obey; characters of `keep` stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else " " for char in text)
