"""A real server with the simulated model, and a real browser that looks at it."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.forked_command import Speaking
from tests.support.progress_limit import wait_until
from tests.support.terminal import shell

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # which is small in many containers
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parents[2] / "var" / "screenshots"

_PERSONA = """
name: {name}
version: 1
description: {description}
backend: simulated
model: rehearsal-1{suffix}
capabilities: [spec_write, phase_planning, code_write, code_review, test_write, debug, verify, doc_write, research]
system_prompt: Rehearse.
"""
_ARTIFACT = """
    - say: It is written.
      artifact: {summary: A draft of some length, points: [one, two]}
    - say: Done.
"""
_LINES = "".join(
    f"        {number}. A thought that takes its time, one word after the other.\n" for number in range(400)
)
_LONG_SCRIPT = f"""
script:
  draft:
    - say: |
{_LINES}      calls: [ls: {{path: /}}]
{_ARTIFACT.strip(chr(10))}
"""
_FAILING_SCRIPT = f"""
script:
  draft:
    - say: I try some things that do not work.
      calls:
        - execute: {{command: "git push origin main"}}
        - execute: {{command: "ls /nowhere"}}
        - execute: {{command: "sudo ls"}}
        - read_file: {{file_path: /no/such/file.txt}}
        - ls: {{path: /}}
{_ARTIFACT.strip(chr(10))}
"""
HARM = "<img src=x onerror=window.hurt=1>"
_REVIEWED_SCRIPT = f"""
script:
  work:
    - say: I change a file and check it.
      calls:
        - write_file: {{file_path: /notes/{HARM.replace("/", "")}.txt, content: "one, two"}}
        - execute: {{command: "false"}}
        - execute: {{command: "true"}}
{_ARTIFACT.strip(chr(10))}
  review:
    - say: I look at it.
      artifact:
        verdict: request_changes
        summary: "It works, but {HARM} is no name for a file."
        findings:
          - {{severity: major, where: "notes/{HARM}", what: "{HARM} would be markup.", remedy: "Rename it {HARM}."}}
          - {{severity: note, where: "notes", what: "Two lines."}}
    - say: Done.
"""
_LAVISH_SCRIPT = """
script:
  work:
    - say: I write a lot.
      calls:
        - execute:
            command: >-
              mkdir deep && seq 1 4000 > deep/1.txt && seq 1 4000 > deep/2.txt && seq 1 4000 > z.txt
              && head -c 9 /dev/zero > a.bin && mv README.md INTRO.md
    - say: It is written.
      artifact: {summary: A draft of some length, points: [one, two]}
    - say: Done.
"""
_PUSHING_SCRIPT = f"""
script:
  draft:
    - say: I push.
      calls: [execute: {{command: "git push origin main"}}]
    - say: And again.
      calls: [execute: {{command: "git push origin topic"}}]
    - say: And something else.
      calls: [execute: {{command: "git push '{HARM}'", argv: [make, test]}}]
{_ARTIFACT.strip(chr(10))}
"""
_WAITING_SCRIPT = f"""
script:
  draft:
    - say: I wait until somebody lets me go on.
      calls: [execute: {{command: "until [ -e go ]; do sleep 0.05; done; echo gone on"}}]
{_ARTIFACT.strip(chr(10))}
"""
_REVIEWED_WORKFLOW = """
name: reviewed
version: 1
description: Work, then a review of it.
roles:
  - id: author
    required_capabilities: [code_write]
    preferred_backends: [simulated]
phases:
  - key: work
    title: Work
    risk: low
    role: author
    timeout_seconds: 1200
    instructions: Work.
    expected_artifact: {path: draft.json, schema: t/note@1}
  - key: review
    title: Review
    risk: low
    role: author
    timeout_seconds: 1200
    instructions: Review it.
    expected_artifact: {path: review.json, schema: dev/review@1}
"""
_WORKFLOW = """
name: {name}
version: 2
description: A draft that a person approves, then the final text.
roles:
  - id: author
    required_capabilities: [spec_write]
    preferred_backends: [simulated]
phases:
  - key: draft
    title: Write the draft
    risk: {risk}
    role: author
    timeout_seconds: 1200
    instructions: Write a draft.
    expected_artifact: {{path: draft.json, schema: t/note@1}}
  - key: final
    title: Write the final text
    risk: low
    role: author
    timeout_seconds: 1200
    instructions: Write the final text.
    expected_artifact: {{path: final.json, schema: t/note@1}}
"""
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["summary", "points"],
    "properties": {
        "summary": {"type": "string", "minLength": 10},
        "points": {"type": "array", "minItems": 2, "items": {"type": "string"}},
    },
    "additionalProperties": False,
}


def make_repository(path: Path) -> Path:
    """A small project with a workflow that asks, one that does not, and personas that misbehave."""
    own = path / ".holdfast"
    for folder in ("workflows", "artifacts/t", "personas"):
        (own / folder).mkdir(parents=True)
    for name, risk in (("asking", "medium"), ("plain", "low"), ("guarded", "critical")):
        (own / "workflows" / f"{name}.yaml").write_text(_WORKFLOW.format(name=name, risk=risk))
    (own / "artifacts" / "t" / "note@1.json").write_text(json.dumps(_SCHEMA))
    for name, suffix in (("z-spoiler", ":invalid-artifact"), ("z-giant", ":giant-output")):
        text = _PERSONA.format(name=name, suffix=suffix, description=f"Simulated{suffix or ', well-behaved'}.")
        (own / "personas" / f"{name}.yaml").write_text(text)
    (own / "workflows" / "reviewed.yaml").write_text(_REVIEWED_WORKFLOW)
    gated = _REVIEWED_WORKFLOW.replace("name: reviewed", "name: gated").replace("risk: low", "risk: medium", 1)
    (own / "workflows" / "gated.yaml").write_text(gated)
    scripts = {"z-streamer": _LONG_SCRIPT, "z-scripted": _FAILING_SCRIPT, "z-reviewed": _REVIEWED_SCRIPT}
    scripts |= {"z-pushing": _PUSHING_SCRIPT, "z-waiting": _WAITING_SCRIPT, "z-lavish": _LAVISH_SCRIPT}
    for name, suffix in (
        ("z-streamer", ""),
        ("z-scripted", ""),
        ("z-reviewed", ""),
        ("z-pushing", ""),
        ("z-waiting", ""),
        ("z-lavish", ""),
        ("z-failing", "+cut-off"),
        ("z-delegate", "+delegate"),
    ):
        text = _PERSONA.format(name=name, suffix=f":stream{suffix}", description=f"Simulated, streams{suffix}.")
        text = text.replace("research]", "research, shell]") + scripts.get(name, "")
        (own / "personas" / f"{name}.yaml").write_text(text)
    asker = _PERSONA.format(name="z-asker", suffix="", description="Simulated, asks before it writes.")
    (own / "personas" / "z-asker.yaml").write_text(f"{asker}permissions: {{write: {{ask: ['**']}}}}\n")
    (path / "README.md").write_text("# Shop\n\nA small shop.\n")
    (path / "shop.py").write_text("def total(prices):\n    return sum(prices)\n")
    git = ["git", "-C", str(path), "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return path


_STATE_OF_REPOSITORY = (["log", "--oneline", "-5", "main"], ["status", "--short", "--branch"])
_RELEVANT = re.compile(r"(run|phase|agent|tool|artifact|checkpoint|human|message)\.|model\.(response|error)")
_IRRELEVANT = {"policy", "place", "fingerprint", "usage", "response_metadata", "bindings", "hash"}
_CLIP_CHARS = 100


def _clip(data: Any) -> Any:
    """Return what an event holds without what says nothing of the files, and long texts cut."""
    if isinstance(data, dict):
        return {name: _clip(value) for name, value in data.items() if name not in _IRRELEVANT}
    if isinstance(data, list):
        return [_clip(value) for value in data]
    return f"{data[:_CLIP_CHARS]}…" if isinstance(data, str) and len(data) > _CLIP_CHARS else data


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """`holdfast serve` as a process of its own; it can be killed and started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.repo = folder / "work" / "shop"
        if not self.repo.exists():
            make_repository(self.repo)
        self._environment = {
            **os.environ,
            "HOLDFAST_WORKSPACE_ROOT": str(folder / "work"),
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        self._environment.pop("HOLDFAST_CONFIG", None)
        self._process: Speaking | None = None
        self.tokens: dict[str, str] = {}

    def start(self, *, delay_s: float = 0.02) -> "Served":
        """Its model takes `delay_s` for each answer."""
        arguments = ["serve", "--port", str(self.port), "--no-browser"]
        environment = {**self._environment, "HOLDFAST_SIMULATE_DELAY_S": str(delay_s)}
        self._process = Speaking(arguments, environment, self.folder / "server.log")
        output = self._process.read_line() + self._process.read_line()
        found = re.search(r"http://\S+/login\?code=\S+", output)
        if found is None:
            self.stop()
        assert found is not None, output
        self.login_link = found.group(0)
        return self

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it stand still: it takes connections, and answers none."""
        assert self._process is not None
        pid = self._process.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._end(signal.SIGINT)

    def _end(self, sig: int) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        has_died = process.process.poll() is not None
        code = process.end(sig)
        assert not has_died, f"the server ended by itself with {code}: {(self.folder / 'server.log').read_text()}"

    def token(self, role: str) -> str:
        """A token named after its role: an admin's made with the command, all others by the admin."""
        if role not in self.tokens:
            self.tokens[role] = self._make_first_token(role) if role == "admin" else self._make_token(role)
        return self.tokens[role]

    def _make_first_token(self, role: str) -> str:
        made = shell("token", "create", "--name", role, "--role", role, "--json", env=self._environment)
        assert made.returncode == 0, made.stderr
        return str(json.loads(made.stdout)["token"])

    def _make_token(self, role: str) -> str:
        with self.client() as client:
            answer = client.post("/api/tokens", json={"name": role, "role": role})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def client(self, role: str = "admin") -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token(role)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=None)

    def start_run(self, workflow: str = "plain", **more: Any) -> str:
        body = {"workflow": workflow, "repo_path": str(self.repo), "simulate": True, **more}
        with self.client() as client:
            answer = client.post("/api/runs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["run_id"])

    def wait_for(self, run_id: str, *states: str) -> dict[str, Any]:
        """The run's details once it is in one of the states."""
        detail: dict[str, Any] = {}

        def has_come() -> bool:
            detail.update(client.get(f"/api/runs/{run_id}").json())
            return detail["state"] in states

        with self.client() as client:
            wait_until(has_come, lambda: f"run {run_id} is {states}, not {detail['state']}: {detail['error']}")
        return detail

    def make_own_repository(self, name: str) -> str:
        """Make a repository for a test that counts what a run changes, or merges it; return its path."""
        return str(make_repository(self.folder / "work" / name))

    def explain(self, run_id: str) -> str:
        """Tell what a run did and on which files, for whoever finds another result than expected."""
        with self.client() as client:
            detail = client.get(f"/api/runs/{run_id}").json()
            history = [json.loads(line) for line in client.get(f"/api/runs/{run_id}/history").text.splitlines()]
        relevant = [event for event in history if _RELEVANT.match(event["kind"])]
        events = [f"{event['seq']} {event['kind']} {json.dumps(_clip(event['payload']))}" for event in relevant]
        git = ["git", "-C", detail["repo_path"]]
        states = [subprocess.run([*git, *words], capture_output=True, text=True) for words in _STATE_OF_REPOSITORY]
        worktree = self.folder / "data" / "worktrees" / run_id
        files = sorted(str(file.relative_to(worktree)) for file in worktree.rglob("*") if file.is_file())
        own = [file for file in files if not file.startswith(".holdfast/")]
        return "\n".join([f"Run {run_id}:", *events, *(state.stdout for state in states), f"Its files: {own}", ""])

    def decide(self, run_id: str, action: str, comment: str = "", *, role: str = "admin") -> None:
        with self.client(role) as client:
            (approval,) = [each for each in client.get("/api/approvals").json()["items"] if each["run_id"] == run_id]
            answer = client.post(
                f"/api/approvals/{approval['approval_id']}", json={"action": action, "comment": comment}
            )
        assert answer.status_code == 200, answer.text
