"""`--detach` for real: the command hands the run over and ends, and a server in the background does the work."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.forked_command import Speaking
from tests.support.terminal import shell


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
