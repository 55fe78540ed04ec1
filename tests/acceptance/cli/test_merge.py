"""From a result to the user's branch: the how-to followed word by word, and the options of `merge`."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.terminal import Terminal

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "own-workflow.md"
IDENTITY = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *words], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_how_to_followed_word_by_word_commits_nothing_that_setup_made(holdfast: Command, repo: Path) -> None:
    text = HOWTO.read_text()
    for place, block in (
        ("workflows/release-notes.yaml", re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]),
        ("artifacts/team/notes@1.json", re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0]),
    ):
        file = repo / ".holdfast" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Our workflow")
    (repo / ".git" / "info" / "exclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=secret\n")
    [words] = re.findall(r"^holdfast (run release-notes .*)$", text, re.MULTILINE)

    done = holdfast(*words.replace("--repo .", f"--repo {repo}").split(), "--json")
    assert done.code == 0, done.err
    run_id = done.json["run_id"]
    diff = holdfast("runs", "diff", run_id)
    merged = holdfast("merge", run_id)

    assert ".venv" not in diff.out
    assert merged.code == 0, merged.err
    for said in (diff.err, merged.out):
        assert re.search(r"Left out, made by setup: \.venv/ \([\d,]+ files\)", said), said
        assert "Left out, copied in: .env" in said
    assert ".venv" not in git(repo, "ls-tree", "-r", "--name-only", "HEAD")
    assert git(repo, "status", "--porcelain") == ""


def test_a_dry_run_shows_and_a_squash_makes_one_commit(start: Command, holdfast: Command, repo: Path) -> None:
    run_id = start("--yes").json["run_id"]
    before = git(repo, "rev-parse", "HEAD")

    tried = holdfast("merge", run_id, "--dry-run", "--squash", "-m", "Add numbers")
    assert (tried.code, "Nothing was changed" in tried.out, "commit: Add numbers" in tried.out) == (0, True, True)
    assert git(repo, "rev-parse", "HEAD") == before
    merged = holdfast("merge", run_id, "--squash", "-m", "Add numbers", "--json").json
    again = holdfast("merge", run_id)

    assert (merged["action"], merged["branch"], merged["commits"]) == ("squashed", "main", ["Add numbers"])
    assert git(repo, "log", "--format=%s", f"{before}..HEAD") == "Add numbers"
    assert (again.code, again.out) == (0, "Nothing to merge: main has the result already.\n")


def test_a_dry_run_names_the_conflicts_and_exits_with_1(start: Command, holdfast: Command, repo: Path) -> None:
    run_id = start("--yes").json["run_id"]
    changed = holdfast("merge", run_id, "--dry-run", "--json").json["files"][0]["path"]
    (repo / changed).parent.mkdir(parents=True, exist_ok=True)
    (repo / changed).write_text("mine\n")

    tried = holdfast("merge", run_id, "--dry-run")
    plain = holdfast("merge", run_id, "--dry-run", "--json")

    assert (tried.code, f"conflict: {changed}" in tried.out) == (1, True)
    assert (plain.code, plain.json["conflicts"]) == (1, [changed])


def test_a_run_that_changed_nothing_says_so(holdfast: Command, repo: Path) -> None:
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text().replace("    role: author\n", "    role: author\n    read_only: true\n"))
    options = ("--repo", str(repo), "--simulate", "--requirements", "Add numbers", "--json", "--yes")
    run_id = holdfast("run", "small", *options).json["run_id"]

    merged = holdfast("merge", run_id)

    assert merged.code == 0
    assert merged.out.startswith("Nothing to merge: the run changed no files.")


def test_a_branch_that_is_not_there_needs_create(start: Command, holdfast: Command, repo: Path) -> None:
    run_id = start("--yes").json["run_id"]

    refused = holdfast("merge", run_id, "--into", "mian")

    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "target_branch_missing: There is no branch 'mian'. There are main. With --create it is made." in refused.err
    assert git(repo, "branch", "--list", "mian") == ""
    made = holdfast("merge", run_id, "--into", "mian", "--create", "--json").json
    assert (made["action"], git(repo, "rev-parse", "mian")) == ("created", made["commit"])


@pytest.mark.parametrize(("keys", "is_made"), [("y\r", True), ("\x04", False)])
def test_on_a_terminal_it_asks_before_it_makes_a_branch(
    start: Command, repo: Path, environment: dict[str, str], keys: str, is_made: bool
) -> None:
    run_id = start("--yes").json["run_id"]

    with Terminal("merge", run_id, "--into", "fresh", env=environment) as terminal:
        terminal.wait_for("There is no branch 'fresh'. Make it? [y/N]:")
        terminal.type(keys)

        assert terminal.end() == (0 if is_made else 1)
    assert bool(git(repo, "branch", "--list", "fresh")) is is_made


@pytest.fixture
def elsewhere(start: Command, repo: Path) -> str:
    """A completed run that started from a branch with commits that main does not have."""
    git(repo, "checkout", "-q", "-b", "feature")
    (repo / "other.txt").write_text("other\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Other work")
    return str(start("--yes").json["run_id"])


def test_commits_that_come_along_from_another_branch_are_named(elsewhere: str, holdfast: Command, repo: Path) -> None:
    before = git(repo, "rev-parse", "main")

    tried = holdfast("merge", elsewhere, "--into", "main", "--dry-run")
    assert "main would also get 1 commit of feature that the run started from: “Other work”." in tried.out
    assert git(repo, "rev-parse", "main") == before
    own = holdfast("merge", elsewhere, "--dry-run", "--json").json
    assert (own["branch"], own["base_commits"]) == ("feature", [])

    merged = holdfast("merge", elsewhere, "--into", "main")
    assert merged.code == 0
    assert "main also got 1 commit of feature that the run started from: “Other work”." in merged.out


@pytest.mark.parametrize(("keys", "is_merged"), [("y\r", True), ("\x04", False)])
def test_on_a_terminal_it_asks_before_commits_come_along(
    elsewhere: str, repo: Path, environment: dict[str, str], keys: str, is_merged: bool
) -> None:
    before = git(repo, "rev-parse", "main")

    with Terminal("merge", elsewhere, "--into", "main", env=environment) as terminal:
        terminal.wait_for("would also get 1 commit of feature")
        terminal.wait_for("Merge it all? [y/N]:")
        terminal.type(keys)

        assert terminal.end() == (0 if is_merged else 1)
    assert (git(repo, "rev-parse", "main") != before) is is_merged


def test_a_merge_that_would_change_no_file_adds_no_commit(start: Command, holdfast: Command, repo: Path) -> None:
    run_id = start("--yes").json["run_id"]
    fork_id = holdfast("fork", run_id, "final", "--yes", "--json").json["run_id"]
    assert holdfast("merge", run_id).code == 0
    before = git(repo, "rev-parse", "main")

    tried, merged, again = (holdfast("merge", fork_id, *options) for options in (["--dry-run"], [], []))

    assert git(repo, "rev-parse", "main") == before
    for done in (tried, merged, again):
        assert done.out.startswith("Nothing to merge: main has the result already."), done
    assert holdfast("runs", "rm", fork_id, "--yes").code == 0
