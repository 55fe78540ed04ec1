"""A tool call that needs a person, asked for in front of the live tree of `holdfast run`."""

import json
from pathlib import Path

import pytest
from tests.acceptance.cli.terminal import PATIENCE_S, Terminal, shell
from tests.model_server import ASKS_BEFORE_TOUCH, ModelServer, Says, asks, own_persona

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)
DRAFT = {
    "runId": "",
    "phaseKey": "final",
    "requirements": "Numbers are added.",
    "acceptance_criteria": ["1 + 1 is 2"],
    "approach": "Change the sign in calc.py.",
    "risks": [],
}


def test_a_tool_call_is_asked_for_and_the_run_goes_on_where_it_stood(repo: Path, environment: dict[str, str]) -> None:
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text().replace("risk: medium", "risk: low"))
    touch = asks(("execute", {"command": "touch made.txt"}))

    def write(key: str) -> object:
        content = json.dumps(DRAFT | {"phaseKey": key, "runId": "00000000-0000-4000-8000-000000000000"})
        return asks(("write_file", {"file_path": f"/.holdfast/results/{key}.json", "content": content}))

    script = {
        "You do phase `draft`": [touch, touch, write("draft"), Says("Done.")],
        "": [write("final"), Says("Done.")],
    }
    with ModelServer(script) as server:  # type: ignore[arg-type]
        personas = Path(environment["XDG_CONFIG_HOME"]) / "holdfast" / "personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(own_persona(server.address, "spec_write, shell", ASKS_BEFORE_TOUCH))
        words = ("run", "small", "--repo", str(repo), "--persona", "author=mine", "--requirements", "Add numbers")
        with Terminal(*words, env=environment) as terminal:
            terminal.wait_for("May the agent call execute?")
            terminal.wait_for("later (l) >")
            assert "touch made.txt" in terminal.screen
            terminal.type("r\n")
            terminal.wait_for("Why?")
            terminal.type("not yet\n")
            terminal.wait_for("May the agent call execute?")
            terminal.wait_for("later (l) >")
            terminal.type("a\n")
            terminal.wait_for("completed ·")
            assert terminal.end() == 0

    places = [place for place in server.places if place[0]]
    assert places == [("You do phase `draft`", number) for number in range(4)]  # nothing was asked of the model twice
    (run,) = json.loads(shell("runs", "list", "--json", env=environment).stdout)
    shown = json.loads(shell("runs", "show", run["run_id"], "--json", env=environment).stdout)
    assert [(row["action"], row["comment"]) for row in shown["approvals"]] == [("reject", "not yet"), ("approve", "")]
    assert shell("db", "check", env=environment).returncode == 0
