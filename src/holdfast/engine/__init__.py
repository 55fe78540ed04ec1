"""What comes next: the engine that brings a workflow through its phases, whatever dies on the way."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.results import PhaseResult, RunError, RunResult
from holdfast.extras import name_missing_extra

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.engine.scope import ApprovalRequest
    from holdfast.engine.workflow_engine import WorkflowEngine
    from holdfast.persona import AgentPersona

__all__ = ["ApprovalRequest", "PhaseResult", "RunError", "RunResult", "WorkflowEngine", "build_agent"]


def build_agent(persona: "AgentPersona", config: "Config", *, root_dir: Path, middleware: list[Any], **kw: Any) -> Any:
    """Build the agent for a persona. Looked up here at every call, so that a program can put its own in its place."""
    with name_missing_extra(__name__):
        from holdfast.agents.build import build_agent as build

    return build(persona, config, root_dir=root_dir, middleware=middleware, **kw)


def __getattr__(name: str) -> Any:
    if name == "WorkflowEngine":
        with name_missing_extra(__name__):
            from holdfast.engine.workflow_engine import WorkflowEngine

        return WorkflowEngine
    if name == "ApprovalRequest":
        with name_missing_extra(__name__):
            from holdfast.engine.scope import ApprovalRequest

        return ApprovalRequest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
