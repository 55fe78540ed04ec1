"""What a person does from the shell with an agent that got nowhere, and with one that is not what it was."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.acceptance.test_own_model import Shell
from tests.support.model_server import Hangs, ModelServer, Says, asks

LOOK = asks(("read_file", {"file_path": "/README.md"}))
WRITE = asks(("write_file", {"file_path": "/note.json", "content": '{"text": "A note."}'}))
WORDS = ("--repo", ".", "--requirements", "A note.", "--persona", "writer=mine", "--yes")
# As a version of holdfast would be in which a tool was described otherwise.
OLDER = (
    "import holdfast.agents.tools.execute as tool; tool.DESCRIPTION = 'Run it.'; "
    "from holdfast.cli.app import main; main()"
)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = process.communicate()
    return process.returncode, out + err


def test_an_agent_that_gets_nowhere_pauses_with_a_diagnosis_and_goes_on_when_told(tmp_path: Path) -> None:
    with ModelServer({"": [LOOK] * 7 + [WRITE, Says("Written.")]}) as server:
        shell = Shell(tmp_path, server.address)
        code, said = ended(shell.start("run", "note.yaml", *WORDS))
        [listed] = shell.run("runs", "list", "--json")
        details = shell.tell("runs", "show", listed["run_id"])

        result = shell.run("resume", listed["run_id"], "--yes", "--json")

    diagnosis = "The agent gets nowhere after 7 turns: 7 × read_file file_path=/README.md."
    assert code == 3
    assert diagnosis in said
    assert f"holdfast resume {listed['run_id'][:8]}" in said
    assert (listed["state"], listed["pause_reason"]) == ("paused", "stalled")
    assert diagnosis in details.stdout
    assert result["state"] == "completed"


def test_what_the_agent_is_told_has_changed_and_a_person_accepts_it(tmp_path: Path) -> None:
    with ModelServer({"": [asks(("ls", {"path": "/"})), [Hangs(), WRITE], Says("Written.")]}) as server:
        shell = Shell(tmp_path, server.address)
        mine = shell.home / "config/holdfast/personas/mine.yaml"
        mine.write_text(mine.read_text().replace("[doc_write", "[shell, doc_write"))
        older = subprocess.Popen([sys.executable, "-c", OLDER, "run", "note.yaml", *WORDS], **shell.options)
        _wait_for_requests(server, 2, older)
        older.send_signal(signal.SIGKILL)
        older.communicate()
        run_id = shell.run("runs", "list", "--json")[0]["run_id"]

        refused = shell.tell("resume", run_id, "--yes")
        request_count = len(server.received)
        result = shell.run("resume", run_id, "--yes", "--accept-drift", "--json")
        events = shell.tell("runs", "events", run_id, "--json").stdout

    said = refused.stdout + refused.stderr
    assert refused.returncode == 1
    assert "nondeterminism" in said
    assert "other tools than now" in said
    assert f"holdfast resume {run_id} --accept-drift" in said
    assert f"holdfast fork {run_id} write" in said
    assert request_count == 2, "nothing was asked before someone decided"
    assert result["state"] == "completed"
    assert [place for _, place in server.places] == [0, 1, 1, 2], "what was answered is not asked again"
    assert '"accept_drift": true' in events or '"accept_drift":true' in events


def _wait_for_requests(server: ModelServer, count: int, process: "subprocess.Popen[str]") -> None:
    while len(server.received) < count:
        server.has_request.wait(timeout=60)
        server.has_request.clear()
        assert process.poll() is None, process.communicate()
