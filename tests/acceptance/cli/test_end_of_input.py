"""Ctrl-D, Ctrl-C and a closed standard input, wherever a person is asked or watches: no traceback, no endless loop."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.terminal import HOLDFAST, Terminal, shell

CTRL_C, CTRL_D = "\x03", "\x04"
OWN_COMMAND = "setup: [[python3, --version]]\n"


@pytest.fixture
def words(repo: Path) -> list[str]:
    return ["run", "small", "--repo", str(repo), "--simulate", "--requirements", "Add numbers"]


def assert_clean(screen: str) -> None:
    assert "Traceback" not in screen
    assert "internal_error" not in screen


@pytest.mark.parametrize(("key", "question"), [("c", "What should change?"), ("r", "Why?")])
def test_the_end_of_input_at_a_comment_is_later(
    words: list[str], environment: dict[str, str], key: str, question: str
) -> None:
    with Terminal(*words, env=environment) as terminal:
        terminal.wait_for("later (l) >")
        terminal.type(f"{key}\n")
        terminal.wait_for(question)
        terminal.type(CTRL_D)

        assert terminal.end() == 3

    assert "It waits for you" in terminal.screen
    assert_clean(terminal.screen)


def pretend_busybox(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """A `less` that knows none of the options of the usual one."""
    folder.mkdir()
    program = folder / "less"
    program.write_text("#!/bin/sh\necho 'BusyBox v1.36 multi-call binary.' >&2\nexit 1\n")
    program.chmod(0o755)
    return {**environment, "PATH": f"{folder}:{environment['PATH']}"}


@pytest.mark.parametrize("is_busybox", [False, True], ids=["usual", "busybox"])
@pytest.mark.parametrize(("key", "code"), [("q", None), (CTRL_D, None), (CTRL_C, 130)], ids=["q", "ctrl-d", "ctrl-c"])
def test_the_pager_ends_at_a_key(
    words: list[str], environment: dict[str, str], tmp_path: Path, key: str, code: int | None, is_busybox: bool
) -> None:
    del environment["PAGER"]
    environment["LINES"] = "5"
    env = pretend_busybox(tmp_path / "programs", environment) if is_busybox else environment
    with Terminal(*words, env=env, lines=5) as terminal:
        terminal.wait_for("later (l) >")
        terminal.type("d\n")
        terminal.wait_for("space shows more")
        terminal.type(" ")
        terminal.wait_for("space shows more")
        terminal.type(key)
        if code is None:
            terminal.wait_for("later (l) >")
            terminal.type("l\n")

        assert terminal.end() == (code or 3)
    assert_clean(terminal.screen)


@pytest.mark.parametrize(("key", "code"), [(CTRL_D, 1), (CTRL_C, 130), ("\n", 1)], ids=["ctrl-d", "ctrl-c", "enter"])
def test_nothing_is_agreed_to_without_a_yes(
    words: list[str], repo: Path, environment: dict[str, str], key: str, code: int
) -> None:
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text() + OWN_COMMAND)
    with Terminal(*words, env=environment) as terminal:
        terminal.wait_for("Agree to it")
        terminal.type(key)

        assert terminal.end() == code

    assert ("consent_required" in terminal.screen) is (code == 1)
    assert_clean(terminal.screen)
    assert shell("runs", "list", "--json", env=environment).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["runs", "watch"], "No process drives this run"),
        (["runs", "events", "--follow"], "No process drives this run"),
        (["runs", "logs", "--follow"], "No process drives this run"),
    ],
    ids=["watch", "events", "logs"],
)
def test_ctrl_c_while_watching_ends_with_130(
    words: list[str], environment: dict[str, str], command: list[str], text: str
) -> None:
    run_id = json.loads(shell(*words, "--detach", "--json", env=environment).stdout)["run_id"]
    with Terminal(*command, run_id, env=environment) as terminal:
        terminal.wait_for(text)
        terminal.type(CTRL_C)

        assert terminal.end() == 130
    assert_clean(terminal.screen)


def test_ctrl_c_before_there_is_a_run_ends_with_130(words: list[str], environment: dict[str, str]) -> None:
    with Terminal(*words, env=environment, is_cold=True) as terminal:
        terminal.wait_for("starting")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
    assert_clean(terminal.screen)


def test_ctrl_c_ends_the_server_with_130(environment: dict[str, str]) -> None:
    with Terminal("serve", "--port", "0", "--no-browser", env=environment) as terminal:
        terminal.wait_for("Log in once")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
    assert_clean(terminal.screen)


@pytest.mark.parametrize(("key", "code"), [(CTRL_D, 0), (CTRL_C, 130)], ids=["ctrl-d", "ctrl-c"])
def test_the_demo_goes_on_by_itself_or_ends(environment: dict[str, str], tmp_path: Path, key: str, code: int) -> None:
    del environment["COLUMNS"]  # what the terminal itself says counts
    with Terminal("demo", env={**environment, "TMPDIR": str(tmp_path)}, columns=30, lines=12) as terminal:
        for text in ("spec: started", "plan: started", "kill -9", "run paused", "later (l)"):
            terminal.wait_for(text)  # each of its processes takes its time on a busy machine
        terminal.type(key)

        assert terminal.end() == code

    assert_clean(terminal.screen)
    assert [path.name for path in tmp_path.iterdir() if "holdfast-demo" in path.name] == []


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_needs_none_of_its_streams(environment: dict[str, str], closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {HOLDFAST} runs list --json {closed}"], env=environment, capture_output=True, check=False
    )

    assert done.returncode == 0
