"""Who is ready, from the shell: the list, and what a newcomer without a key is told."""

import os
import socket
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.model_server import ModelServer, own_persona


@pytest.fixture(autouse=True)
def nobody_has_a_key(holdfast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)


def write_persona(tmp_path: Path, address: str, *more: str) -> None:
    personas = tmp_path / "config" / "holdfast" / "personas"
    personas.mkdir(parents=True)
    (personas / "mine.yaml").write_text(own_persona(address, "spec_write", *more))


def test_the_list_says_who_is_ready_and_what_the_others_need(holdfast: Command, tmp_path: Path) -> None:
    with ModelServer({}) as server:
        write_persona(tmp_path, server.address)
        listed, table = holdfast("personas", "list", "--json").json, holdfast("personas", "list").out

    states = {item["name"]: item["state"] for item in listed}
    assert listed[0]["name"] == "mine"
    assert (listed[0]["is_ready"], listed[0]["state"], listed[0]["missing"]) == (True, "ready", [])
    assert states["openrouter-deepseek-spec-writer"] == "needs OPENROUTER_API_KEY"
    assert states["openai-compatible-generalist"] == "needs a model of your own"
    assert [item["name"] for item in listed if item["state"] == "with --simulate"] == [
        item["name"] for item in listed[-4:]
    ]
    assert table.splitlines()[0].split() == ["NAME", "STATE", "BACKEND", "MODEL", "FROM"]
    assert table.splitlines()[1].split()[:2] == ["mine", "ready"]


def test_without_a_key_one_line_says_what_is_missing_and_how_to_go_on(holdfast: Command, repo: Path) -> None:
    done = holdfast("run", "feature-delivery", "--repo", str(repo), "--requirements", "Add numbers")

    (line,) = done.err.splitlines()
    assert done.code == 1
    assert line.startswith("holdfast: persona_ineligible: Nobody is ready for role author: it needs OPENROUTER_API_")
    assert " Set a key: export OPENROUTER_API_KEY=… Who is ready: holdfast personas list. " in line
    assert " Or rehearse without: holdfast run feature-delivery --repo " in line
    assert line.endswith(" --requirements 'Add numbers' --simulate")
    assert holdfast("runs", "list", "--json").json == []


def test_a_long_wish_is_not_said_back(holdfast: Command, repo: Path) -> None:
    done = holdfast("run", "small", "--repo", str(repo), "--requirements", "Add numbers. " * 100, "--yes", "--detach")

    assert done.err.splitlines()[-1].endswith(" --requirements … --simulate")


def test_a_run_looks_for_no_server_where_a_key_is_set(
    holdfast: Command, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it would keep us waiting
        write_persona(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        monkeypatch.setenv("OPENROUTER_API_KEY", "set")

        done = holdfast("run", "feature-delivery", "--repo", str(repo), "--requirements", "x", "--detach", "--json")

        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert done.code == 0, done.err
