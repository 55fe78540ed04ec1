"""A tool call that needs a person, asked for in front of the live tree of `holdfast run`: before it, and in doubt."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from tests.support.lost_command import CHARGE, count_charges, lose_the_charge
from tests.support.model_server import ASKS_BEFORE_TOUCH, Asks, ModelServer, Reply, Says, asks, own_persona
from tests.support.terminal import Terminal, shell

DRAFT = {
    "runId": "",
    "phaseKey": "final",
    "requirements": "Numbers are added.",
    "acceptance_criteria": ["1 + 1 is 2"],
    "approach": "Change the sign in calc.py.",
    "risks": [],
}


def write(key: str) -> Asks:
    content = json.dumps(DRAFT | {"phaseKey": key, "runId": "00000000-0000-4000-8000-000000000000"})
    return asks(("write_file", {"file_path": f"/.holdfast/results/{key}.json", "content": content}))


@pytest.fixture
def words(repo: Path) -> list[str]:
    """The command that starts a run whose phases nobody has to approve."""
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text().replace("risk: medium", "risk: low"))
    return ["run", "small", "--repo", str(repo), "--persona", "author=mine", "--requirements", "Add numbers"]


@contextmanager
def serving(environment: dict[str, str], *draft: Reply) -> Iterator[ModelServer]:
    """A model that does this in the first phase, and a persona of the user's on it."""
    script = {"You do phase `draft`": [*draft, write("draft"), Says("Done.")], "": [write("final"), Says("Done.")]}
    with ModelServer(script) as server:
        personas = Path(environment["XDG_CONFIG_HOME"]) / "holdfast" / "personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(own_persona(server.address, "spec_write, shell", ASKS_BEFORE_TOUCH))
        yield server


def read_only_run(environment: dict[str, str]) -> Any:
    (run,) = json.loads(shell("runs", "list", "--json", env=environment).stdout)
    return json.loads(shell("runs", "show", run["run_id"], "--json", env=environment).stdout)


def test_a_tool_call_is_asked_for_and_the_run_goes_on_where_it_stood(
    words: list[str], environment: dict[str, str]
) -> None:
    touch = asks(("execute", {"command": "touch made.txt"}))
    with serving(environment, touch, touch) as server, Terminal(*words, env=environment) as terminal:
        terminal.wait_for("May the agent run “$ touch")
        terminal.wait_for("later (l) >")
        assert "touch made.txt" in terminal.screen
        terminal.type("r\n")
        terminal.wait_for("Why?")
        terminal.type("not yet\n")
        terminal.wait_for("May the agent run “$ touch")
        terminal.wait_for("later (l) >")
        terminal.type("a\n")
        terminal.wait_for("completed ·")
        assert terminal.end() == 0

    places = [place for place in server.places if place[0]]
    assert places == [("You do phase `draft`", number) for number in range(4)]  # nothing was asked of the model twice
    run = read_only_run(environment)
    assert [(row["action"], row["comment"]) for row in run["approvals"]] == [("reject", "not yet"), ("approve", "")]
    assert shell("db", "check", env=environment).returncode == 0


@pytest.mark.parametrize(
    ("answers", "state", "charges"),
    [
        (["h", "charged 5"], "completed", 1),
        (["a"], "completed", 2),
        (["x"], "cancelled", 1),
        (["f"], "failed", 1),
    ],
    ids=["it happened", "run it again", "abort the run", "fail the phase"],
)
def test_of_a_call_in_flight_at_a_kill_a_person_says_what_became(
    words: list[str], environment: dict[str, str], answers: list[str], state: str, charges: int
) -> None:
    data_dir = Path(environment["HOLDFAST_DATA_DIR"])
    with serving(environment, asks(("execute", {"command": CHARGE}))) as server:
        lose_the_charge(Terminal(*words, env=environment), data_dir)
        (run,) = json.loads(shell("runs", "list", "--json", env=environment).stdout)
        with Terminal("resume", run["run_id"][:8], env=environment) as terminal:
            terminal.wait_for("Whether it happened is not known.")
            terminal.wait_for("later (l) >")
            assert "echo charged >> charges.txt" in terminal.screen  # what it is about
            if answers[0] == "h":
                assert f", begun on {gethostname()} at 20" in shell("approvals", env=environment).stdout
            terminal.type(f"{answers[0]}\n")
            for answer in answers[1:]:
                terminal.wait_for("What did it give?")
                terminal.type(f"{answer}\n")
            terminal.wait_for(f"{state} ·")
            assert terminal.end() == (0 if state == "completed" else 1)

    assert read_only_run(environment)["state"] == state
    assert count_charges(data_dir) == charges
    if answers[0] == "h":
        message = next(
            item.body["messages"][-1] for item in server.received if item.place == ("You do phase `draft`", 1)
        )
        assert (message["role"], message["content"]) == ("tool", "charged 5")
    assert shell("db", "check", env=environment).returncode == 0
