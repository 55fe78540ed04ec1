"""A repository that is named by a URL on the command line: a run from it, its result pushed, and what is refused."""

import subprocess
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command


def git(repo: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repo, check=True, capture_output=True, text=True).stdout.strip()


def test_a_run_from_a_url_is_pushed_back(
    holdfast: Command, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served" / "calc.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), str(served))
    url = f"file://{served}"
    words = ("--simulate", "--yes", "--requirements", "Add numbers", "--json")
    workflow = str(repo / ".holdfast" / "workflows" / "small.yaml")  # a URL brings no workflow of its own

    refused = holdfast("run", workflow, "--repo", url, *words)
    monkeypatch.setenv("HOLDFAST_ALLOWED_REPOSITORIES", f"file://{served.parent}")
    done = holdfast("run", workflow, "--repo", url, *words)
    assert done.code == 0, done.err
    run_id = done.json["run_id"]
    (diff, details) = (holdfast("runs", "diff", run_id), holdfast("runs", "show", run_id))
    absent = holdfast("merge", run_id, "--into", "nubmers")
    merged = holdfast("merge", run_id, "--into", "numbers", "--create", "--json")

    assert (refused.code, "allowed_repositories" in refused.err) == (1, True), refused.err
    assert "There is no branch 'nubmers'. There are main. With --create it is made." in absent.err
    assert (diff.code, details.code, url in details.out) == (0, 0, True), details.out
    assert (merged.code, merged.json["branch"]) == (0, "numbers"), merged.err
    assert git(served, "rev-parse", "numbers") == merged.json["commit"]
    assert git(served, "for-each-ref", "--format=%(refname:short)").split() == ["main", "numbers"]


@pytest.mark.parametrize(
    "url", ["http://example.org/a.git", "https://me:a-secret@example.org/a.git", "me:a-secret@example.org:a", "ext::sh"]
)
def test_a_url_that_may_not_be_used_is_refused_and_its_password_not_repeated(holdfast: Command, url: str) -> None:
    run = holdfast("run", "spec-and-review", "--repo", url, "--simulate", "--yes", "--requirements", "x", "--json")
    schedule = holdfast(
        *("schedule", "add", "nightly", "spec-and-review", "--cron", "0 3 * * *", "--repo", url, "--simulate")
    )
    for done in (run, schedule):
        assert (done.code, "repository_not_allowed" in done.err) == (1, True), done
        assert "a-secret" not in done.out + done.err
