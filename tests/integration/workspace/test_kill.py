"""The process dies by SIGKILL before, and git with it in the middle of, a git call; a second try converges.

Every third call is tried, from where the seed says; all of them with HOLDFAST_TORTURE.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.workspace import (
    Git,
    Workspace,
    prepare_workspace,
    remove_workspace,
    restore,
    snapshot,
    write_tree,
)

STRIDE = 1 if os.environ.get("HOLDFAST_TORTURE") else 3
FIRST = 1 + int(os.environ.get("HOLDFAST_SEED", "0") or 0) % STRIDE

# Counts the calls; at the chosen one it kills the process that called, and git itself if it is in the middle.
WRAPPER = """#!/bin/sh
echo x >> "$CRASH_DIR/calls"
if [ "$(wc -l < "$CRASH_DIR/calls")" -eq "$CRASH_AT" ]; then
    if [ "$CRASH_MODE" = during ]; then
        "$REAL_GIT" "$@" <&0 &
        sleep "$CRASH_DELAY"
        kill -9 $!
    fi
    kill -9 $PPID
    exit 1
fi
exec "$REAL_GIT" "$@"
"""
OPERATION = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from holdfast.workspace import open_workspace, prepare_workspace, remove_workspace, restore, snapshot
operation, repo, data_dir, tree = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
if operation == "prepare":
    prepare_workspace(repo, data_dir=data_dir, run_id="run-1")
elif operation == "restore":
    restore(open_workspace(data_dir, "run-1"), tree, at=at)
elif operation == "snapshot":
    snapshot(open_workspace(data_dir, "run-1"), "plan", 1, at=at)
elif operation == "remove":
    remove_workspace(open_workspace(data_dir, "run-1"), at=at)
"""


class Victim:
    """Runs one operation in a process of its own that dies at the chosen git call."""

    def __init__(self, folder: Path, repo: Path, data_dir: Path) -> None:
        self.folder, self.repo, self.data_dir = folder, repo, data_dir
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/git").write_text(WRAPPER)
        (folder / "bin/git").chmod(0o755)

    def run(self, operation: str, *, at: int, mode: str = "before", delay_s: float = 0.003, tree: str = "") -> bool:
        """Whether it died; it does not if it needs fewer calls."""
        (self.folder / "calls").unlink(missing_ok=True)
        env = {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "REAL_GIT": str(shutil.which("git")),
            "CRASH_DIR": str(self.folder),
            "CRASH_AT": str(at),
            "CRASH_MODE": mode,
            "CRASH_DELAY": str(delay_s),
        }
        argv = [sys.executable, "-c", OPERATION, operation, str(self.repo), str(self.data_dir), tree]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -9), done.stderr
        return done.returncode == -9


@pytest.fixture
def victim(tmp_path: Path, repo: UserRepo, data_dir: Path) -> Victim:
    return Victim(tmp_path / "victim", repo.path, data_dir)


def _check(repo: UserRepo, workspace: Workspace, before: dict[str, str]) -> None:
    assert write_tree(workspace).tree_id == repo.git("rev-parse", "main^{tree}")
    assert repo.git("worktree", "list").count("\n") == 1
    assert UserRepo(workspace.root).git("status", "--porcelain") == ""
    assert repo.state() == before


@pytest.mark.parametrize("mode", ["before", "during"])
def test_prepare_converges_after_a_kill_at_any_git_call(
    repo: UserRepo, victim: Victim, data_dir: Path, mode: str
) -> None:
    before = repo.state()
    for at in itertools.count(FIRST, STRIDE):
        if not victim.run("prepare", at=at, mode=mode):
            break
        workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
        _check(repo, workspace, before)
        _forget(repo, workspace)

    assert at > FIRST, "nothing was killed"


def _forget(repo: UserRepo, workspace: Workspace) -> None:
    shutil.rmtree(workspace.worktree)
    repo.git("worktree", "remove", "-f", "-f", str(workspace.worktree))
    shutil.rmtree(workspace.state_dir)
    repo.git("update-ref", "-d", "refs/holdfast/run-1/@base")
    repo.git("branch", "-q", "-D", "holdfast/run-1")


def test_prepare_converges_after_a_row_of_kills(repo: UserRepo, victim: Victim, data_dir: Path) -> None:
    before = repo.state()
    for at in range(FIRST, 40, STRIDE):
        if not victim.run("prepare", at=at, mode="during", delay_s=0.001 * (at % 5)):
            break

    _check(repo, prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1"), before)


def test_adopting_files_survives_a_kill_at_any_git_call(repo: UserRepo, victim: Victim, data_dir: Path) -> None:
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    (workspace.root / "a.txt").write_text("work")
    (workspace.root / "new.txt").write_text("work")
    tree = write_tree(workspace).tree_id
    shutil.rmtree(workspace.git_dir)
    for at in itertools.count(FIRST, STRIDE):
        if not victim.run("prepare", at=at, mode="during" if at % 2 else "before"):
            break
        again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
        assert write_tree(again).tree_id == tree
        shutil.rmtree(again.git_dir)

    assert at > FIRST, "nothing was killed"


@pytest.mark.parametrize("stopped_after", ["aside", "registered", "marked", "unlinked"])
def test_adopting_goes_on_where_it_stopped(
    repo: UserRepo, workspace: Workspace, data_dir: Path, monkeypatch: pytest.MonkeyPatch, stopped_after: str
) -> None:
    (workspace.root / "new.txt").write_text("work")
    tree = write_tree(workspace).tree_id
    shutil.rmtree(workspace.git_dir)
    with monkeypatch.context() as patch:
        _stop(patch, stopped_after)
        with pytest.raises(KeyboardInterrupt):
            prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert write_tree(again).tree_id == tree


def _stop(patch: pytest.MonkeyPatch, where: str) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    registration, run = "holdfast.workspace.worktree_registration.", Git.run
    match where:
        case "aside":
            patch.setattr(registration + "_register", die)
        case "registered":
            patch.setattr(registration + "_bring_back", die)
        case "marked":
            patch.setattr(
                Git, "run", lambda git, *args, **kw: die() if args[0] == "read-tree" else run(git, *args, **kw)
            )
        case "unlinked":
            rename = Path.rename
            patch.setattr(Path, "rename", lambda path, to: die() if path.suffix == ".adopted" else rename(path, to))


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a.txt").write_text("a")
    yield folder
    assert sorted(path.name for path in folder.rglob("*")) == ["a.txt", "sub"]


@pytest.mark.parametrize("mode", ["before", "during"])
def test_private_copy_converges_after_a_kill_at_any_git_call(
    tmp_path: Path, plain: Path, data_dir: Path, mode: str
) -> None:
    victim = Victim(tmp_path / "victim", plain, data_dir)
    for at in itertools.count(FIRST, STRIDE):
        if not victim.run("prepare", at=at, mode=mode):
            break
        workspace = prepare_workspace(plain, data_dir=data_dir, run_id="run-1")
        assert (workspace.root / "sub/a.txt").read_text() == "a"
        shutil.rmtree(data_dir)

    assert at > FIRST, "nothing was killed"


def _fill(workspace: Workspace, count: int) -> None:
    for number in range(count):
        (workspace.root / f"f{number}.txt").write_text(f"version {count}\n" * 200)


@pytest.mark.parametrize("mode", ["before", "during"])
def test_restore_converges_and_loses_nothing(
    repo: UserRepo, victim: Victim, workspace: Workspace, data_dir: Path, mode: str
) -> None:
    _fill(workspace, 60)
    target = snapshot(workspace, "plan", 1, at=AT).tree_id
    for at in itertools.count(FIRST, STRIDE):
        _fill(workspace, 60 + at)
        unsaved = write_tree(workspace).tree_id
        if not victim.run("restore", at=at, mode=mode, delay_s=0.004, tree=target):
            break
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")  # whoever resumes begins with that
        restore(workspace, target, at=AT)
        assert write_tree(workspace).tree_id == target
        assert unsaved in repo.git("for-each-ref", "--format=%(tree)", "refs/holdfast/run-1")

    assert at > FIRST, "nothing was killed"


def test_snapshot_converges(repo: UserRepo, victim: Victim, workspace: Workspace, data_dir: Path) -> None:
    for at in itertools.count(FIRST, STRIDE):
        _fill(workspace, 5 + at)
        if not victim.run("snapshot", at=at, mode="during" if at % 2 else "before"):
            break
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
        taken = snapshot(workspace, "plan", 1, at=AT)
        assert repo.git("rev-parse", f"{taken.ref}^{{tree}}") == write_tree(workspace).tree_id

    assert at > FIRST, "nothing was killed"


def test_removal_loses_nothing_and_can_be_repeated(
    repo: UserRepo, victim: Victim, workspace: Workspace, data_dir: Path
) -> None:
    for at in itertools.count(FIRST, STRIDE):
        _fill(workspace, 5 + at)
        tree = write_tree(workspace).tree_id
        has_died = victim.run("remove", at=at, mode="during" if at % 2 else "before")
        assert workspace.root.exists() or tree in repo.git("for-each-ref", "--format=%(tree)", "refs/holdfast/run-1")
        remove_workspace(workspace, at=AT)
        assert not workspace.root.exists()
        assert tree in repo.git("for-each-ref", "--format=%(tree)", "refs/holdfast/run-1")
        if not has_died:
            break
        workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert at > FIRST, "nothing was killed"
