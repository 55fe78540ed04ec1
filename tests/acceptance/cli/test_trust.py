"""What a stranger's repository would run on this machine waits until a person has agreed to exactly that."""

from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.terminal import Terminal

COMMANDS = "setup: [[sh, -c, 'echo prepared >> $HOME/ran']]\nsandbox: {setup: false}\n"


@pytest.fixture
def bringing(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a workflow that brings a command; what it does when it runs is seen in `ran`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text() + COMMANDS)
    return file


def test_without_a_person_it_is_refused_with_what_to_do(
    start: Command, holdfast: Command, bringing: Path, tmp_path: Path
) -> None:
    refused = start()
    detached = start("--detach")

    assert (refused.code, detached.code) == (1, 1)
    assert refused.err.startswith("holdfast: consent_required:")
    assert "workflow small runs sh -c echo prepared" in refused.err
    assert f"holdfast trust --repo {bringing.parents[2]}" in refused.err
    assert holdfast("runs", "list", "--json").json == []
    assert not (tmp_path / "ran").exists()


def test_a_file_inside_the_repository_is_the_repositorys_too(holdfast: Command, repo: Path, bringing: Path) -> None:
    refused = holdfast("run", str(bringing), "--repo", str(repo), "--simulate", "--requirements", "Note it", "--json")

    assert refused.err.startswith("holdfast: consent_required:")


def test_yes_is_consent_for_this_once(start: Command, bringing: Path, tmp_path: Path) -> None:
    assert start("--yes").json["state"] == "completed"

    assert (tmp_path / "ran").read_text() == "prepared\n"
    assert "consent_required" in start().err


def test_what_was_agreed_to_counts_until_it_changes(start: Command, holdfast: Command, bringing: Path) -> None:
    repo = str(bringing.parents[2])
    agreed = holdfast("trust", "--repo", repo, "--json")
    paused = start()
    bringing.write_text(bringing.read_text().replace("prepared", "changed"))
    changed = start()

    lines = ["workflow small runs sh -c echo prepared >> $HOME/ran", "workflow small runs its setup without a sandbox"]
    assert agreed.json == {"agreed": lines}
    assert paused.json["state"] == "paused"
    assert "consent_required" in changed.err


def test_a_consent_can_be_revoked(start: Command, holdfast: Command, bringing: Path) -> None:
    repo = str(bringing.parents[2])
    before = holdfast("trust", "--revoke", "--repo", repo)
    agreed = holdfast("trust", "--repo", repo, "--json").json["agreed"]
    revoked = holdfast("trust", "--revoke", "--repo", repo, "--json")

    assert before.out == "You had not agreed to anything there.\n"
    assert revoked.json == {"revoked": agreed}
    assert "consent_required" in start().err


def test_what_brings_no_command_needs_no_consent(start: Command, holdfast: Command, repo: Path) -> None:
    assert "Nothing there needs consent." in holdfast("trust", "--repo", str(repo)).out
    assert start().json["state"] == "paused"


def test_in_a_terminal_the_question_is_asked_first(
    repo: Path, bringing: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    arguments = ["run", "small", "--repo", str(repo), "--simulate", "--requirements", "Add numbers"]
    declined = Terminal(*arguments, env={**environment, "HOME": str(tmp_path)})
    declined.wait_for("Agree to it")
    assert "workflow small runs sh -c echo prepared" in declined.screen
    declined.type("n\n")
    declined.wait_for("consent_required")
    assert declined.end() == 1
    assert not (tmp_path / "ran").exists()

    agreed = Terminal(*arguments, env={**environment, "HOME": str(tmp_path)})
    agreed.wait_for("Agree to it")
    agreed.type("y\n")
    agreed.wait_for("later (l) >")
    agreed.type("a\n")
    agreed.wait_for("completed ·")
    assert agreed.end() == 0
    assert (tmp_path / "ran").read_text() == "prepared\n"


def test_a_persona_that_asks_for_consent_can_be_agreed_to(holdfast: Command, repo: Path) -> None:
    folder = repo / ".holdfast" / "personas"
    folder.mkdir()
    (folder / "own.yaml").write_text(
        "name: own-agent\nversion: 1\nbackend: command\nargv: ['true']\ncapabilities: [spec_write]\n"
        "requires_consent: true\n"
    )
    options = ("--repo", str(repo), "--persona", "author=own-agent", "--requirements", "Note it", "--json")

    first = holdfast("run", "small", *options)
    agreed = holdfast("trust", "own-agent", "--repo", str(repo), "--json")
    second = holdfast("run", "small", *options)

    assert "persona own-agent runs true" in first.err
    assert agreed.json == {"agreed": ["persona own-agent runs true", "persona own-agent may work"]}
    assert second.json["error"]["code"] == "artifact_missing"  # it worked, and wrote nothing
