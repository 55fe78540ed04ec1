"""One question, one answer: `holdfast -p`, and a question by pipe."""

import base64
import json
import subprocess
from pathlib import Path

import pytest
from tests.support.conversation_world import LONG, WORD, Open, World, endless, leave
from tests.support.model_server import Refuses, Says, asks
from tests.support.terminal import HOLDFAST, Terminal, shell


def ask(here: World, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return shell(*arguments, env=here.env, cwd=here.repo, stdin=stdin)


def test_a_question_is_answered_on_standard_output_and_a_kept_conversation_stays(world: Open) -> None:
    here = world([asks(("read_file", {"file_path": "/calc.py"})), Says("It **subtracts**."), Says(f"Yes: {WORD}.")])

    picture = b"\x89PNG\r\n\x1a\n" + b"a picture"
    (here.repo.parent / "shot.png").write_bytes(picture)

    first = ask(here, "--keep", "-p", "What does add do?", "--image", str(here.repo.parent / "shot.png"))
    assert (first.returncode, first.stdout) == (0, "It **subtracts**.\n")
    assert "▸ read_file /calc.py" in first.stderr
    again = ask(here, "--resume", "-p", "Is that wrong?", "--json")
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    (run,) = here.read("runs", "list")
    assert (answer["run_id"], answer["answer"]) == (run["run_id"], f"Yes: {WORD}.")
    assert (answer["state"], answer["waiting_for"], answer["error"]) == ("paused", "message", None)
    assert answer["cost_usd"] == run["cost_usd"]

    request = here.last_request()
    assert f"data:image/png;base64,{base64.b64encode(picture).decode()}" in request
    assert request.index("What does add do?") < request.index("It **subtracts**.") < request.index("Is that wrong?")
    with here.open("--resume") as terminal:
        terminal.wait_for("It ")  # what was said, drawn
        leave(terminal)
    assert "What does add do?" in terminal.screen


def test_an_answered_question_that_changed_nothing_leaves_nothing_behind(world: Open) -> None:
    here = world([asks(("read_file", {"file_path": "/calc.py"})), Says("It subtracts.")])

    answered = ask(here, "-p", "What does add do?", "--json")

    assert (answered.returncode, json.loads(answered.stdout)["state"]) == (0, "completed"), answered.stderr
    (run,) = here.read("runs", "list")
    assert run["state"] == "completed"
    assert not Path(here.read("runs", "show", run["run_id"])["worktree_root"]).exists()
    assert git(here.repo, "branch", "--list", "holdfast/*") == ""
    assert len(git(here.repo, "worktree", "list").splitlines()) == 1
    assert "Go on" not in answered.stderr


def test_one_that_changed_a_file_is_kept_and_says_so(world: Open) -> None:
    here = world([asks(("write_file", {"file_path": "/new.txt", "content": "new\n"})), Says("Written.")])

    answered = ask(here, "-p", "Write a file.")

    (run,) = here.read("runs", "list")
    assert (answered.returncode, run["state"]) == (0, "paused"), answered.stderr
    assert f"holdfast runs diff {run['run_id'][:8]}" in answered.stderr
    assert Path(here.read("runs", "show", run["run_id"])["worktree_root"], "new.txt").is_file()


def git(repo: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repo, check=True, capture_output=True, text=True).stdout.strip()


def test_what_is_piped_in_is_the_question_or_goes_along_with_it(world: Open) -> None:
    here = world([[Says("Because."), Says("Fine.")]])

    assert ask(here, stdin="why?\n").stdout == "Because.\n"
    contents = [m["content"] for m in here.server.received[-1].body["messages"] if m["role"] == "user"]
    assert contents == ["why?"]
    assert ask(here, "-p", "review this", stdin="-a\n+b\n").stdout == "Fine.\n"
    contents = [m["content"] for m in here.server.received[-1].body["messages"] if m["role"] == "user"]
    assert contents == ["review this\n\n<stdin>\n-a\n+b\n</stdin>"]
    assert [run["title"] for run in here.read("runs", "list")] == ["review this", "why?"]


def test_a_real_pipe_with_a_cold_start(world: Open) -> None:
    here = world([Says(f"{WORD}.")])
    done = subprocess.run([HOLDFAST], input="why?", env=here.env, cwd=here.repo, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{WORD}.\n"), done.stderr


def test_an_approval_is_exit_code_3_and_the_same_answer_comes_after_it(world: Open) -> None:
    here = world([asks(("execute", {"command": "touch made.txt"})), Says(f"Made: {WORD}.")])

    waiting = ask(here, "-p", "Make a file.", "--json")
    assert waiting.returncode == 3
    assert json.loads(waiting.stdout)["waiting_for"] == "approval"
    (approval,) = here.read("approvals")
    short = json.loads(waiting.stdout)["run_id"][:8]
    assert f"holdfast approve {approval['approval_id'][:8]}" in waiting.stderr
    assert f"holdfast --resume {short} -p" in waiting.stderr

    still = ask(here, "--resume", short, "-p")
    assert (still.returncode, still.stdout) == (3, "")
    assert ask(here, "approve", approval["approval_id"]).returncode in (0, 3)
    done = ask(here, "--resume", short, "-p")
    assert (done.returncode, done.stdout) == (0, f"Made: {WORD}.\n"), done.stderr
    assert here.server.places == [("", 0), ("", 1)]


def test_a_failure_is_exit_code_1_and_says_why(world: Open) -> None:
    here = world([Refuses(401, message="wrong key")])

    failed = ask(here, "-p", "why?", "--json")

    assert failed.returncode == 1
    answer = json.loads(failed.stdout)
    assert answer["answer"] == ""
    assert answer["error"]["message"]
    assert "✕" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "reason"),
    [
        (("-p",), None, "There is no question."),
        (("-p", "x"), "a" * 200_001, "Standard input is longer than 200 kB"),
        (("-p", "x"), "a\0b", "Standard input is no text."),
        (("-p", "x", "--resume"), None, "There is no conversation about"),
        (("-p", "x", "--persona", "nobody"), None, "There is no persona 'nobody'."),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(
    repo: Path, environment: dict[str, str], arguments: tuple[str, ...], stdin: str | None, reason: str
) -> None:
    refused = shell(*arguments, env=environment, cwd=repo, stdin=stdin)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert reason in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_outside_a_repository_nothing_can_be_asked(tmp_path: Path, environment: dict[str, str]) -> None:
    refused = shell("-p", "x", env=environment, cwd=tmp_path)
    assert refused.returncode == 1
    assert "in no git repository" in refused.stderr


def test_on_a_terminal_the_answer_is_drawn_and_ctrl_c_interrupts_it(world: Open) -> None:
    here = world([[Says("# Title\n\nIt **adds** \x1b]0;owned\x07."), endless()]])
    terminal = Terminal("-p", "What?", env=here.env, cwd=here.repo)
    assert terminal.end() == 0
    assert "\x1b[1madds\x1b[0m" in terminal.screen
    assert "# Title" not in terminal.screen
    assert "\x1b]0;" not in terminal.screen

    interrupted = Terminal("-p", "More?", env=here.env, cwd=here.repo)
    here.wait_for_requests(2)
    interrupted.type("\x03")
    interrupted.wait_for("Interrupted. Go on: holdfast --resume")
    assert interrupted.end() == 130
    assert LONG not in interrupted.screen
    assert here.read("runs", "list")[0]["state"] == "paused"
    (last, _) = here.read("runs", "list")
    with here.open("--resume", last["run_id"]) as again:
        again.wait_for("interrupted; what was done so far stays")


def test_a_simulated_answer_needs_no_key(repo: Path, environment: dict[str, str]) -> None:
    done = shell("-p", "What is there?", "--simulate", env=environment, cwd=repo)
    assert done.returncode == 0
    assert "calc.py" in done.stdout


def test_the_projects_instructions_are_given_to_whoever_answers(world: Open) -> None:
    here = world([[Says("With tabs."), Says("Still.")]])
    (here.repo / "AGENTS.md").write_text("Indent with tabs, always.\n")
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")
    for words in (("add", "-A"), (*identity, "commit", "-q", "-m", "Instruct")):
        subprocess.run(["git", *words], cwd=here.repo, check=True)

    with here.open() as terminal:
        assert "Project instructions: AGENTS.md" in terminal.screen
        terminal.type("How?\r")
        terminal.wait_for("With tabs.")

    system, user = here.server.received[-1].body["messages"][:2]
    assert "Indent with tabs, always." in json.dumps(system)
    assert user["content"] == "How?"
    (started,) = [event for event in here.events() if event["kind"] == "phase.started"]
    assert started["payload"]["result"]["instruction_files"] == ["AGENTS.md"]


def test_a_script_is_not_answered_by_a_stand_in_that_nobody_named(repo: Path, environment: dict[str, str]) -> None:
    env = {name: value for name, value in environment.items() if not name.endswith("_API_KEY")}

    refused = shell("-p", "What does add do?", env=env, cwd=repo)
    rehearsed = shell("--simulate", "-p", "What does add do?", "--json", env=env, cwd=repo)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "persona_ineligible" in refused.stderr
    assert json.loads(rehearsed.stdout)["is_simulated"] is True


def test_conversations_that_are_left_open_can_be_ended_all_at_once(world: Open) -> None:
    here = world([[Says("One."), Says("Two.")]])
    for question in ("First question", "Second question"):
        assert ask(here, "--keep", "-p", question).returncode == 0

    assert ask(here, "abort", "--conversations").returncode == 2  # it asks, and nobody is there
    recent = ask(here, "abort", "--conversations", "--older-than", "7d", "--json")
    assert (recent.returncode, json.loads(recent.stdout)) == (0, [])
    ended = ask(here, "abort", "--conversations", "--yes", "--json")

    assert ended.returncode == 0, ended.stderr
    assert [item["state"] for item in json.loads(ended.stdout)] == ["cancelled"] * 2
    assert {run["state"] for run in here.read("runs", "list")} == {"cancelled"}
    assert ask(here, "gc").returncode == 0
    assert len(git(here.repo, "worktree", "list").splitlines()) == 1
