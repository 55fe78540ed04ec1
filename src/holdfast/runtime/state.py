"""The state of a run, and the fold that makes it from events: pure, no clock, no I/O.

Rule: a journal can hold events in any order that several writers produce, so the fold accepts every order; what makes
no sense in a state (a node finished that never started) is taken as it says, never refused.
"""

import copy
import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

from holdfast.enums import RunStatus
from holdfast.errors import PayloadInvalid
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.jsondata import from_json, to_json

STATE_VERSION = 1
_State = TypeVar("_State", bound="NodeState | RunState")

__all__ = ["NodeState", "RunState", "RunStatus", "STATE_VERSION", "fold", "status_after"]


def _now_unless(at: float | None) -> float:
    return time.time() if at is None else at  # the fold always gives `at`; only a direct call reads the clock


def _to_status(value: str) -> RunStatus | str:
    return RunStatus(value) if value in set(RunStatus) else value


@dataclass
class NodeState:
    """One node (a phase, an agent, a step of a plan) of a run."""

    node_id: str
    status: RunStatus | str = RunStatus.PENDING
    input_data: Any = None
    output_data: Any = None
    started_at: float | None = None
    finished_at: float | None = None
    error: str | None = None
    attempts: int = 0
    idempotency_key: str | None = None
    extra: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data of the caller's own, as `RunState.to_dict` does."""
        return copy.deepcopy(_to_dict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        node = _from_dict(cls, data)
        node.status = _to_status(node.status)
        return node


@dataclass
class RunState:
    """What a run knows of itself. `last_seq` is the number of the last event folded in, 0 if it was made by hand."""

    run_id: str
    session_id: str = ""
    status: RunStatus | str = RunStatus.PENDING
    purpose: str = ""
    current_node: str | None = None
    current_step: int = 0
    max_steps: int = 20
    data: dict[str, Any] = field(default_factory=dict)
    node_states: dict[str, NodeState] = field(default_factory=dict)
    completed_nodes: list[str] = field(default_factory=list)
    action_history: list[Any] = field(default_factory=list)
    started_at: float | None = None
    updated_at: float | None = None
    finished_at: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    tool_cache: dict[str, Any] = field(default_factory=dict)
    version: int = STATE_VERSION
    last_seq: int = 0
    extra: dict[str, Any] = field(default_factory=dict, repr=False)

    def mark_node_started(self, node_id: str, *, at: float | None = None) -> None:
        node = self._node(node_id)
        node.status, node.error, node.finished_at = RunStatus.RUNNING, None, None
        node.started_at = self.updated_at = _now_unless(at)
        node.attempts += 1
        self.current_node = node_id

    def mark_node_completed(self, node_id: str, output: Any = None, *, at: float | None = None) -> None:
        node = self._node(node_id)
        node.status, node.error = RunStatus.COMPLETED, None
        node.output_data = output
        node.finished_at = self.updated_at = _now_unless(at)
        if node_id not in self.completed_nodes:
            self.completed_nodes.append(node_id)
        if self.current_node == node_id:
            self.current_node = None

    def mark_node_failed(self, node_id: str, error: str, *, at: float | None = None) -> None:
        node = self._node(node_id)
        node.status, node.error = RunStatus.FAILED, str(error)
        node.finished_at = self.updated_at = _now_unless(at)
        if node_id in self.completed_nodes:
            self.completed_nodes.remove(node_id)

    def _node(self, node_id: str) -> NodeState:
        return self.node_states.setdefault(node_id, NodeState(node_id))

    def get_idempotency_key(self, tool_name: str, args: Any) -> str:
        """Return the key of a call: the same in every process for the same run, step, tool and arguments."""
        _, plain = to_json(args, "tool arguments")
        canonical, _ = to_json([self.run_id, self.current_step, tool_name, _sorted(plain)], "tool arguments")
        return hashlib.sha256(canonical).hexdigest()

    def has_cached_result(self, key: str) -> bool:
        return key in self.tool_cache

    def get_cached_result(self, key: str) -> Any:
        return self.tool_cache.get(key)

    def cache_result(self, key: str, value: Any) -> None:
        self.tool_cache[key] = value

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data of the caller's own: what is done to either does not change the other."""
        return copy.deepcopy(self._content())

    def _content(self) -> dict[str, Any]:
        nodes = {node_id: _to_dict(node) for node_id, node in self.node_states.items()}
        return {**_to_dict(self), "node_states": nodes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a state. Raises `PayloadInvalid` if it is not one."""
        if not data.get("run_id"):
            raise PayloadInvalid("A run state needs a run_id.")
        state = _from_dict(cls, data)
        state.status = _to_status(state.status)
        state.node_states = {
            node_id: NodeState.from_dict({"node_id": node_id, **node})
            for node_id, node in dict(data.get("node_states") or {}).items()
        }
        return state

    def to_json(self) -> bytes:
        return to_json(self._content(), "state")[0]

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        data = from_json(text)
        if not isinstance(data, dict):
            raise PayloadInvalid("A run state is a JSON object.")
        return cls.from_dict(data)


def _to_dict(state: NodeState | RunState) -> dict[str, Any]:
    known = {item.name: getattr(state, item.name) for item in fields(state) if item.name != "extra"}
    known["status"] = str(state.status)
    return {**state.extra, **known}


def _from_dict(cls: type[_State], data: Mapping[str, Any]) -> _State:
    names = {item.name for item in fields(cls)} - {"extra"}
    known = {key: value for key, value in data.items() if key in names}
    return cls(**known, extra={key: value for key, value in data.items() if key not in names})


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_STATUS_AFTER: dict[str, RunStatus] = {
    EventKind.RUN_CREATED: RunStatus.PENDING,
    EventKind.RUN_STARTED: RunStatus.RUNNING,
    EventKind.RUN_RESUMED: RunStatus.RUNNING,
    EventKind.RUN_PAUSED: RunStatus.PAUSED,
    EventKind.RUN_FINISHED: RunStatus.COMPLETED,
    EventKind.RUN_COMPLETED: RunStatus.COMPLETED,
    EventKind.RUN_FAILED: RunStatus.FAILED,
    EventKind.RUN_ERROR: RunStatus.FAILED,
    EventKind.RUN_CANCELLED: RunStatus.CANCELLED,
}
_OVER = {status for status in RunStatus if status.is_terminal}
_REOPENING = {EventKind.RUN_STARTED, EventKind.RUN_RESUMED}


def status_after(status: RunStatus | str, kind: str) -> RunStatus | str:
    """Return the status after an event of this kind: an end is only left by starting again."""
    following = _STATUS_AFTER.get(kind)
    if following is None or (kind == EventKind.RUN_CREATED and status != RunStatus.PENDING):
        return status
    is_over = status in _OVER  # a store hands in plain text
    return status if is_over and kind not in _REOPENING else following


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState | None:
    """Return the state that follows from a run's events, on top of `state` (which is changed) or from nothing.

    Events up to `state.last_seq` are skipped, so a snapshot and the whole journal give the same as the journal alone.
    """
    for event in events:
        if state is None:
            state = RunState(run_id=event.run_id, session_id=event.session_id)
        if 0 < event.seq <= state.last_seq:
            continue
        _apply(state, event)
    return state


def _apply(state: RunState, event: Event) -> None:
    payload = event.payload
    state.last_seq = max(state.last_seq, event.seq)
    state.updated_at = event.ts
    state.status = status_after(state.status, event.kind)
    if event.kind == EventKind.RUN_CREATED:
        state.purpose = _text(payload.get("purpose")) or state.purpose
    elif event.kind in _REOPENING:
        state.started_at = event.ts if state.started_at is None else state.started_at
        state.finished_at = None
    elif event.is_terminal and state.finished_at is None:
        state.finished_at = event.ts
    elif event.kind == EventKind.STATE_DELTA:
        state.data.update(_object(payload.get("delta", payload.get("data", payload))))
    elif event.kind == EventKind.STATE_SNAPSHOT:
        state.data = dict(_object(payload.get("data", payload)))
    elif event.kind in (EventKind.TOOL_RESULT, EventKind.STEP_COMPLETED):
        _apply_result(state, payload)
    elif event.kind.startswith(("agent.", "phase.")):
        _apply_node(state, event)


def _apply_result(state: RunState, payload: Mapping[str, Any]) -> None:
    state.current_step += 1
    key = payload.get("key", payload.get("idempotency_key"))
    if isinstance(key, str):
        state.tool_cache[key] = payload.get("result")


def _apply_node(state: RunState, event: Event) -> None:
    payload = event.payload
    node_id = next(
        (payload[name] for name in ("node", "node_id", "phase", "phase_key", "agent") if name in payload), None
    )
    if not isinstance(node_id, str):
        return
    verb = event.kind.rpartition(".")[2]
    if verb == "started":
        state.mark_node_started(node_id, at=event.ts)
    elif verb in ("finished", "completed", "skipped"):
        output = payload.get("output", payload.get("result"))
        known = state.node_states.get(node_id)
        if verb == "skipped" and known is not None:
            output = known.output_data if output is None else output
        state.mark_node_completed(node_id, output, at=event.ts)
    elif verb in ("failed", "error"):
        state.mark_node_failed(node_id, _text(payload.get("error")), at=event.ts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
