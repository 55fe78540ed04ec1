"""A flow among the runs of a list."""

from holdfast.api.flow_serialize import to_flow_item
from holdfast.runtime.flow_rows import FlowRow


def test_a_flow_that_its_process_left_is_marked_as_interrupted_and_no_other() -> None:
    def mark(wake_at: float | None = None, *, is_driven: bool) -> str | None:
        row = FlowRow("r", "order", "running", wake_at, None, None, "runs", 0, {}, 1.0, 2.0)
        verdict = to_flow_item(row, is_driven=is_driven).verdict
        return verdict.text if verdict else None

    assert mark(is_driven=False) == "Interrupted"
    assert mark(is_driven=True) is None
    assert mark(4e9, is_driven=False) is None  # it sleeps
