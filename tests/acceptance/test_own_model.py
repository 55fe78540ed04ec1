"""A user's own model server from the shell: a persona file, a run, a kill, a resume."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.cli import terminal
from tests.model_server import WITH_KEY, Hangs, ModelServer, Says, asks, own_persona

KEY = "own-key-73ba21cc90"
WORKFLOW = {
    "name": "note",
    "version": 1,
    "description": "One note.",
    "roles": [{"id": "writer", "required_capabilities": ["doc_write"]}],
    "phases": [
        {
            "key": "write",
            "title": "Write a note",
            "risk": "low",
            "role": "writer",
            "instructions": "Write the note.",
            "timeout_seconds": 120,
            "expected_artifact": {"path": "note.json", "schema": "own/note@1"},
        }
    ],
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
}


WORDS = ("--repo", ".", "--requirements", "A note.", "--persona", "writer=mine", "--yes", "--json")


class Shell:
    """A repository, a home and the `holdfast` command in it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.repo, self.home = folder / "repo", folder / "home"
        self.personas = self.home / "config/holdfast/personas"
        self.personas.mkdir(parents=True)
        (self.personas / "mine.yaml").write_text(own_persona(address, "doc_write, research", WITH_KEY, "tries: 1"))
        schemas = self.repo / ".holdfast/artifacts/own"
        schemas.mkdir(parents=True)
        (schemas / "note@1.json").write_text(json.dumps(SCHEMA))
        (self.repo / "note.yaml").write_text(json.dumps(WORKFLOW))  # JSON is YAML
        (self.repo / "README.md").write_text("# Sample\n")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "HOLDFAST_DATA_DIR": str(self.home / "data"),
            "MY_MODEL_KEY": KEY,
        }

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """A cold start."""
        return subprocess.Popen([sys.executable, "-m", "holdfast", *words], **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """How a program is started in it."""
        pipe = subprocess.PIPE
        return {"env": self.environment, "cwd": self.repo, "stdout": pipe, "stderr": pipe, "text": True}

    def tell(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return terminal.shell(*words, env=self.environment, cwd=self.repo)

    def run(self, *words: str, code: int = 0) -> Any:
        done = self.tell(*words)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)


def test_a_run_on_ones_own_server_is_killed_and_resumed(tmp_path: Path) -> None:
    write = asks(("write_file", {"file_path": "/note.json", "content": '{"text": "A note."}'}))
    script = {"": [asks(("ls", {"path": "/"})), [Hangs(), write], Says("Written.")]}
    with ModelServer(script) as server:
        shell = Shell(tmp_path, server.address)
        process = shell.start("run", "note.yaml", *WORDS)
        while len(server.received) < 2:
            server.is_asked.wait(timeout=60)
            server.is_asked.clear()
            assert process.poll() is None, process.communicate()
        (driven,) = shell.run("runs", "list", "--json")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (left,) = shell.run("runs", "list", "--json")
        run_id = left["run_id"]
        (shell.personas / "broken.yaml").write_text("name: [")  # the run has its persona, whatever becomes of files

        result = shell.run("resume", run_id, "--yes", "--json")

    assert [(row["state"], row["is_driven"]) for row in (driven, left)] == [("running", True), ("running", False)]
    assert result["state"] == "completed"
    assert server.places == [("", 0), ("", 1), ("", 1), ("", 2)]  # only the call in flight was made again
    assert {received.headers["authorization"] for received in server.received} == {f"Bearer {KEY}"}
    written = b"".join(path.read_bytes() for path in shell.home.rglob("*") if path.is_file())
    assert KEY.encode() not in written


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    shell = Shell(tmp_path, "http://127.0.0.1:9/v1")

    result = shell.run("run", "note.yaml", *WORDS, code=1)

    assert result["state"] == "failed"
    assert result["error"]["message"].endswith("It was my-model at 127.0.0.1:9, asked once.")
