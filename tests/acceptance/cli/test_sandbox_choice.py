"""`--unsandboxed` and `restore`: what a person chooses, sees and takes back at the command line."""

import json
import subprocess

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.conversation_world import WORD, Open, World
from tests.support.model_server import Says, asks
from tests.support.terminal import shell

from holdfast.agents.tools.shell import probe_once
from holdfast.presentation.format import describe_sandbox

EMPTY = "find . -name '*.py' -delete"


def ask(here: World, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return shell(*arguments, env=here.env, cwd=here.repo)


def test_a_run_says_what_contains_its_commands(holdfast: Command, start: Command) -> None:
    usual, chosen = start("--yes").json["run_id"], start("--yes", "--unsandboxed").json["run_id"]

    contained = describe_sandbox(probe_once().kind, None)
    assert holdfast("runs", "show", usual, "--json").json["sandbox"] == contained
    assert f"\n  {contained}\n" in holdfast("runs", "show", usual).out
    assert holdfast("runs", "show", chosen, "--json").json["sandbox"].startswith("no sandbox, chosen by ")


@pytest.mark.parametrize("words", [["resume"], ["fork", "draft"]])
def test_the_choice_can_be_made_later(holdfast: Command, start: Command, words: list[str]) -> None:
    run_id = start().json["run_id"]

    done = holdfast(words[0], run_id, *words[1:], "--unsandboxed", "--yes", "--json")

    assert done.json["state"] == "completed", done.err
    facts = holdfast("runs", "show", done.json["run_id"], "--json").json
    assert facts["sandbox"].startswith("no sandbox, chosen by ")


def test_what_an_agent_deleted_in_a_conversation_is_put_back(world: Open) -> None:
    here = world([asks(("execute", {"command": EMPTY})), Says("All gone."), Says(f"{WORD}.")])
    first = ask(here, "--unsandboxed", "-p", "Tidy up.", "--json")
    assert first.returncode == 0, first.stderr
    short = json.loads(first.stdout)["run_id"][:8]
    (run,) = here.read("runs", "list")
    facts = here.read("runs", "show", short)
    root = facts["worktree_root"]
    assert facts["sandbox"].startswith("no sandbox, chosen by ")

    listed = ask(here, "restore", short)
    (call,) = json.loads(ask(here, "restore", short, "--json").stdout)
    assert EMPTY in listed.stdout
    assert f"holdfast restore {short} --before {call['before']}" in listed.stdout
    assert subprocess.run(["ls", root], capture_output=True, text=True, check=True).stdout.split() == []
    restored = ask(here, "restore", short, "--before", str(call["before"]), "--json")

    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["tree"] == call["tree"]
    assert subprocess.run(["ls", root], capture_output=True, text=True, check=True).stdout.split() == ["calc.py"]
    assert ask(here, "--resume", short, "-p", "And now?").stdout == f"{WORD}.\n"
    assert run["run_id"].startswith(short)
