"""`holdfast flows check`: which open runs a change would break, before it is deployed."""

import asyncio
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Context, RunPaused, run_flow
from holdfast.cli import app
from holdfast.flows.service import flow_registry

FLOW = """
from holdfast import Context

async def order(ctx: Context, item: str) -> str:
    await ctx.step("reserve", len, item)
    await ctx.step("charge", len, item)
    return await ctx.approval("ship")
"""
Check = Callable[..., tuple[int, str, str]]


async def refund(ctx: Context, item: str) -> None:
    await ctx.approval("go")


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(source: str, *options: str, target: str = "shop_orders:order") -> tuple[int, str, str]:
        (tmp_path / "shop_orders.py").write_text(source)
        sys.modules.pop("shop_orders", None)
        importlib.invalidate_caches()
        arguments = ["holdfast", "flows", "check", target, "--store", "orders.db", *options]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def _open_run(tmp_path: Path, check: Check) -> None:
    (tmp_path / "shop_orders.py").write_text(FLOW)
    sys.modules.pop("shop_orders", None)  # another test's
    importlib.invalidate_caches()
    flow = importlib.import_module("shop_orders").order
    with pytest.raises(RunPaused):
        asyncio.run(run_flow(flow, "book", run_id="order-1", store=tmp_path / "orders.db"))


@pytest.mark.usefixtures("_open_run")
def test_it_says_which_runs_break_and_where_and_a_marker_mends_it(check: Check) -> None:
    changed = FLOW.replace('"charge"', '"invoice"')
    marked = FLOW.replace('"charge"', '"invoice" if await ctx.changed("invoices") else "charge"')

    assert check(FLOW)[:2] == (0, "✓ order-1 (paused) fits\n1 open run, 0 would break.\n")
    code, out, _ = check(changed)
    assert code == 1
    assert "✕ order-1 (paused) breaks" in out
    assert "shop_orders.py:6. Recorded: step 'reserve' → [step 'charge'] → approval 'ship'." in out
    assert check(marked)[0] == 0
    code, out, _ = check(changed, "--json")
    (found,) = json.loads(out)
    assert (code, found["run_id"], found["outcome"], found["line"]) == (1, "order-1", "breaks", 6)
    assert found["code"] == ["step 'reserve'", "step 'invoice'"]


@pytest.mark.usefixtures("_open_run")
def test_a_file_is_a_module_and_a_module_alone_is_all_its_registered_flows(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_registry, "_flows", {})
    registered = FLOW.replace("async def order", "import holdfast\n@holdfast.flow\nasync def order")
    more = "\n@holdfast.flow\nasync def refund(ctx: Context, item: str) -> None:\n    await ctx.approval('go')\n"
    assert check(FLOW, target="shop_orders.py:order")[:2] == (
        0,
        "✓ order-1 (paused) fits\n1 open run, 0 would break.\n",
    )
    assert "registers no flow" in check(FLOW, target="shop_orders")[2]
    assert check(registered, target="shop_orders.py")[0] == 0
    with pytest.raises(RunPaused):
        asyncio.run(run_flow(refund, "book", run_id="refund-1", store=tmp_path / "orders.db"))

    code, out, _ = check(registered + more.replace("item: str", "item: str, why: str"), target="shop_orders")

    assert code == 1
    assert "✓ order-1 of order (paused) fits" in out
    assert "? refund-1 of refund (paused) unclear" in out
    assert "2 open runs, 0 would break, 1 cannot be judged." in out


def test_wrong_usage_is_told_from_a_run_that_breaks_and_makes_no_store(check: Check, tmp_path: Path) -> None:
    code, out, err = check(FLOW)

    assert (code, out) == (2, "")
    assert "There is no store orders.db" in err
    assert not (tmp_path / "orders.db").exists()
    (tmp_path / "orders.db").touch()
    assert check("order = 3\n")[0] == 2
    assert check("import nothing_of_this_name\n")[0] == 2
    assert check(FLOW)[:2] == (0, "There are no open runs of shop_orders:order.\n")
