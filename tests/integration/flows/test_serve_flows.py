"""`holdfast serve --flows`, and flows over HTTP and in the commands, as a person uses them."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.progress_limit import wait_until
from typer.testing import CliRunner

from holdfast import Context, run_flow, start_flow
from holdfast.cli.app import app
from holdfast.errors import ConfigInvalid

FLOWS = """
from holdfast import Context, flow

@flow("order")
async def order(ctx: Context, number: int) -> str:
    await ctx.step("charge", lambda: {"number": number})
    await ctx.sleep(0.01)
    await ctx.approval("ship", show={"number": number})
    return await ctx.step("ship", lambda: f"shipped {number}")
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text('[flows]\nmodules = ["shop.py"]\n')
    (tmp_path / "shop.py").write_text(FLOWS)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "")  # what --store sets is taken back after the test


@pytest.fixture
def server(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    code = "import typer; from holdfast.cli.commands.serve import serve; typer.run(serve)"
    command = [sys.executable, "-c", code, "--port", "0", "--no-auth", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    yield process
    process.kill()
    process.communicate()


def call(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_a_server_with_flows_drives_them_shows_them_and_takes_answers(
    server: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert server.stdout is not None
    address = re.search(r"http://\S+", server.stdout.readline())
    assert address is not None
    store = tmp_path / "data" / "holdfast.db"
    with httpx.Client(base_url=address[0], timeout=None) as client:
        wait_until(lambda: client.get("api/flows").status_code == 200, "the server to answer")
        asyncio.run(start_flow("order", 7, run_id="order-7", store=store, tags={"team": "x"}))

        def is_state(state: str) -> bool:
            return bool(client.get("api/flows/order-7").json()["state"] == state)

        wait_until(lambda: is_state("paused"), "the flow to ask")
        detail = client.get("api/flows/order-7").json()
        assert [(step["type"], step["key"]) for step in detail["steps"]] == [
            ("step", "charge"),
            ("timer", "sleep"),
            ("approval", "ship"),
        ]
        assert detail["questions"][0]["show"] == {"number": 7}
        assert json.loads(call("approvals", "--json"))[0]["approval_id"] == "order-7:ship"
        answer = {"key": "ship", "action": "approve"}
        origin = {"Origin": address[0].rstrip("/")}
        assert client.post("api/flows/order-7/answer", json=answer, headers=origin).status_code == 200
        wait_until(lambda: is_state("completed"), "the flow to go on by itself")
        (listed,) = client.get("api/flows", params={"flow": "order"}).json()["items"]
        assert (listed["run_id"], listed["tags"]) == ("order-7", {"team": "x"})
        with client.stream("GET", "api/runs/order-7/events") as stream:
            assert "event: done" in "".join(stream.iter_text())
        assert client.get("api/flows/nobody").status_code == 404
        assert client.post("api/flows/order-7/abort", headers=origin).status_code == 409
        assert "holdfast_flows" in client.get("metrics").text
    server.send_signal(signal.SIGTERM)
    server.wait()
    assert "shipped 7" in call("runs", "show", "order-7")
    assert json.loads(call("runs", "list", "--flow", "order", "--json"))[0]["state"] == "completed"


def test_the_commands_work_on_a_store_that_only_flows_have_written(tmp_path: Path) -> None:
    store = str(tmp_path / "flows.db")
    asyncio.run(start_flow("order", 1, run_id="one", store=store, tags={"team": "x"}))
    asyncio.run(_pause(store))
    assert {row["run_id"] for row in json.loads(call("runs", "list", "--store", store, "--json"))} == {"one", "two"}
    assert [
        row["run_id"] for row in json.loads(call("runs", "list", "--tag", "team=x", "--store", store, "--json"))
    ] == ["one"]
    assert "is to be started" in call("runs", "list", "--store", store)
    assert "waits for ship: packed, nearly out" in call("runs", "list", "--store", store)
    assert "waits for ship" in call("runs", "show", "two", "--store", store)
    watched = CliRunner().invoke(app, ["runs", "watch", "two", "--store", store])
    assert watched.exit_code == 3
    assert "Approve: holdfast approve two:ship" in watched.stdout
    assert "Then watch on: holdfast runs watch two" in watched.stdout
    missing = CliRunner().invoke(app, ["runs", "show", "nobody", "--store", store])
    assert str(missing.exception).startswith(f"There is no run 'nobody' in {store}. ")
    assert json.loads(call("runs", "show", "two", "--store", store, "--json"))["questions"][0]["key"] == "ship"
    assert "two:ship" in call("approvals", "--store", store)
    assert "number" in call("approvals", "show", "two", "--store", store)
    call("approve", "two:ship", "--comment", "go", "--store", store)
    assert "answered by" in call("runs", "events", "two", "--store", store)
    assert "cancelled" in call("abort", "one", "--store", store)
    with pytest.raises(ValueError, match="none left"):
        asyncio.run(run_flow(_fail, run_id="three", store=store))
    assert "  ValueError: none left" in call("runs", "show", "three", "--store", store)
    listed = call("runs", "list", "--store", store)
    assert "ValueError: none left" in listed
    assert "cancelled by" in listed
    assert "cancelled by" in call("runs", "show", "one", "--store", store)
    refused = CliRunner().invoke(app, ["runs", "list", "--store", str(tmp_path / "none.db")])
    assert isinstance(refused.exception, ConfigInvalid)
    assert not (tmp_path / "none.db").exists()


def test_a_flow_is_resumed_and_deleted_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/flows.db")
    asyncio.run(start_flow("order", 3, run_id="three", store=tmp_path / "flows.db"))

    waiting = CliRunner().invoke(app, ["resume", "three"])
    assert (waiting.exit_code, "three:ship" in waiting.stdout) == (3, True)
    refused = CliRunner().invoke(app, ["runs", "rm", "three", "--yes"])
    assert (refused.exit_code, "run_not_in_state" in refused.output) == (1, True)
    call("approve", "three:ship")
    assert json.loads(call("resume", "three", "--json"))["result"] == "shipped 3"
    assert json.loads(call("runs", "rm", "three", "--yes", "--json")) == [{"run_id": "three", "error": None}]
    assert json.loads(call("runs", "list", "--json")) == []


async def _pause(store: str) -> None:
    from holdfast import RunPaused

    async def order(ctx: Context, number: int) -> None:
        ctx.set_status("packing")
        ctx.set_status("packed, nearly out")
        await ctx.approval("ship", show={"number": number})

    with pytest.raises(RunPaused):
        await run_flow(order, 2, run_id="two", store=store)


async def _fail(_ctx: Context) -> None:
    raise ValueError("none left")


def test_a_server_can_be_pointed_at_the_store_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Path | None] = []
    monkeypatch.setattr("holdfast.api.serve.run_server", lambda *_, config, **__: served.append(config.database_path))
    asyncio.run(start_flow("order", 3, run_id="three", store=tmp_path / "flows.db"))

    call("serve", "--store", str(tmp_path / "flows.db"))

    assert served == [tmp_path / "flows.db"]
    assert CliRunner().invoke(app, ["serve", "--store", str(tmp_path / "nowhere.db")]).exit_code != 0
    assert len(served) == 1
