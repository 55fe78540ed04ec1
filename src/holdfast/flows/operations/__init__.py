"""What a flow can ask for beside steps: one module per operation, loaded when a flow first asks for it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.flows.operations import approval as approval
    from holdfast.flows.operations import cancel_delivery as cancel_delivery
    from holdfast.flows.operations import child_flow as child_flow
    from holdfast.flows.operations import compensation as compensation
    from holdfast.flows.operations import event_wait as event_wait
    from holdfast.flows.operations import notes as notes
    from holdfast.flows.operations import recorded_values as recorded_values
    from holdfast.flows.operations import timer as timer
    from holdfast.flows.operations import version_marker as version_marker


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
