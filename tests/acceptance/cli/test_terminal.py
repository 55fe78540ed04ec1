"""In a terminal and from a shell: live tree, questions, Ctrl-C, kill -9 and the demo, with real processes."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.progress_limit import waiting_until
from tests.support.terminal import HOLDFAST, Terminal, shell

SLOW = {"HOLDFAST_SIMULATE_DELAY_S": "0.4"}
VERY_SLOW = {"HOLDFAST_SIMULATE_DELAY_S": "4"}
STUCK = {"HOLDFAST_SIMULATE_DELAY_S": "60"}


@pytest.fixture
def arguments(repo: Path) -> list[str]:
    return ["run", "small", "--repo", str(repo), "--simulate", "--requirements", "Add numbers"]


def read(environment: dict[str, str], *arguments: str) -> Any:
    return json.loads(shell(*arguments, "--json", env=environment).stdout)


def run_id_on(screen: str) -> str:
    return re.findall(r"run ([0-9a-f-]{36})", screen)[0]


def test_a_person_watches_asks_for_changes_and_approves(arguments: list[str], environment: dict[str, str]) -> None:
    terminal = Terminal(*arguments, "--budget", "3", env={**environment, **SLOW}, is_cold=True)

    terminal.wait_for("of $3.00")
    terminal.wait_for("write_file")
    terminal.wait_for("later (l) >")
    assert "\a" in terminal.screen
    assert "phaseKey: draft" in terminal.screen
    terminal.type("d\n")
    terminal.wait_for("later (l) >")
    assert "diff --git" in terminal.screen
    terminal.type("maybe\n")
    terminal.wait_for("is none of these")
    terminal.type("c\n")
    terminal.wait_for("What should change?")
    terminal.type("Mention subtraction\n")
    terminal.wait_for("later (l) >")
    assert "Mention subtraction" in terminal.screen
    assert "attempt 2" in terminal.screen
    terminal.type("a\n")
    terminal.wait_for("completed ·")

    assert terminal.end() == 0
    run = read(environment, "runs", "show", run_id_on(terminal.screen))
    assert [approval["action"] for approval in run["approvals"]] == ["request_changes", "approve"]
    assert run["approvals"][0]["comment"] == "Mention subtraction"


@pytest.mark.parametrize(("keys", "code"), [("l\n", 3), ("\x04", 3), ("\x03", 130)], ids=["later", "ctrl-d", "ctrl-c"])
def test_later_leaves_the_question_open(
    arguments: list[str], environment: dict[str, str], keys: str, code: int
) -> None:
    terminal = Terminal(*arguments, env=environment, columns=40)
    terminal.wait_for("later (l) >")

    terminal.type(keys)

    assert terminal.end() == code
    assert "It waits for you" in terminal.screen
    assert len(read(environment, "approvals")) == 1


def test_ctrl_c_pauses_twice_leaves_at_once_and_the_run_goes_on(
    arguments: list[str], environment: dict[str, str]
) -> None:
    first = Terminal(*arguments, "--yes", env={**environment, **SLOW})
    first.wait_for("write_file")
    first.type("\x03")
    assert first.end() == 130
    run_id = run_id_on(first.screen)
    assert f"Go on: holdfast resume {run_id[:8]}" in first.screen
    run = read(environment, "runs", "show", run_id)
    assert (run["state"], run["pause_reason"]) == ("paused", "person")

    second = Terminal("resume", run_id, "--yes", env={**environment, **STUCK})
    second.wait_for("asks rehearsal-1")
    second.type("\x03")
    second.wait_for("Ctrl-C again leaves at once")
    second.type("\x03")
    assert second.end() == 130
    assert f"Go on: holdfast resume {run_id[:8]}" in second.screen

    done = read(environment, "resume", run_id, "--yes")
    assert done["state"] == "completed"
    assert_nothing_was_done_twice(environment, run_id)


AGENT = """#!/bin/sh
touch "$1/begun"
while [ ! -e "$1/gate" ]; do sleep 0.05; done
"""


def test_ctrl_c_says_that_a_coding_agent_goes_on_working(
    repo: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "agent.sh"
    script.write_text(AGENT)
    script.chmod(0o755)
    personas = tmp_path / "config" / "holdfast" / "personas"
    personas.mkdir(parents=True)
    (personas / "mine.yaml").write_text(
        f"name: mine\nversion: 1\nbackend: command\nargv: [{script}, {tmp_path}]\ncapabilities: [spec_write]\n"
    )
    words = ("run", "small", "--repo", str(repo), "--requirements", "x", "--persona", "author=mine")
    terminal = Terminal(*words, "--yes", "--unsandboxed", env=environment, columns=200)
    try:
        with waiting_until("the agent has begun"):
            while not (tmp_path / "begun").exists():
                time.sleep(0.02)
        terminal.type("\x03")
        assert terminal.end() == 130
        run_id = run_id_on(terminal.screen)
        assert "recorded first" not in terminal.screen
        assert f"Paused. The agent goes on, and holdfast resume {run_id[:8]} finds it again" in terminal.screen
    finally:
        (tmp_path / "gate").touch()


def test_killed_from_the_shell_resumed_from_the_shell(arguments: list[str], environment: dict[str, str]) -> None:
    with start(arguments, {**environment, **VERY_SLOW}) as process:
        assert process.stderr is not None
        run_id = read_run_id(process)
        wait_for_line(process, "write_file")
        process.send_signal(signal.SIGSTOP)
        while "store_busy" in (busy := shell("resume", run_id, env=environment)).stderr:
            # It stands in the middle of a commit: let it end that, and try again.
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
            process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGKILL)
        process.stderr.read()
    assert (busy.returncode, "run_busy" in busy.stderr) == (1, True), busy.stderr
    assert read(environment, "runs", "show", run_id)["state"] == "running"

    done = read(environment, "resume", run_id[:8], "--yes")

    assert done["state"] == "completed"
    assert_nothing_was_done_twice(environment, run_id)


def test_another_process_watches_and_pauses_a_run(arguments: list[str], environment: dict[str, str]) -> None:
    with start(arguments, {**environment, **VERY_SLOW}) as process:
        assert process.stderr is not None
        run_id = read_run_id(process)
        wait_for_line(process, "draft: started")
        watching = subprocess.Popen(
            [HOLDFAST, "runs", "watch", run_id], env=environment, stdout=subprocess.PIPE, text=True
        )
        paused = read(environment, "pause", run_id)
        output, _ = watching.communicate()
        process.stderr.read()
        assert process.wait() == 3

    assert paused["state"] == "paused"
    assert (watching.returncode, f"Go on: holdfast resume {run_id[:8]}" in output) == (3, True)


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [HOLDFAST, *arguments, "--yes"],
        env={**SLOW, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_run_id(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return next(line.removeprefix("run ").strip() for line in process.stderr if line.startswith("run "))


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    assert any(text in line for line in process.stderr)


def assert_nothing_was_done_twice(environment: dict[str, str], run_id: str) -> None:
    lines = shell("runs", "events", run_id, "--json", env=environment).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    for kind in ("model.response", "tool.result"):
        keys = [event["payload"]["key"] for event in events if event["kind"] == kind]
        assert len(keys) == len(set(keys)) > 0


def test_the_demo_holds_what_it_claims_and_needs_no_standard_input(tmp_path: Path, environment: dict[str, str]) -> None:
    # A cold start without standard input on a dumb terminal, as the least that it may be started with.
    closed = ["sh", "-c", f"exec {sys.executable} -m holdfast.cli.demo --fast <&-"]
    environment |= {"TMPDIR": str(tmp_path), "TERM": "dumb"}
    done = subprocess.run(closed, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"✗ kill -9 \d+", done.stdout)
    assert "a model call of phase plan: cut off, so it is made again." in done.stdout
    assert done.stdout.index("FAILED (failures=1)") < done.stdout.index("3 tests: OK")
    changed = {line.strip() for line in done.stdout.splitlines()}
    assert {"-    for position in range(len(prices) - 1):", "+    return sum(prices)"} <= changed
    claims = done.stdout.partition("What holds\n")[2].split("\n\n")[0].splitlines()
    assert len(claims) >= 10
    assert all(line.strip().startswith("✓") for line in claims)
    assert [path for path in tmp_path.iterdir() if "holdfast-demo" in path.name] == []
