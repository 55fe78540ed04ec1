"""A workflow of the user's own is killed and resumed by one command, and the repository stays as it was."""

import subprocess
from pathlib import Path

from tests.acceptance.cli.conftest import Command


def list_refs(repo: Path) -> str:
    refs = subprocess.run(["git", "for-each-ref"], cwd=repo, check=True, capture_output=True, text=True).stdout
    trees = subprocess.run(["git", "worktree", "list"], cwd=repo, check=True, capture_output=True, text=True).stdout
    return refs + trees


def test_a_kill_changes_nothing(holdfast: Command, repo: Path, tmp_path: Path) -> None:
    before = list_refs(repo)

    done = holdfast("crashtest", "small", "--repo", str(repo), "--points", "1", "--json")

    assert done.code == 0, done.err
    assert done.json["ok"]
    assert [kill["problems"] for kill in done.json["kills"]] == [[]]
    assert done.json["moments"] > 10
    assert list_refs(repo) == before
    assert holdfast("runs", "list", "--json").json == []
    assert not [path for path in (tmp_path / "data" / "scratch").iterdir() if path.name.startswith("crashtest")]


def test_a_workflow_that_cannot_run_is_named(holdfast: Command, repo: Path) -> None:
    done = holdfast("crashtest", "no-such-workflow", "--repo", str(repo))

    assert done.code == 1
    assert "even undisturbed" in done.err
    assert "template_not_found" in done.err
