"""A flow that an earlier version recorded goes on: its failures are found under the paths that classes have now."""

import shutil
from pathlib import Path

from tests.support.recorded_run import JOURNALS

from holdfast import Context, run_flow
from holdfast.agents.calls.provider_errors import CutShort, Malformed
from holdfast.agents.simulated.schema_sample import CannotSample
from holdfast.errors import StepFailed
from holdfast.runtime.checkpoint import JSONLCheckpointer
from holdfast.runtime.events import EventKind


async def test_a_flow_of_before_the_layout_takes_the_same_ways_again(tmp_path: Path) -> None:
    shutil.copytree(JOURNALS / "before-layout" / "flow", tmp_path / "flow")
    store = JSONLCheckpointer(tmp_path / "flow")
    recorded = store.list_events("recorded-flow")
    calls: list[str] = []

    async def flow(ctx: Context, topic: str) -> list[str]:
        ways: list[str] = []
        for key in ("cut", "bad", "sample"):
            try:
                await ctx.step(key, lambda key=key: calls.append(key))
            except CutShort:
                ways.append("cut short")
            except Malformed:
                ways.append("malformed")
            except CannotSample:
                ways.append("cannot sample")
            except StepFailed:
                ways.append("a class that nobody finds")
        plan = await ctx.step("plan", lambda: calls.append("plan"))
        assert plan == {"ways": ways}
        return await ctx.step("write", lambda: [*ways, topic])

    result = await run_flow(flow, "hats", run_id="recorded-flow", store=store)

    assert result == ["cut short", "malformed", "cannot sample", "hats"]
    assert calls == []
    types = [event.payload["error"]["type"] for event in recorded if event.kind is EventKind.STEP_FAILED]
    assert [name.rpartition(".")[0] for name in types] == [
        "holdfast.agents.model_errors",
        "holdfast.agents.model_errors",
        "holdfast.agents.schema_sample",
    ]
    store.close()
