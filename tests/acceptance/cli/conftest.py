"""The command in this process, on a repository and a data folder of its own."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.conversation_world import Open, World
from tests.support.model_server import ModelServer, Reply

from holdfast.cli import app

WORKFLOW = """
name: small
version: 1
description: Two phases, the first of which a person approves.
roles:
  - {id: author, required_capabilities: [spec_write]}
phases:
  - key: draft
    title: Write a draft
    role: author
    risk: medium
    timeout_seconds: 600
    instructions: Write down what is wanted.
    expected_artifact: {path: .holdfast/results/draft.json, schema: dev/spec@1}
  - key: final
    title: Write the final version
    role: author
    risk: low
    timeout_seconds: 600
    instructions: Write it down for good.
    expected_artifact: {path: .holdfast/results/final.json, schema: dev/spec@1}
"""


@dataclass(frozen=True)
class Done:
    """What a command left: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    workflows = folder / ".holdfast" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "small.yaml").write_text(WORKFLOW)
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Begin"]):
        identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """For commands in a process of their own."""
    rest = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {
        **rest,
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PAGER": "cat",
        "COLUMNS": "100",
    }


@pytest.fixture
def holdfast(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Run a command here: as from a shell, without the price of a new process."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    for name in ("HOLDFAST_DATA_DIR", "XDG_CONFIG_HOME", "COLUMNS"):
        monkeypatch.setenv(name, environment[name])

    def run(*arguments: str) -> Done:
        others, flags = app.take_global_options(list(arguments))
        code = app._run(others, is_debug="--debug" in flags)
        streams = capfd.readouterr()
        return Done(code, streams.out, streams.err)

    return run


@pytest.fixture
def start(holdfast: Command, repo: Path) -> Command:
    """Start the small workflow on the simulated model."""

    def run(*options: str) -> Done:
        return holdfast(
            *("run", "small", "--repo", str(repo), "--simulate", "--requirements", "Add numbers", "--json"), *options
        )

    return run


@pytest.fixture
def world(repo: Path, environment: dict[str, str]) -> Iterator[Open]:
    opened: list[World] = []

    def open_world(replies: list[Reply | list[Reply]]) -> World:
        opened.append(World(repo, environment, ModelServer({"": replies}).__enter__()))
        return opened[-1]

    yield open_world
    for here in opened:
        here.close()
