"""Flows by name: registered once, found again, imported from modules and files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, flow, run_flow, step
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
