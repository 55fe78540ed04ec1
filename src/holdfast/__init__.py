"""holdfast: agent work, and any other asynchronous Python code, that survives what kills its process."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.errors import EventTimeout, HoldfastError, RunCancelled, RunPaused
    from holdfast.flows.answers import cancel_flow, decide, retry_flow
    from holdfast.flows.context import Context, Decision
    from holdfast.flows.decorated_step import step
    from holdfast.flows.follower import follow
    from holdfast.flows.operations.event_wait import send_event
    from holdfast.flows.run import run_flow
    from holdfast.flows.service.embedded_runtime import Runtime
    from holdfast.flows.service.flow_fork import fork_flow
    from holdfast.flows.service.flow_info import FlowDetails, FlowSummary, list_flows
    from holdfast.flows.service.flow_registry import flow
    from holdfast.flows.service.handle import FlowHandle, get_flow
    from holdfast.flows.service.start import start_flow
    from holdfast.flows.sync_context import SyncContext
    from holdfast.flows.typed_values.value_codec import register_codec
    from holdfast.runtime.outcomes.unknown_outcomes import Done, NotDone
    from holdfast.runtime.step import step_key

__version__ = "0.1.0"
__all__ = [
    "Context",
    "Decision",
    "Done",
    "EventTimeout",
    "FlowDetails",
    "FlowHandle",
    "FlowSummary",
    "HoldfastError",
    "NotDone",
    "RunCancelled",
    "RunPaused",
    "Runtime",
    "SyncContext",
    "cancel_flow",
    "decide",
    "flow",
    "follow",
    "fork_flow",
    "get_flow",
    "list_flows",
    "register_codec",
    "retry_flow",
    "run_flow",
    "send_event",
    "start_flow",
    "step",
    "step_key",
]

_HOMES = {
    "Context": "flows.context",
    "Decision": "flows.context",
    "Done": "runtime.outcomes.unknown_outcomes",
    "EventTimeout": "errors",
    "FlowDetails": "flows.service.flow_info",
    "FlowHandle": "flows.service.handle",
    "FlowSummary": "flows.service.flow_info",
    "HoldfastError": "errors",
    "NotDone": "runtime.outcomes.unknown_outcomes",
    "RunCancelled": "errors",
    "RunPaused": "errors",
    "Runtime": "flows.service.embedded_runtime",
    "SyncContext": "flows.sync_context",
    "cancel_flow": "flows.answers",
    "decide": "flows.answers",
    "flow": "flows.service.flow_registry",
    "follow": "flows.follower",
    "fork_flow": "flows.service.flow_fork",
    "get_flow": "flows.service.handle",
    "list_flows": "flows.service.flow_info",
    "register_codec": "flows.typed_values.value_codec",
    "retry_flow": "flows.answers",
    "run_flow": "flows.run",
    "send_event": "flows.operations.event_wait",
    "start_flow": "flows.service.start",
    "step": "flows.decorated_step",
    "step_key": "runtime.step",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
