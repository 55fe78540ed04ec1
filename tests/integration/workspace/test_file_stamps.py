"""Trees that are built from what has changed are those that git builds from all files, whatever was done to them."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.workspace import Git, Workspace, prepare_workspace, snapshot, write_tree
from holdfast.workspace.files import hold_lock
from holdfast.workspace.snapshot import DEFAULT_RULES, SnapshotRules, Tree, build_tree

SMALL = SnapshotRules(max_file_bytes=100)


def build_whole(workspace: Workspace, rules: SnapshotRules) -> Tree:
    """Build the tree with an index that is not the workspace's own, so that git looks at every file."""
    with hold_lock(workspace.lock_path):
        return build_tree(workspace, rules, index=workspace.state_dir / "index.whole")


def change(root: Path, chance: random.Random) -> str:
    """Do something to a file, as agents and their tools do."""
    name = chance.choice(["a.txt", "new.txt", "deep/er/b.txt", "deep/c.txt", "__pycache__/x.pyc", "big.bin", "link"])
    path = root / name
    kind = chance.choice(["write", "same size", "forge", "remove", "mode", "link", "folder", "ignore", "nothing"])
    if kind == "ignore":
        ignore = root / chance.choice(["", "deep"]) / ".gitignore"
        if ignore.is_file():
            ignore.unlink()
        elif ignore.parent.is_dir():
            ignore.write_text("new.txt\nc.txt\n")
    elif kind == "folder":
        shutil.rmtree(root / "deep", ignore_errors=True)
        if chance.random() < 0.5 and not (root / "deep").exists():
            (root / "deep").write_text("now a file\n")
    elif kind in ("remove", "link") and path.parent.is_dir() and not path.is_dir():
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to("a.txt")
    elif kind in ("write", "same size", "forge") and not any(each.is_file() for each in path.parents):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            return "nothing"
        before = path.lstat() if path.exists() and not path.is_symlink() else None
        path.unlink() if path.is_symlink() else None
        size = 200 if name == "big.bin" else before.st_size if before and kind != "write" else chance.randrange(1, 50)
        with path.open("r+" if before and size == before.st_size else "w") as file:
            file.write("".join(chance.choices("abc\n", k=size)))
        if before and kind == "forge":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif kind == "mode" and path.is_file() and not path.is_symlink():
        path.chmod(chance.choice([0o644, 0o755]))
    return f"{kind} {name}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_row_of_changes_gives_the_tree_of_all_files(repo: UserRepo, data_dir: Path, seed: int) -> None:
    chance = random.Random(seed)
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    done: list[str] = []
    for _ in range(25):
        done += [change(workspace.root, chance) for _ in range(chance.randrange(3))]
        found = write_tree(workspace, SMALL)
        whole = build_whole(workspace, SMALL)
        assert (found.tree_id, sorted(map(str, found.left_out))) == (
            whole.tree_id,
            sorted(map(str, whole.left_out)),
        ), done


def test_a_file_rewritten_in_the_same_moment_is_seen(repo: UserRepo, data_dir: Path) -> None:
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    file = workspace.root / "a.txt"
    trees = set()
    for text in ("one!", "two!", "six!"):
        with file.open("r+") as opened:  # the same inode, size and, on most systems, times
            opened.write(text)
        trees.add(write_tree(workspace).tree_id)
    assert len(trees) == 3


def test_a_tree_that_was_thrown_away_is_built_again(repo: UserRepo, data_dir: Path) -> None:
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    (workspace.root / "new.txt").write_text("not recorded yet\n")
    tree = write_tree(workspace).tree_id
    repo.git("gc", "-q", "--prune=now")
    assert write_tree(workspace).tree_id == tree
    assert repo.git("cat-file", "-t", tree) == "tree"


def test_a_commit_is_the_one_that_git_would_make(repo: UserRepo, data_dir: Path) -> None:
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    plan = snapshot(workspace, "plan", 1, at=AT, message="What was wanted: größer", rules=DEFAULT_RULES)
    who = {f"GIT_{role}_{part}": text for role in ("AUTHOR", "COMMITTER") for part, text in _FACTS.items()}
    words = ["git", "-C", str(workspace.root), "commit-tree", plan.tree_id, "-p", "HEAD", "-m"]
    made = subprocess.run(
        [*words, "What was wanted: größer"], env={**os.environ, **who}, check=True, capture_output=True, text=True
    )
    assert made.stdout.strip() == plan.commit
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


_FACTS = {"NAME": "holdfast", "EMAIL": "holdfast@localhost", "DATE": f"@{int(AT.timestamp())} +0000"}


def test_what_a_killed_registration_left_is_cleared_away(repo: UserRepo, data_dir: Path) -> None:
    part = repo.path / ".git" / "holdfast-run-1.part"
    part.mkdir()
    (part / "HEAD").write_text("ref: ref")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    assert not part.exists()
    assert str(workspace.worktree) in repo.git("worktree", "list")
    assert Git(folder=workspace.root).line("symbolic-ref", "HEAD") == "refs/heads/holdfast/run-1"
    repo.git("worktree", "prune")  # it is locked
    assert workspace.git_dir.is_dir()
