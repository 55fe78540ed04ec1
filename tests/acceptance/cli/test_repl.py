"""The conversation in a terminal, with a real model server on loopback: chat, kill, interrupt, questions, files."""

import base64
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.support.conversation_world import KEY, LONG, WORD, Open, endless, leave, wait_for_answer
from tests.support.lost_command import CHARGE, count_charges, lose_the_charge
from tests.support.model_server import Asks, Says, asks
from tests.support.terminal import Terminal, shell


def keys_of(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["payload"]["key"] for event in events if event["kind"] == kind]


def test_a_conversation_has_turns_tools_and_a_memory(world: Open) -> None:
    here = world([asks(("read_file", {"file_path": "/calc.py"})), Says("It subtracts."), Says("Yes, it should add.")])
    terminal = here.open(is_cold=True)

    terminal.type("What does add do?\r")
    wait_for_answer(terminal, "It subtracts.")
    terminal.type("Is that wrong?\r")
    wait_for_answer(terminal, "Yes, it should add.")
    terminal.type("/expand\r")
    terminal.wait_for("return a - b")
    terminal.type("/cost\r")
    terminal.wait_for("turn 2: 1 model call,")
    leave(terminal)

    assert "▸ read_file /calc.py" in terminal.screen.replace("\x1b[0m", "").replace("\x1b[2m", "")
    request = here.last_request()
    assert request.index("What does add do?") < request.index("It subtracts.") < request.index("Is that wrong?")
    assert here.server.places == [("", 0), ("", 1), ("", 2)]
    (run,) = here.read("runs", "list")
    assert (run["workflow"], run["state"], run["pause_reason"]) == ("conversation", "paused", "message")
    assert shell("db", "check", env=here.env).returncode == 0


def test_killed_in_the_middle_of_an_answer_it_goes_on_without_asking_twice(world: Open) -> None:
    here = world([asks(("ls", {"path": "/"})), [endless(), Says(f"Nothing was lost: {WORD}.")]])
    terminal = here.open()
    terminal.type("Look around.\r")
    terminal.wait_for("word1 ")
    here.wait_for_requests(2)
    terminal.kill()

    again = here.open("--resume")
    wait_for_answer(again, WORD)
    leave(again)

    assert "Look around." in again.screen
    assert here.server.places == [("", 0), ("", 1), ("", 1)]  # only the call in flight was made again
    events = here.events()
    for kind in ("model.response", "tool.result", "message.received", "phase.completed"):
        found = [event for event in events if event["kind"] == kind]
        assert len(found) == len({json.dumps(event["payload"].get("key", event["seq"])) for event in found}) > 0
    assert len(keys_of(events, "model.response")) == 2


def test_a_message_that_nobody_answered_yet_is_answered_after_a_kill(world: Open) -> None:
    here = world([[endless(), Says("First."), Says("First.")], Says(f"Second: {WORD}.")])
    terminal = here.open()
    terminal.type("One\r")
    terminal.wait_for("word1 ")
    terminal.type("Two\r")
    terminal.wait_for("queued")
    terminal.kill()

    again = here.open("--resume")
    wait_for_answer(again, WORD)
    leave(again)

    request = here.last_request()
    assert request.index("One") < request.index("First.") < request.index("Two")
    assert len([event for event in here.events() if event["kind"] == "message.received"]) == 2


def test_a_message_reaches_the_agent_while_it_works(world: Open) -> None:
    is_said = threading.Event()
    working = Asks((("ls", {"path": "/"}),), text=LONG, holds=is_said)
    here = world([working, Says(f"Understood: {WORD}.")])
    terminal = here.open()
    terminal.type("Look around.\r")
    terminal.wait_for("word1 ")
    terminal.type("But leave the tests alone.\r")
    terminal.wait_for("queued")
    is_said.set()
    terminal.wait_for("the agent was told what you said meanwhile")
    wait_for_answer(terminal, WORD)
    leave(terminal)

    assert "But leave the tests alone." in here.last_request()
    assert here.server.places == [("", 0), ("", 1)]  # in the same turn, not in one of its own
    assert len([event for event in here.events() if event["kind"] == "phase.started"]) == 1


def test_ctrl_c_interrupts_the_answer_and_the_conversation_stays(world: Open) -> None:
    here = world([[endless(), Says(f"Shorter: {WORD}.")], Says("Unused.")])
    terminal = here.open()
    terminal.type("Tell me everything.\r")
    terminal.wait_for("word1 ")
    terminal.type("\x03")
    terminal.wait_for("interrupted; what was done so far stays")
    terminal.type("Shorter, please.\r")
    wait_for_answer(terminal, WORD)
    leave(terminal)

    assert "the person interrupted it" in here.last_request()
    turns = [event for event in here.events() if event["kind"] == "phase.completed"]
    assert [turn["payload"].get("error", {}).get("code") for turn in turns] == ["interrupted", None]
    assert shell("db", "check", env=here.env).returncode == 0


def test_a_tool_call_is_asked_for_inline(world: Open) -> None:
    touch = asks(("execute", {"command": "touch made.txt"}))
    here = world([touch, touch, Says(f"Made: {WORD}.")])
    here.env["VISUAL"] = "sh -c 'echo Why it was made. >> \"$0\"'"
    terminal = here.open()
    terminal.type("Make a file.\r")
    terminal.wait_for("May the agent run “$ touch")
    terminal.wait_for("later (l)")
    terminal.type("r not yet\r")
    terminal.wait_for("May the agent run “$ touch")
    terminal.wait_for("later (l)")
    terminal.type("l\r")
    terminal.wait_for("It stays open")
    leave(terminal)

    again = here.open("--resume")
    again.wait_for("later (l)")
    again.type("a\r")
    wait_for_answer(again, WORD)
    again.type("/diff\r")
    again.wait_for("made.txt")
    again.type("/merge\r")
    again.wait_for("A made.txt")
    again.wait_for("cancel (c) >")
    again.type("c\n")
    again.wait_for("Nothing was merged.")
    assert not (here.repo / "made.txt").exists()
    again.type("/merge\r")
    again.wait_for("cancel (c) >")
    again.type("e\n")
    again.wait_for("Why it was made")
    again.wait_for("cancel (c) >")
    again.type("m\n")
    again.wait_for("now at")
    again.type("/merge\r")
    again.wait_for("nothing to do", "nothing to merge")
    leave(again)

    assert "not yet" in here.last_request()
    assert (here.repo / "made.txt").exists()
    message = subprocess.run(["git", "log", "-1", "--format=%B"], cwd=here.repo, capture_output=True, text=True).stdout
    assert message.startswith("Add made.txt\n\nConversation ")
    assert message.rstrip().endswith("Why it was made.")
    assert "Make a file." not in message
    assert here.server.places == [("", 0), ("", 1), ("", 2)]


def test_of_a_call_in_flight_at_a_kill_the_person_says_what_became(world: Open) -> None:
    here = world([asks(("execute", {"command": CHARGE})), Says(f"Paid: {WORD}.")])
    data_dir = Path(here.env["HOLDFAST_DATA_DIR"])
    terminal = here.open()
    terminal.type("Charge it.\r")
    lose_the_charge(terminal, data_dir)

    again = here.open("--resume")
    again.wait_for("Whether it happened is not known.")
    again.wait_for("it happened (h WHAT IT GAVE)")
    assert "echo charged >> charges.txt" in again.screen
    again.type("yes\r")
    again.wait_for("'yes' is none of these.")
    again.type("h charged 5\r")
    wait_for_answer(again, WORD)
    leave(again)

    assert count_charges(data_dir) == 1
    assert [m["content"] for m in here.server.received[-1].body["messages"] if m["role"] == "tool"] == ["charged 5"]
    assert shell("db", "check", env=here.env).returncode == 0


def test_files_that_are_mentioned_go_along_but_no_secrets(world: Open) -> None:
    here = world([Says(f"Seen: {WORD}.")])
    (here.repo / ".env").write_text("PASSWORD=do-not-tell-me\n")
    (here.repo / "notes.txt").write_text(f"the key is {KEY}\n")
    (here.repo / "big.txt").write_text("x" * 200_000)
    picture = b"\x89PNG\r\n\x1a\n" + b"a picture"
    (here.repo / "shot.png").write_bytes(picture)
    terminal = here.open()

    terminal.type("Compare @calc.py, @notes.txt, @.env, @shot.png and @big.txt; mail me@example.com.\r")
    wait_for_answer(terminal, WORD)
    leave(terminal)

    request = here.last_request()
    assert "return a - b" in request
    assert f"data:image/png;base64,{base64.b64encode(picture).decode()}" in request
    assert "image shot.png (PNG, 17 B)" in terminal.screen
    assert "do-not-tell-me" not in request
    assert KEY not in request
    assert "xxxx" in request
    assert len(request) < 100_000
    assert "@.env was left out" in terminal.screen
    written = [path for path in here.repo.parent.rglob("*") if path.is_file() and path.name != "notes.txt"]
    assert not any(KEY.encode() in path.read_bytes() for path in written)


def test_the_person_and_the_model_can_be_changed_on_the_way(world: Open) -> None:
    here = world([Says("From the first."), Says(f"From the second: {WORD}.")])
    terminal = here.open()
    terminal.type("Who are you?\r")
    wait_for_answer(terminal, "From the first.")
    terminal.type("/model other-model\r")
    terminal.wait_for("answers from your next message on")
    terminal.type("And now?\r")
    wait_for_answer(terminal, WORD)
    terminal.type("/persona nobody\r")
    terminal.wait_for("There is no persona 'nobody'.")
    terminal.type("/modle x\r")
    terminal.wait_for("Did you mean '/model'?")
    leave(terminal)

    assert [received.body["model"] for received in here.server.received] == ["my-model", "other-model"]


def test_lines_history_and_completion(world: Open) -> None:
    here = world([Says("Two lines."), Says(f"Again: {WORD}.")])
    terminal = here.open()
    terminal.type("first line\\\r")
    terminal.type("second line\x1b\r")
    terminal.type("third line\r")
    wait_for_answer(terminal, "Two lines.")
    terminal.type("/per")
    terminal.wait_for("let someone else answer")  # what the menu says of it
    terminal.type("\x15")  # empties the line
    terminal.type("\x1b[A\r")  # the one before
    wait_for_answer(terminal, WORD)
    leave(terminal)

    contents = [m["content"] for m in here.server.received[-1].body["messages"] if m["role"] == "user"]
    assert contents == ["first line\nsecond line\nthird line"] * 2
    history = Path(here.env["XDG_STATE_HOME"]) / "holdfast" / "history"
    assert history.stat().st_mode & 0o077 == 0


def test_without_a_key_it_rehearses_and_starts_a_workflow_from_what_was_said(
    repo: Path, environment: dict[str, str]
) -> None:
    env = {name: value for name, value in environment.items() if not name.endswith("_API_KEY")}
    env |= {"XDG_STATE_HOME": str(repo.parent / "state"), "PROMPT_TOOLKIT_NO_CPR": "1", "PATH": _path_to_git(repo)}
    terminal = Terminal(env=env, cwd=repo)
    terminal.wait_for("This is a rehearsal")
    terminal.wait_for("/help shows what can be said")
    terminal.type("Add numbers, do not subtract them.\r")
    terminal.wait_for("has one more line")
    terminal.wait_for("tool call")
    terminal.type("/run smal\r")
    terminal.wait_for("Did you mean 'small'?")
    terminal.type("/run small\r")
    terminal.wait_for("cancel (c) >")
    assert "Add numbers, do not subtract them." in terminal.screen
    terminal.type("s\n")
    terminal.wait_for("later (l) >")
    terminal.type("a\n")
    terminal.wait_for("completed ·")
    terminal.type("/runs\r")
    terminal.wait_for("conversation: Add numbers")
    terminal.type("/quit\r")
    assert terminal.end() == 0

    runs = json.loads(shell("runs", "list", "--json", env=env).stdout)
    assert [(run["workflow"], run["state"]) for run in runs] == [("small", "completed"), ("conversation", "paused")]


def _path_to_git(repo: Path) -> str:
    """A path with git and without any command-line agent."""
    folder = repo.parent / "bin"
    folder.mkdir()
    for name in ("git", "sh", "env", "cat"):
        found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True)
        (folder / name).symlink_to(found.stdout.strip())
    return str(folder)


def test_what_cannot_be_talked_about_is_said_in_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    piped = shell("--resume", env=environment)
    assert (piped.returncode, piped.stderr.count("\n")) == (1, 1)
    assert "A conversation needs a terminal" in piped.stderr

    terminal = Terminal("--resume", "abcd", env=environment, cwd=tmp_path)
    assert terminal.end() == 1
    assert "in no git repository" in terminal.screen

    assert shell("--simulate", "runs", "list", env=environment).returncode == 2


def test_one_of_several_conversations_is_chosen_from_a_list(world: Open) -> None:
    here = world([[Says("Of the first."), Says("Of the second.")], Says(f"Again: {WORD}.")])
    for question in ("First question", "Second question"):
        assert shell("--keep", "-p", question, env=here.env, cwd=here.repo).returncode == 0

    terminal = Terminal("--resume", env=here.env, cwd=here.repo)
    terminal.wait_for("Go on with which?")
    listed = terminal.screen
    assert listed.index("Second question") < listed.index("First question")
    assert "waits for your next message" in listed
    terminal.type("7\n")
    terminal.wait_for("There is no conversation 7 in the list.")
    terminal.wait_for("Go on with which?")
    terminal.type("2\n")
    terminal.wait_for("Of the first.")
    terminal.type("/resume\r")
    terminal.wait_for("Second question")
    terminal.type("/resume 1\r")
    terminal.wait_for("Of the second.")
    terminal.type("And now?\r")
    wait_for_answer(terminal, WORD)
    leave(terminal)
    assert "Second question" in here.last_request()
    assert "First question" not in here.last_request()

    again = Terminal("--resume", env=here.env, cwd=here.repo)
    again.wait_for("Go on with which?")
    again.type("\n")
    again.wait_for(WORD)
    leave(again)
    closed = Terminal("--resume", env=here.env, cwd=here.repo)
    closed.wait_for("Go on with which?")
    closed.type("\x04")
    assert closed.end() == 0


def test_a_command_of_ones_own_goes_along_with_the_next_message(world: Open) -> None:
    here = world([Says("Seen."), Says(f"Nothing new: {WORD}.")])
    terminal = here.open()
    terminal.type("!cat calc.py; echo $((40 + 2))\r")
    terminal.wait_for("  42")
    terminal.wait_for("with your next message: the output of !")
    terminal.type("What is wrong?\r")
    wait_for_answer(terminal, "Seen.")
    request = here.last_request()
    assert request.index("What is wrong?") < request.index("<shell command=") < request.index("return a - b")

    terminal.type("!sleep 600\r")
    terminal.wait_for("Ctrl-C ends it")
    terminal.type("\x03")
    terminal.wait_for("ended by SIGINT")
    terminal.type("/drop\r")
    terminal.wait_for("It is left out.")
    terminal.type("And now?\r")
    wait_for_answer(terminal, WORD)
    leave(terminal)
    assert "sleep 600" not in here.last_request()


def test_what_was_changed_after_a_merge_can_be_merged_too(world: Open) -> None:
    def edit(old: str, new: str) -> Asks:
        return asks(("edit_file", {"file_path": "/calc.py", "old_string": f"a {old} b", "new_string": f"a {new} b"}))

    read = asks(("read_file", {"file_path": "/calc.py"}))
    here = world([read, edit("-", "+"), Says("Plus."), read, edit("+", "*"), Says("Times.")])
    terminal = here.open()
    for text, said in (("Add.", "Plus."), ("Multiply.", "Times.")):
        terminal.type(f"{text}\r")
        wait_for_answer(terminal, said)
        terminal.type("/merge\r")
        terminal.wait_for("M calc.py")
        terminal.wait_for("cancel (c) >")
        terminal.type("m\n")
        terminal.wait_for("fast-forwarded")
    terminal.type("/merge\r")
    terminal.wait_for("there is nothing to merge")
    leave(terminal)
    assert "a * b" in (here.repo / "calc.py").read_text()
    subjects = subprocess.run(["git", "log", "--format=%s"], cwd=here.repo, capture_output=True, text=True).stdout
    assert subjects.splitlines() == ["Change calc.py", "Change calc.py", "Begin"]
