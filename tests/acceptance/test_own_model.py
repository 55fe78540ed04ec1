"""A user's own model server from the shell: a persona file, a run, a kill, a resume."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import terminal
from tests.support.model_server import ASKS_BEFORE_TOUCH, WITH_KEY, Hangs, ModelServer, Reply, Says, asks, own_persona

from holdfast.agents.simulated.schema_sample import sample
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.catalog import PACKAGE_DIR

ROOT = Path(__file__).parents[2]
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
            server.has_request.wait(timeout=60)
            server.has_request.clear()
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

    result = shell.run("run", "note.yaml", *WORDS, code=3)

    assert (result["state"], result["error"]["code"]) == ("paused", "provider_unavailable")
    assert result["error"]["message"].startswith("my-model at 127.0.0.1:9 does not answer")


def test_nobody_is_asked_about_a_tool_that_the_agent_does_not_have(tmp_path: Path) -> None:
    touch = asks(("execute", {"command": "touch /tmp/x"}), ("frobnicate", {"path": "../outside"}))
    write = asks(("write_file", {"file_path": "/note.json", "content": '{"text": "A note."}'}))
    with ModelServer({"": [touch, write, Says("Written.")]}) as server:
        shell = Shell(tmp_path, server.address)
        # It may use commands if a person agrees, and has no capability that gives it the tool.
        persona = own_persona(server.address, "doc_write, research", ASKS_BEFORE_TOUCH)
        (shell.personas / "mine.yaml").write_text(persona)

        result = shell.run("run", "note.yaml", *[word for word in WORDS if word != "--yes"])

    assert result["state"] == "completed"
    assert server.looked_at == ["/v1/models"]  # once, however often it is looked for
    events = [json.loads(line) for line in shell.tell("runs", "events", result["run_id"], "--json").stdout.splitlines()]
    refused = [event["payload"] for event in events if event["kind"] == "tool.result"][:2]
    assert [(call["tool"], call["denied"]) for call in refused] == [
        ("execute", "the agent has no tool of this name"),
        ("frobnicate", "the agent has no tool of this name"),
    ]
    assert not [event for event in events if event["kind"].startswith("human.")]
    answers = [message["content"] for message in server.received[1].body["messages"] if message["role"] == "tool"]
    assert all("is not a valid tool" in answer for answer in answers)


def hand_in(phase: str, schema_id: str) -> Reply:
    """A model's answer that writes a valid artifact of the phase."""
    registry = ArtifactSchemaRegistry(roots=[PACKAGE_DIR / "artifacts"])
    content = sample(registry.get_schema(schema_id), schemas=registry.get_referenced(schema_id))
    path = f"/.holdfast/results/{schema_id.partition('/')[2].partition('@')[0]}.json"
    return asks(("write_file", {"file_path": path, "content": json.dumps(content)}))


def test_the_how_to_followed_literally_gives_a_run_that_runs_the_tests(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/use-your-own-model.md").read_text()
    (commands,) = [block for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if "base_url" in block]
    repo, home = tmp_path / "repo", tmp_path / "home"
    repo.mkdir()
    home.mkdir()
    (repo / "test_total.py").write_text(
        "import unittest\n\nclass Total(unittest.TestCase):\n    def test_it(self): self.assertEqual(1 + 1, 2)\n"
    )
    test = asks(("execute", {"command": "python3 -m unittest -v test_total"}))
    phases = {"spec": "dev/spec@1", "plan": "dev/plan@1", "implement": "dev/change@1", "review": "dev/review@1"}
    script: dict[str, list[Any]] = {
        f"You do phase `{key}`": [hand_in(key, schema_id), Says("Done.")] for key, schema_id in phases.items()
    }
    script["You do phase `implement`"].insert(0, test)
    with ModelServer(script) as server:
        literal = commands.replace("http://localhost:8080/v1", server.address).replace('"…"', '"A total." --yes --json')
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "XDG_"))},
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-ec", literal], cwd=repo, env=environment, capture_output=True, text=True, check=False
        )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    listed, _, result = done.stdout.partition("{")
    assert re.match(r"NAME +STATE.*\nmine +ready ", listed)
    assert json.loads("{" + result)["state"] == "completed"
    outputs = [
        message["content"]
        for received in server.received
        for message in received.body["messages"]
        if message["role"] == "tool"
    ]
    assert any("test_it" in text and "OK" in text for text in outputs)  # the agent has seen its test pass
