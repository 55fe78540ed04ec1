"""A person lets an agent make a call with other arguments than it wanted: by a command, and at the question."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.model_server import ASKS_BEFORE_TOUCH, Asks, ModelServer, Reply, Says, asks, own_persona
from tests.support.terminal import Terminal, shell

ARGUMENTS = {"command": "touch made.txt"}
CHANGED = {"command": "touch changed.txt"}


def write(key: str) -> Asks:
    content = {
        "runId": "00000000-0000-4000-8000-000000000000",
        "phaseKey": key,
        "requirements": "Numbers are added.",
        "acceptance_criteria": ["1 + 1 is 2"],
        "approach": "Change the sign in calc.py.",
        "risks": [],
    }
    return asks(("write_file", {"file_path": f"/.holdfast/results/{key}.json", "content": json.dumps(content)}))


@pytest.fixture
def server(repo: Path, environment: dict[str, str]) -> Iterator[ModelServer]:
    """A model that wants to make a file, and a persona that has to ask for it."""
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text().replace("risk: medium", "risk: low"))
    draft: list[Reply] = [asks(("execute", ARGUMENTS)), write("draft"), Says("Done.")]
    with ModelServer({"You do phase `draft`": draft, "": [write("final"), Says("Done.")]}) as started:
        personas = Path(environment["XDG_CONFIG_HOME"]) / "holdfast" / "personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(own_persona(started.address, "spec_write, shell", ASKS_BEFORE_TOUCH))
        yield started


def words(repo: Path) -> tuple[str, ...]:
    return ("run", "small", "--repo", str(repo), "--persona", "author=mine", "--requirements", "Add numbers")


def check_made(server: ModelServer, diff: str) -> None:
    """The call was made as the person said, and the agent knows."""
    message = next(received.body["messages"][-1] for received in server.received if received.place[1] == 1)
    assert message["role"] == "tool"
    assert message["content"].startswith("A person changed the arguments")
    assert "changed.txt" in message["content"]
    assert "b/changed.txt" in diff
    assert "made.txt" not in diff


def test_the_command_takes_them_as_json(holdfast: Command, repo: Path, server: ModelServer) -> None:
    paused = holdfast(*words(repo), "--json")
    ((waiting,), run_id) = (holdfast("approvals", "--json").json, paused.json["run_id"])
    refused = [holdfast("approve", waiting["approval_id"], "--args", arguments) for arguments in ("touch x", "[1]", "")]
    still_waiting = holdfast("approvals", "--json").json
    approved = holdfast("approve", waiting["approval_id"], "--args", json.dumps(CHANGED), "--json")
    done = holdfast("resume", run_id, "--json")

    assert (paused.code, waiting["shown"]["args"]) == (3, ARGUMENTS)
    assert {answer.code for answer in refused} == {1}
    assert all("a JSON object" in answer.err and "--args" in answer.err for answer in refused)
    assert [row["approval_id"] for row in still_waiting] == [waiting["approval_id"]]
    assert (approved.code, approved.json["action"]) == (0, "approve")
    assert (done.code, done.json["state"]) == (0, "completed"), done
    check_made(server, holdfast("runs", "diff", run_id).out)


def test_arguments_for_what_is_no_tool_call_are_refused(start: Command, holdfast: Command) -> None:
    start()
    (waiting,) = holdfast("approvals", "--json").json

    refused = holdfast("approve", waiting["approval_id"], "--args", json.dumps(CHANGED))

    assert refused.code == 1
    assert refused.err.startswith("holdfast: config_invalid:")
    assert len(holdfast("approvals", "--json").json) == 1


def test_the_question_at_the_terminal_takes_them(repo: Path, environment: dict[str, str], server: ModelServer) -> None:
    with Terminal(*words(repo), env=environment) as terminal:
        terminal.wait_for("May the agent run “$ touch")
        terminal.wait_for("later (l) >")
        terminal.type("e\n")
        terminal.wait_for("The arguments as JSON >")
        terminal.type("touch changed.txt\n")
        terminal.wait_for("The arguments of a tool call are a JSON object.")
        terminal.wait_for("later (l) >")
        terminal.type("e\n")
        terminal.wait_for("The arguments as JSON >")
        terminal.type(json.dumps(CHANGED) + "\n")
        terminal.wait_for("completed ·")
        assert terminal.end() == 0

    (run,) = json.loads(shell("runs", "list", "--json", env=environment).stdout)
    check_made(server, shell("runs", "diff", run["run_id"], env=environment).stdout)
