"""`--detach` for real: the command hands the run over and ends, and a server in the background does the work."""

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.forked_command import Speaking
from tests.support.terminal import shell

from holdfast import Context, RunPaused, run_flow, start_flow
from holdfast.flows.service.start import start_scheduled_flow
from holdfast.runtime.flow_rows import FlowOptions


@pytest.fixture
def serving(environment: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """A server as a person starts it, on a free port."""
    server = start_serving(environment, tmp_path)
    yield
    server.end(signal.SIGTERM)


def start_serving(environment: dict[str, str], folder: Path) -> Speaking:
    server = Speaking(["serve", "--port", "0"], environment, folder / "server.log")
    assert re.search(r"serves http://127.0.0.1:\d+/", server.read_line())
    return server


def detach(repo: Path, environment: dict[str, str]) -> str:
    done = shell(
        *("run", "small", "--repo", str(repo), "--simulate", "--requirements", "Add numbers", "--detach", "--json"),
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["state"] == "pending"
    assert f"holdfast runs watch {made['run_id'][:8]}" in done.stderr
    return str(made["run_id"])


def show(run_id: str, environment: dict[str, str]) -> Any:
    return json.loads(shell("runs", "show", run_id, "--json", env=environment).stdout)


@pytest.mark.usefixtures("serving")
def test_a_detached_run_is_driven_by_the_server_to_its_question_and_after_the_answer_to_its_end(
    repo: Path, environment: dict[str, str]
) -> None:
    run_id = detach(repo, environment)

    watched = shell("runs", "watch", run_id, env=environment)
    assert (watched.returncode, "waits for a person" in watched.stderr) == (3, True)
    (question,) = json.loads(shell("approvals", "--json", env=environment).stdout)
    assert shell("approve", question["approval_id"], env=environment).returncode == 0

    seen = shell("runs", "events", run_id, "--follow", env=environment)  # ends with the run

    assert "run completed" in seen.stdout
    assert show(run_id, environment)["state"] == "completed"


def test_a_run_that_was_detached_before_is_found_by_the_next_server(
    repo: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    run_id = detach(repo, environment)
    assert show(run_id, environment)["state"] == "pending"

    server = start_serving(environment, tmp_path)
    watched = shell("runs", "watch", run_id, env=environment)
    server.end(signal.SIGTERM)

    assert watched.returncode == 3
    assert show(run_id, environment)["pause_reason"] == "approval"


def test_a_fork_and_a_resume_that_are_detached_are_taken_by_the_next_server(
    repo: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    run_id = detach(repo, environment)
    assert shell("resume", run_id, "--yes", env=environment).returncode == 0
    forked = shell("fork", run_id, "draft", "--detach", "--json", env=environment)
    fork = json.loads(forked.stdout)
    assert (fork["state"], "waits for holdfast serve" in forked.stderr) == ("pending", True), forked.stderr
    other = detach(repo, environment)
    assert shell("pause", other, env=environment).returncode == 0

    resumed = shell("resume", other, "--detach", "--requirements", "Add words", "--json", env=environment)
    assert json.loads(resumed.stdout) == {"run_id": other, "state": "paused"}
    server = start_serving(environment, tmp_path)
    watched = [shell("runs", "watch", each, env=environment) for each in (fork["run_id"], other)]
    server.end(signal.SIGTERM)

    assert [done.returncode for done in watched] == [3, 3]
    assert [show(each, environment)["pause_reason"] for each in (fork["run_id"], other)] == ["approval"] * 2
    assert show(other, environment)["requirements_md"] == "Add words"
    over = shell("resume", run_id, "--detach", env=environment)
    assert (over.returncode, "run_already_terminal" in over.stderr) == (1, True), over.stderr
    whole = shell("retry", other, "--detach", env=environment)
    assert (whole.returncode, "run_not_in_state" in whole.stderr) == (1, True), whole.stderr


def test_a_run_that_waits_for_a_person_says_so_though_it_is_left_to_others(start: Command, holdfast: Command) -> None:
    run_id = start().json["run_id"]

    said = holdfast("resume", run_id, "--detach")
    read = holdfast("resume", run_id, "--detach", "--json")

    (waiting,) = holdfast("approvals", "--json").json
    assert (said.code, read.code, read.json) == (3, 3, {"run_id": run_id, "state": "paused"})
    assert ".holdfast/results/draft.json" in said.err
    assert f"holdfast approve {waiting['approval_id'][:8]}" in said.err
    assert "waits for holdfast serve" not in said.err
    holdfast("approve", waiting["approval_id"])
    assert holdfast("resume", run_id, "--detach").code == 0
    # What is to be done anew asks nothing yet.
    again = holdfast("resume", start().json["run_id"], "--detach", "--requirements", "Add words")
    assert (again.code, "waits for holdfast serve" in again.err) == (0, True), again.err


def test_a_run_without_money_says_so_though_it_is_left_to_others(start: Command, holdfast: Command) -> None:
    run_id = start("--budget", "0.000001").json["run_id"]

    poor = holdfast("resume", run_id, "--detach")
    assert (poor.code, f"holdfast budget {run_id[:8]} --add" in poor.err) == (3, True), poor.err

    holdfast("budget", run_id, "--add", "5")
    assert holdfast("resume", run_id, "--detach").code == 0


def test_that_nobody_is_there_to_approve_everything_is_said(start: Command, holdfast: Command) -> None:
    said = "With --detach, --yes answers no question of the run: see holdfast approvals."
    done = [start("--detach", "--yes")]
    run_id = done[0].json["run_id"]
    done += [holdfast(*verb, "--detach", "--yes") for verb in (("resume", run_id), ("retry", run_id))]
    holdfast("resume", run_id, "--yes")
    done += [holdfast("fork", run_id, "draft", "--detach", "--yes")]

    assert [each.err.splitlines()[0] for each in done] == [said] * 4
    assert start("--detach").err.splitlines()[0] != said


async def asks(ctx: Context) -> Any:
    return await ctx.approval("ship", show={"number": 7})


async def ends(ctx: Context, is_well: bool) -> None:
    await ctx.step("work", lambda: 1 if is_well else 1 / 0)


def test_a_flow_that_is_left_to_others_is_told_of_as_a_run_is(
    holdfast: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    store = Path(environment["HOLDFAST_DATA_DIR"]) / "holdfast.db"
    store.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_make_flows(store))

    waits = holdfast("resume", "asks", "--detach")
    begins = holdfast("resume", "new-one", "--detach", "--json")
    queued = holdfast("resume", "later", "--detach")
    over = holdfast("resume", "well", "--detach")
    failed = holdfast("resume", "badly", "--detach")
    retried = holdfast("retry", "badly", "--detach", "--json")
    forked = holdfast("fork", "well", "work", "--detach", "--json")
    module = [holdfast(*verb, "--detach", "--flows", "shop") for verb in (("resume", "asks"), ("retry", "badly"))]

    assert (waits.code, "Approve: holdfast approve asks:ship" in waits.out) == (3, True)
    assert (begins.code, begins.json) == (0, {"run_id": "new-one", "state": "pending"})
    assert (queued.code, "Run later stands in line: it waits for earlier runs of schedule nightly." in queued.err) == (
        0,
        1,
    )
    assert (over.code, "run_already_terminal: Run well is completed." in over.err) == (1, True), over.err
    assert (failed.code, "holdfast retry badly" in failed.err) == (1, True), failed.err
    assert (retried.code, retried.json) == (0, {"run_id": "badly", "state": "pending"})
    assert (forked.code, forked.json["state"], set(forked.json)) == (0, "pending", {"run_id", "state"})
    assert [(each.code, "--flows" in each.err) for each in module] == [(2, True)] * 2


def test_no_module_is_loaded_for_a_flow_that_is_left_to_others(
    holdfast: Command, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Path(environment["HOLDFAST_DATA_DIR"]) / "holdfast.db"
    store.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_make_flows(store))
    monkeypatch.setenv("HOLDFAST_FLOWS", "no.such.module")

    assert holdfast("retry", "badly").code == 1
    assert holdfast("retry", "badly", "--detach").code == 0
    assert holdfast("fork", "well", "work", "--detach").code == 0


async def _make_flows(store: Path) -> None:
    with pytest.raises(RunPaused):
        await run_flow(asks, run_id="asks", store=store)
    await start_flow("order", 1, run_id="new-one", store=store)
    options = FlowOptions(schedule="nightly", is_in_line=True)
    for run_id in ("now", "later"):
        await start_scheduled_flow("order", [1], {}, run_id=run_id, store=store, options=options)
    await run_flow(ends, True, run_id="well", store=store)
    with pytest.raises(ZeroDivisionError):
        await run_flow(ends, False, run_id="badly", store=store)
