"""Commits that stand for more files than a disk has room for, and repositories that lose what nobody names."""

from pathlib import Path

import pytest
from tests.support.git_bomb import commit_bomb
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import WorkspaceTooLarge
from holdfast.workspace import prepare_workspace, restore, snapshot, write_tree
from holdfast.workspace.git import Git
from holdfast.workspace.repository import find_dirty_paths, find_repository
from holdfast.workspace.repository_guard import checkout_size
from holdfast.workspace.repository_guard.checkout_size import CheckoutLimits, check_size
from holdfast.workspace.start import find_start


def test_a_commit_of_ten_million_files_is_refused_before_a_run_is_made(repo: UserRepo, data_dir: Path) -> None:
    commit_bomb(repo.path, 9)

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
    commit = commit_bomb(repo.path, 3)
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


def test_each_folder_of_a_commit_is_read_once(repo: UserRepo, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = commit_bomb(repo.path, 40)
    parsed: list[bytes] = []
    parse = checkout_size._parse_folder

    def count(content: bytes, id_bytes: int) -> object:
        parsed.append(content)
        return parse(content, id_bytes)

    monkeypatch.setattr(checkout_size, "_parse_folder", count)
    with pytest.raises(WorkspaceTooLarge):
        check_size(Git(git_dir=repo.path / ".git"), commit, data_dir)

    assert len(parsed) == len(set(parsed)) == 40


def test_the_count_is_what_git_lists(repo: UserRepo, data_dir: Path) -> None:
    """Folders that stand in several places, links, programs, an empty file and one of several blocks."""
    for folder in ("x/y/z", "x/q", "other/y/z"):
        (repo.path / folder).mkdir(parents=True)
        (repo.path / folder / "same.txt").write_text("same\n")
    (repo.path / "x" / "empty").touch()
    (repo.path / "x" / "big").write_bytes(b"b" * 10_000)
    (repo.path / "x" / "link").symlink_to("big")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "more")
    listed = repo.git("ls-tree", "-r", "-l", "HEAD").splitlines()
    files, blocks = len(listed), sum(max(1, -(-int(line.split()[3]) // 4096)) for line in listed)
    git = Git(git_dir=repo.path / ".git")
    commit = repo.git("rev-parse", "HEAD")

    check_size(git, commit, data_dir, CheckoutLimits(max_files=files, max_bytes=4096 * blocks))
    with pytest.raises(WorkspaceTooLarge):
        check_size(git, commit, data_dir, CheckoutLimits(max_files=files - 1))
    with pytest.raises(WorkspaceTooLarge):
        check_size(git, commit, data_dir, CheckoutLimits(max_bytes=4096 * blocks - 1))


def test_a_path_that_is_too_long_is_refused_however_short_its_names(repo: UserRepo, data_dir: Path) -> None:
    git = Git(git_dir=repo.path / ".git")
    tree = git.line("rev-parse", "HEAD^{tree}")
    for _ in range(16):
        tree = git.line("mktree", stdin=f"040000 tree {tree}\t{'x' * 200}\n".encode())

    with pytest.raises(WorkspaceTooLarge, match="no disk can have"):
        check_size(git, git.line("commit-tree", tree, "-m", "deep"), data_dir)


def test_a_chain_of_folders_is_given_up_where_no_path_is_longer(
    repo: UserRepo, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read to its end, each of them takes a question and an answer of its own."""
    monkeypatch.setattr(checkout_size, "_LONGEST_PATH", 20)
    git = Git(git_dir=repo.path / ".git")
    tree = git.line("rev-parse", "HEAD^{tree}")
    for _ in range(30):
        tree = git.line("mktree", stdin=f"040000 tree {tree}\tx\n".encode())
    commit = git.line("commit-tree", tree, "-m", "deep")
    parsed: list[bytes] = []
    parse = checkout_size._parse_folder

    def count(content: bytes, id_bytes: int) -> object:
        parsed.append(content)
        return parse(content, id_bytes)

    monkeypatch.setattr(checkout_size, "_parse_folder", count)
    with pytest.raises(WorkspaceTooLarge, match="no disk can have"):
        check_size(git, commit, data_dir)

    assert len(parsed) == 10
