"""What somebody without a key can see in a conversation: an edit with its diff, and a call that asks."""

from pathlib import Path

from tests.support.terminal import Terminal


def test_the_simulated_model_edits_asks_and_says_how(repo: Path, environment: dict[str, str]) -> None:
    env = {**environment, "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(repo.parent / "state")}
    with Terminal("--simulate", env=env, cwd=repo) as terminal:
        terminal.wait_for("edit README.md")
        terminal.wait_for("/help shows what can be said")
        terminal.type("edit calc.py\r")
        terminal.wait_for("has one more line")
        terminal.wait_for(" s · ")
        terminal.type("/diff\r")
        terminal.wait_for("+# Rehearsed change: edit calc.py")
        terminal.type("run git push --dry-run\r")
        terminal.wait_for("May the agent run “$ git push --dry-run”?")
        terminal.wait_for("later (l)")
        terminal.type("r not now\r")
        terminal.wait_for("It was not run")
        terminal.type("\x04")
        terminal.wait_for("Go on: holdfast --resume")
        assert terminal.end() == 0

    assert (repo / "calc.py").read_text() == "def add(a, b):\n    return a - b\n"
