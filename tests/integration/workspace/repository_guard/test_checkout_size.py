"""Commits that stand for more files than a disk has room for, and repositories that lose what nobody names."""

from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import WorkspaceTooLarge
from holdfast.workspace import prepare_workspace, restore, snapshot, write_tree
from holdfast.workspace.git import Git
from holdfast.workspace.repository import find_dirty_paths, find_repository
from holdfast.workspace.repository_guard.checkout_size import CheckoutLimits, check_size
from holdfast.workspace.start import find_start


def commit_bomb(repo: UserRepo, levels: int) -> str:
    """Make a commit of ten to the power of `levels` files, out of one object a level."""
    blob = repo.git("hash-object", "-w", "--stdin")
    entries = [("100644", "blob", blob)]
    git = Git(git_dir=repo.path / ".git")
    tree = blob
    for _ in range(levels):
        mode, kind, name = entries[0]
        lines = "".join(f"{mode} {kind} {name}\tf{number}\n" for number in range(10))
        tree = git.line("mktree", stdin=lines.encode())
        entries = [("040000", "tree", tree)]
    commit = git.line("commit-tree", tree, "-m", "bomb")
    git.run("update-ref", "refs/heads/bomb", commit)
    return commit


def test_a_commit_of_ten_million_files_is_refused_before_a_run_is_made(repo: UserRepo, data_dir: Path) -> None:
    commit_bomb(repo, 9)

    with pytest.raises(WorkspaceTooLarge, match="more than"):
        find_start(repo.path, "bomb", data_dir=data_dir)
    with pytest.raises(WorkspaceTooLarge, match="more than"):
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1", base_branch="bomb")

    repo.git("symbolic-ref", "HEAD", "refs/heads/bomb")
    found = find_repository(repo.path)
    assert found is not None
    assert find_dirty_paths(found, data_dir=data_dir) == ()  # git would compare the files one by one
    worktree = data_dir / "worktrees" / "run-1"
    assert [entry.name for entry in worktree.iterdir()] == [".git"]


@pytest.mark.parametrize(
    "limits",
    [CheckoutLimits(max_files=999), CheckoutLimits(max_bytes=4096 * 999), CheckoutLimits(spare_bytes=10**18)],
)
def test_files_and_bytes_and_the_disk_are_counted(repo: UserRepo, data_dir: Path, limits: CheckoutLimits) -> None:
    commit = commit_bomb(repo, 3)
    git = Git(git_dir=repo.path / ".git")

    check_size(git, commit, data_dir)
    with pytest.raises(WorkspaceTooLarge):
        check_size(git, commit, data_dir, limits)


def test_a_name_that_no_disk_can_have_is_refused(repo: UserRepo, data_dir: Path) -> None:
    git = Git(git_dir=repo.path / ".git")
    blob = repo.git("rev-parse", "HEAD:a.txt")
    tree = git.line("mktree", stdin=f"100644 blob {blob}\t{'x' * 300}\n".encode())
    git.run("update-ref", "refs/heads/long", git.line("commit-tree", tree, "-m", "long"))

    with pytest.raises(WorkspaceTooLarge, match="no disk can have"):
        find_start(repo.path, "long", data_dir=data_dir)


def test_a_collection_of_garbage_takes_nothing_that_a_run_needs(repo: UserRepo, data_dir: Path) -> None:
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    taken = snapshot(workspace, "work", 1, at=AT)
    (workspace.root / "new.txt").write_text("not yet in a snapshot\n")
    tree = write_tree(workspace)
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")

    assert write_tree(workspace) == tree
    assert snapshot(workspace, "work", 2, at=AT).tree_id == tree.tree_id
    restore(workspace, taken.tree_id, at=AT)
    assert not (workspace.root / "new.txt").exists()
