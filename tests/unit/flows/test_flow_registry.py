"""Flows by name: registered once, found again, imported from modules and files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, SyncContext, flow, run_flow, step
from holdfast.errors import ConfigInvalid
from holdfast.flows.service import flow_registry
from holdfast.flows.service.flow_registry import find_flow, load_flows, name_of, to_definitions
from holdfast.testing import memory_store


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flow_registry, "_flows", {})
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


async def test_a_registered_flow_stays_the_function_it_was() -> None:
    @flow("named", max_parallel=2)
    async def one(ctx: Context, number: int) -> int:
        return number

    @flow
    async def two(ctx: Context) -> str:
        return "two"

    store = memory_store()
    assert await run_flow(one, 3, run_id="r", store=store) == 3
    assert (await run_flow(two, store=store), name_of(two)) == ("two", "two")
    assert store.list_events("r")[0].payload["flow"] == "named"
    found = find_flow("named")
    assert found is not None
    assert (found.function, found.max_parallel) == (one, 2)


def test_a_second_flow_of_a_name_is_refused_with_both_places() -> None:
    @flow("same")
    async def one(ctx: Context) -> None: ...

    with pytest.raises(ConfigInvalid, match="Two flows are called 'same'") as caught:

        @flow("same")
        async def two(ctx: Context) -> None: ...

    assert caught.value.message.count(__file__) == 2
    assert find_flow("same") is not None


def test_the_same_definition_executed_again_takes_its_own_place() -> None:
    def define() -> Any:
        @flow("again")
        async def same(ctx: Context) -> None: ...

        return same

    define()
    latest = define()
    found = find_flow("again")
    assert found is not None
    assert found.function is latest


@pytest.mark.parametrize("bad", ["", " ", 3])
def test_a_name_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        flow(bad)
    with pytest.raises(ConfigInvalid):
        flow("x", max_parallel=0)


def test_flows_are_taken_by_function_or_name_and_nothing_else() -> None:
    async def plain(ctx: Context) -> None: ...

    assert list(to_definitions([plain])) == [name_of(plain)]
    with pytest.raises(ConfigInvalid, match="'unknown'"):
        to_definitions(["unknown"])
    with pytest.raises(TypeError):
        to_definitions([3])  # type: ignore[list-item]


def test_modules_and_files_are_imported_and_what_cannot_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "from holdfast import flow\n@flow('{0}')\nasync def run(ctx): ...\n"
    (tmp_path / "shop_flows.py").write_text(source.format("by module"))
    (tmp_path / "other-flows.py").write_text(source.format("by file"))
    (tmp_path / "broken_flows.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "empty_flows.py").write_text("")

    assert {each.name for each in load_flows(["shop_flows", "other-flows.py"])} == {"by module", "by file"}
    assert {each.name for each in load_flows(["other-flows.py"])} == {"by module", "by file"}
    for bad in ("broken_flows", "empty_flows", "no_such_module", "none.py"):
        with pytest.raises(ConfigInvalid, match=bad):
            load_flows([bad])


async def test_a_decorated_step_is_recorded_under_its_key() -> None:
    calls: list[int] = []

    @step
    def charge(amount: int) -> int:
        calls.append(amount)
        return amount

    @step("ship it", retries=1)
    async def ship(name: str) -> str:
        return f"shipped {name}"

    async def order(ctx: Context) -> str:
        await charge(ctx, 40)
        return await ship(ctx, name="box")

    store = memory_store()
    assert await run_flow(order, run_id="r", store=store) == "shipped box"
    assert await run_flow(order, run_id="r", store=store) == "shipped box"
    keys = [event.payload.get("key") for event in store.list_events("r") if event.kind == "step.completed"]
    assert (keys, calls) == (["charge", "ship it"], [40])
    with pytest.raises(TypeError, match="retrys"):
        step("x", retrys=3)


async def test_a_decorated_step_is_awaited_in_an_async_flow_and_called_in_a_plain_one() -> None:
    @step("charged", retries=1)
    def charge(cents: int) -> int:
        return cents

    @step
    async def refund(cents: int) -> int:
        return -cents

    def plain(ctx: SyncContext) -> list[int]:
        return [charge(ctx, 40), refund(ctx, cents=2), *ctx.gather(lambda: charge(ctx, 1), lambda: charge(ctx, 2))]

    async def waiting(ctx: Context) -> list[int]:
        return [await charge(ctx, 40), await refund(ctx, cents=2), *await ctx.gather(charge(ctx, 1), charge(ctx, 2))]

    store = memory_store()
    for flow_function in (plain, waiting):
        run_id = flow_function.__name__
        for _ in range(2):
            assert await run_flow(flow_function, run_id=run_id, store=store) == [40, -2, 1, 2]
        keys = {event.payload["key"] for event in store.list_events(run_id) if event.kind == "step.completed"}
        assert keys == {"charged", "refund", "g1.1/charged", "g1.2/charged"}


async def test_a_decorated_step_without_its_context_says_how_it_is_called() -> None:
    class Shop:
        @step
        def charge(self, cents: int) -> int:
            return cents

    async def forgets(ctx: Context) -> int:
        return await Shop().charge(ctx, 5)  # type: ignore[call-overload, no-any-return]  # as it is written by mistake

    with pytest.raises(TypeError, match=r"charge\(ctx, …\).* ctx.step\('charge', self.charge, …\)"):
        await run_flow(forgets, store=memory_store())
