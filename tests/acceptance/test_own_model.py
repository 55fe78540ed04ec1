"""A user's own model server from the shell: a persona file, a run, a kill, a resume."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.model_server import Hangs, ModelServer, Says, asks

KEY = "own-key-73ba21cc90"
PERSONA = """\
name: mine
version: 1
backend: openai_compatible
base_url: {address}
model: my-model
api_key_env: MY_MODEL_KEY
capabilities: [doc_write, research]
"""
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


class Shell:
    """A repository, a home and the `holdfast` command in it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.repo, self.home = folder / "repo", folder / "home"
        personas = self.home / "config/holdfast/personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(PERSONA.format(address=address))
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
        return subprocess.Popen([sys.executable, "-m", "holdfast", *words], **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """How a program is started in it."""
        pipe = subprocess.PIPE
        return {"env": self.environment, "cwd": self.repo, "stdout": pipe, "stderr": pipe, "text": True}

    def run(self, *words: str) -> Any:
        process = self.start(*words)
        out, err = process.communicate(timeout=110)
        assert process.returncode == 0, f"{out}\n{err}"
        return json.loads(out)


@pytest.mark.timeout(240)
def test_a_run_on_ones_own_server_is_killed_and_resumed(tmp_path: Path) -> None:
    write = asks(("write_file", {"file_path": "/note.json", "content": '{"text": "A note."}'}))
    script = {"": [asks(("ls", {"path": "/"})), [Hangs(), write], Says("Written.")]}
    with ModelServer(script) as server:
        shell = Shell(tmp_path, server.address)
        words = ("--repo", ".", "--requirements", "A note.", "--persona", "writer=mine", "--yes", "--json")
        process = shell.start("run", "note.yaml", *words)
        while len(server.received) < 2:
            server.is_asked.wait(timeout=60)
            server.is_asked.clear()
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        run_id = shell.run("runs", "list", "--json")[0]["run_id"]

        result = shell.run("resume", run_id, "--yes", "--json")

    assert result["state"] == "completed"
    assert server.places == [("", 0), ("", 1), ("", 1), ("", 2)]  # only the call in flight was made again
    assert {received.headers["authorization"] for received in server.received} == {f"Bearer {KEY}"}
    written = b"".join(path.read_bytes() for path in shell.home.rglob("*") if path.is_file())
    assert KEY.encode() not in written
