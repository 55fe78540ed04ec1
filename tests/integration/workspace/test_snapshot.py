import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import WorkspaceError
from holdfast.workspace import (
    LeftOutReason,
    SnapshotRules,
    Workspace,
    changed_paths,
    copy_files,
    diff,
    prepare_workspace,
    remove_workspace,
    restore,
    snapshot,
    summarize_diff,
    write_tree,
)
from holdfast.workspace.diff import PatchLook
from holdfast.workspace.git import Git
from holdfast.workspace.worktree_registration import forget_worktree

SMALL = SnapshotRules(max_file_bytes=100)


def _names(workspace: Workspace, tree: str) -> set[str]:
    return set(workspace.git.run("ls-tree", "-r", "-z", "--name-only", tree).names)


def test_tree_holds_tracked_and_untracked_files_and_no_ignored_ones(workspace: Workspace) -> None:
    (workspace.root / "a.txt").unlink()
    (workspace.root / "new.txt").write_text("new")
    (workspace.root / ".gitignore").write_text("*.log\n")
    (workspace.root / "x.log").write_text("noise")
    (workspace.root / "cache").write_text("noise")

    tree = write_tree(workspace, SnapshotRules(ignore=("cache",)))

    assert _names(workspace, tree.tree_id) == {"src/b.py", "new.txt", ".gitignore"}
    assert tree.left_out == ()


def test_caches_of_tests_are_nobodys_work_unless_git_knows_them(repo: UserRepo, workspace: Workspace) -> None:
    for name in ("src/__pycache__/b.pyc", "node_modules/left/index.js", ".tox/log"):
        (workspace.root / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / name).write_text("made by a tool")

    names = _names(workspace, write_tree(workspace).tree_id)

    assert not {name for name in names if "__pycache__" in name or "node_modules" in name or ".tox" in name}


@pytest.mark.parametrize("lost", ["gitdir", "HEAD", "commondir"])
def test_a_worktree_that_a_killed_git_half_forgot_can_be_removed(
    repo: UserRepo, workspace: Workspace, lost: str
) -> None:
    (workspace.git_dir / lost).unlink()

    forget_worktree(Git(git_dir=workspace.repo), workspace.worktree)

    assert not workspace.git_dir.exists()


def test_tree_does_not_depend_on_the_past(workspace: Workspace) -> None:
    (workspace.root / "build").mkdir()
    (workspace.root / "build/out.o").write_text("x")
    write_tree(workspace)
    (workspace.root / ".gitignore").write_text("build/\n")

    with_past = write_tree(workspace).tree_id
    (workspace.state_dir / "index").unlink()

    assert write_tree(workspace).tree_id == with_past
    assert "build/out.o" not in _names(workspace, with_past)


def test_torn_index_is_made_again(workspace: Workspace) -> None:
    tree = write_tree(workspace).tree_id
    (workspace.state_dir / "index").write_bytes(b"DIRC torn")
    (workspace.state_dir / "index.lock").write_bytes(b"")

    assert write_tree(workspace).tree_id == tree


def test_building_a_tree_leaves_index_head_and_branch_alone(repo: UserRepo, workspace: Workspace) -> None:
    before = repo.state(), (workspace.git_dir / "index").read_bytes(), (workspace.git_dir / "HEAD").read_text()
    (workspace.root / "new.txt").write_text("new")

    snapshot(workspace, "plan", 1, at=AT)

    assert (
        repo.state(),
        (workspace.git_dir / "index").read_bytes(),
        (workspace.git_dir / "HEAD").read_text(),
    ) == before


def test_big_unreadable_and_nested_things_are_left_out_by_name(workspace: Workspace) -> None:
    (workspace.root / "big.bin").write_bytes(b"x" * 101)
    for name in ("nested", "nested-empty"):
        subprocess.run(["git", "init", "-q", workspace.root / name], check=True)
        (workspace.root / name / "file").write_text("x")
    os.mkfifo(workspace.root / "pipe")

    tree = write_tree(workspace, SMALL)

    assert {(item.path, item.reason) for item in tree.left_out} == {
        ("big.bin", LeftOutReason.TOO_BIG),
        ("nested", LeftOutReason.NESTED_REPOSITORY),
        ("nested-empty", LeftOutReason.NESTED_REPOSITORY),
    }
    assert _names(workspace, tree.tree_id) == {"a.txt", "src/b.py"}


def test_lost_worktree_is_an_error_not_an_empty_tree(workspace: Workspace) -> None:
    workspace.root.rename(workspace.root.with_name("gone"))

    with pytest.raises(WorkspaceError, match="is gone"):
        write_tree(workspace)


def test_snapshot_is_reachable_and_the_same_when_repeated(repo: UserRepo, workspace: Workspace) -> None:
    (workspace.root / "new.txt").write_text("new")

    first = snapshot(workspace, "odd phase/..~^:", 1, at=AT)
    again = snapshot(workspace, "odd phase/..~^:", 1, at=AT)

    assert first == again
    assert repo.git("rev-parse", first.ref) == first.commit
    assert repo.git("show", f"{first.ref}:new.txt") == "new"
    assert repo.git("rev-parse", f"{first.commit}^") == workspace.base_commit


def test_snapshot_that_is_replaced_stays_reachable(repo: UserRepo, workspace: Workspace) -> None:
    first = snapshot(workspace, "plan", 1, at=AT)
    (workspace.root / "new.txt").write_text("new")

    second = snapshot(workspace, "plan", 1, at=AT)

    assert second.commit != first.commit
    assert first.commit in repo.git("for-each-ref", "--format=%(objectname)", "refs/holdfast")


def test_restore_brings_back_exactly_the_tree_and_keeps_what_was_there(workspace: Workspace) -> None:
    (workspace.root / "new.txt").write_text("old version")
    plan_snapshot = snapshot(workspace, "plan", 1, at=AT)
    (workspace.root / "new.txt").write_text("newer version")
    (workspace.root / "extra.txt").write_text("extra")
    unsaved = write_tree(workspace).tree_id

    restored = restore(workspace, plan_snapshot.tree_id, at=AT)

    assert restored.rescue_ref is not None
    assert workspace.git.line("rev-parse", f"{restored.rescue_ref}^{{tree}}") == unsaved == restored.tree_before
    assert (workspace.root / "new.txt").read_text() == "old version"
    assert not (workspace.root / "extra.txt").exists()
    assert write_tree(workspace).tree_id == plan_snapshot.tree_id


def test_restore_makes_no_rescue_of_what_a_ref_holds(workspace: Workspace) -> None:
    first = snapshot(workspace, "plan", 1, at=AT)
    (workspace.root / "new.txt").write_text("new")
    snapshot(workspace, "plan", 2, at=AT)

    assert restore(workspace, first.tree_id, at=AT).rescue_ref is None


def test_restore_can_be_told_to_discard(workspace: Workspace) -> None:
    first = snapshot(workspace, "plan", 1, at=AT)
    (workspace.root / "new.txt").write_text("new")

    assert restore(workspace, first.commit, at=AT, can_discard=True).rescue_ref is None
    assert not (workspace.root / "new.txt").exists()


def test_restore_leaves_ignored_copied_big_and_nested_things_alone(repo: UserRepo, workspace: Workspace) -> None:
    repo.write(".env", "KEY=1")
    copy_files(workspace, [".env"])
    (workspace.root / ".gitignore").write_text("*.log\n")
    first = snapshot(workspace, "plan", 1, at=AT, rules=SMALL)
    (workspace.root / "x.log").write_text("log")
    (workspace.root / "big.bin").write_bytes(b"x" * 101)
    subprocess.run(["git", "init", "-q", workspace.root / "nested"], check=True)
    (workspace.root / "new.txt").write_text("new")

    restore(workspace, first.tree_id, at=AT, rules=SMALL)

    assert sorted(entry.name for entry in workspace.root.iterdir()) == sorted(
        [".git", ".gitignore", ".env", "x.log", "big.bin", "nested", "a.txt", "src"]
    )


def test_restore_keeps_a_big_change_of_a_tracked_file_before_it_is_overwritten(workspace: Workspace) -> None:
    first = snapshot(workspace, "plan", 1, at=AT, rules=SMALL)
    (workspace.root / "a.txt").write_bytes(b"x" * 101)
    (workspace.root / "new.txt").write_text("new")

    restored = restore(workspace, first.tree_id, at=AT, rules=SMALL)

    assert (workspace.root / "a.txt").read_text() == "one\n"
    assert workspace.git.line("show", f"{restored.rescue_ref}:a.txt") == "x" * 101


@pytest.mark.parametrize("in_the_way", ["out.txt", "out.txt/inner", "folder"])
def test_restore_keeps_an_ignored_file_that_is_in_the_way(workspace: Workspace, in_the_way: str) -> None:
    (workspace.root / "out.txt").write_text("result")
    (workspace.root / "folder").mkdir()
    (workspace.root / "folder/file").write_text("result")
    first = snapshot(workspace, "plan", 1, at=AT)
    (workspace.root / "out.txt").unlink()
    (workspace.root / "folder/file").unlink()
    (workspace.root / "folder").rmdir()
    (workspace.root / ".gitignore").write_text("out.txt\nfolder\n")
    write_tree(workspace)
    (workspace.root / in_the_way).parent.mkdir(exist_ok=True)
    (workspace.root / in_the_way).write_text("ignored work")

    restored = restore(workspace, first.tree_id, at=AT)

    assert (workspace.root / "out.txt").read_text() == "result"
    assert workspace.git.line("show", f"{restored.rescue_ref}:{in_the_way}") == "ignored work"
    assert write_tree(workspace).tree_id == first.tree_id


def test_lost_worktree_is_rebuilt_from_the_recorded_tree(repo: UserRepo, workspace: Workspace, data_dir: Path) -> None:
    (workspace.root / "new.txt").write_text("new")
    plan_snapshot = snapshot(workspace, "plan", 1, at=AT)
    workspace.root.rename(workspace.root.with_name("gone"))

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    restore(again, plan_snapshot.tree_id, at=AT)

    assert again.is_rebuilt
    assert (again.root / "new.txt").read_text() == "new"


def test_unknown_tree_is_an_error(workspace: Workspace) -> None:
    with pytest.raises(WorkspaceError, match="not in the repository"):
        restore(workspace, "1234" * 10, at=AT)


def test_diff_as_text_summary_and_paths(workspace: Workspace) -> None:
    before = write_tree(workspace).tree_id
    (workspace.root / "a.txt").write_text("one\ntwo\n")
    (workspace.root / "sp ace\nü").write_text("x\n")
    (workspace.root / "bin").write_bytes(b"\0\1")
    after = write_tree(workspace).tree_id

    summary = summarize_diff(workspace.repo, before, after)

    assert {(file.path, file.added, file.removed) for file in summary.files} == {
        ("a.txt", 1, 0),
        ("sp ace\nü", 1, 0),
        ("bin", None, None),
    }
    assert (summary.added, summary.removed) == (2, 0)
    assert set(changed_paths(workspace.repo, before, after)) == {"a.txt", "bin", "sp ace\nü"}
    assert "\n one\n+two" in diff(workspace.repo, before, after)
    assert "\n one\n" not in diff(workspace.repo, before, after, look=PatchLook(context=0))
    assert "[cut: " in diff(workspace.repo, before, after, max_chars=50)


def test_a_diff_leaves_out_what_is_named_and_nothing_that_only_looks_like_it(workspace: Workspace) -> None:
    before = write_tree(workspace).tree_id
    own = ['out/ü "1".json', "x[12].json", ":(top)y", "a.txt", "gone", "z.json.before-spec-1"]
    rest = ["x1.json", "z.json", "sub/a.txt", "src/b.py"]
    for name in own + rest:
        (workspace.root / name).parent.mkdir(exist_ok=True)
        (workspace.root / name).write_text("changed\n")
    after = write_tree(workspace).tree_id
    (workspace.root / "gone").unlink()
    without = [own[0], "x[[]12].json", *own[2:5], "z.json.before-*"]

    text = diff(workspace.repo, before, after, without=without)
    deleted = diff(workspace.repo, after, write_tree(workspace).tree_id, without=without)

    assert sorted(re.findall(r"^diff --git a/(\S+) ", text, re.MULTILINE)) == sorted(rest)
    assert text.count("diff --git") == len(rest)
    assert deleted == ""
    assert diff(workspace.repo, before, after).count("diff --git") == len(own + rest)


def test_remove_keeps_what_no_ref_reaches(repo: UserRepo, workspace: Workspace) -> None:
    (workspace.root / "new.txt").write_text("new")
    (workspace.root / "big.bin").write_bytes(b"x" * (21 * 1024**2))
    (workspace.root / "staged.txt").write_text("staged only")
    subprocess.run(["git", "-C", workspace.root, "add", "staged.txt"], check=True)
    (workspace.root / "staged.txt").unlink()

    removed = remove_workspace(workspace, at=AT)

    assert not workspace.root.exists()
    assert not workspace.git_dir.exists()
    assert len(removed.rescue_refs) == 2
    assert repo.git("show", f"{removed.rescue_refs[0]}:new.txt") == "new"
    assert repo.git("cat-file", "-s", f"{removed.rescue_refs[0]}:big.bin") == str(21 * 1024**2)
    assert repo.git("show", f"{removed.rescue_refs[1]}:staged.txt") == "staged only"
    assert remove_workspace(workspace, at=AT).rescue_refs == ()


def test_remove_keeps_commits_that_only_head_knows(repo: UserRepo, workspace: Workspace) -> None:
    inner = UserRepo(workspace.root)
    inner.git("checkout", "-q", "--detach")
    commit = inner.commit("made by an agent", agent_txt="x")
    inner.git("rm", "-q", "agent.txt")

    removed = remove_workspace(workspace, at=AT)

    assert repo.git("merge-base", "--is-ancestor", commit, removed.rescue_refs[0]) == ""


def test_remove_of_a_clean_workspace_needs_no_rescue_and_can_be_undone(
    repo: UserRepo, workspace: Workspace, data_dir: Path
) -> None:
    (workspace.root / ".gitignore").write_text("*.log\n")
    (workspace.root / "x.log").write_text("log")
    plan_snapshot = snapshot(workspace, "plan", 1, at=AT)

    removed = remove_workspace(workspace, at=AT)
    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    restore(again, plan_snapshot.tree_id, at=AT)

    assert removed.rescue_refs == ()
    assert removed.ignored == ("x.log",)
    assert (again.root / ".gitignore").exists()


def test_remove_refuses_while_there_is_a_nested_repository(workspace: Workspace) -> None:
    subprocess.run(["git", "init", "-q", workspace.root / "nested"], check=True)
    (workspace.root / "nested/work.txt").write_text("work")

    with pytest.raises(WorkspaceError, match=r"nested \(nested repository\)"):
        remove_workspace(workspace, at=AT)

    assert (workspace.root / "nested/work.txt").exists()
    remove_workspace(workspace, at=AT, can_discard_nested=True)
    assert not workspace.root.exists()


def test_remove_of_folders_without_write_permission(workspace: Workspace) -> None:
    (workspace.root / "closed/inner").mkdir(parents=True)
    (workspace.root / "closed/inner/file").write_text("x")
    (workspace.root / "closed/inner").chmod(0o500)
    (workspace.root / "closed").chmod(0o500)

    remove_workspace(workspace, at=AT)

    assert not workspace.root.exists()


def test_private_workspace_keeps_its_repository_when_removed(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "folder").mkdir()
    workspace = prepare_workspace(tmp_path / "folder", data_dir=data_dir, run_id="r")
    (workspace.root / "new.txt").write_text("new")

    removed = remove_workspace(workspace, at=AT)
    again = prepare_workspace(tmp_path / "folder", data_dir=data_dir, run_id="r")

    assert again.git.line("show", f"{removed.rescue_refs[0]}:new.txt") == "new"


NAMES = st.sampled_from(
    ["plain", "sp ace", "ünï", "-dash", "new\nline", "*", "[x]", ":(top)", '"q"', "tab\t", ".dot", "x.lock"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.tuples(st.just("file"), st.sampled_from([b"", b"x\n", b"x\r\n", b"\0\xff"])),
    st.tuples(st.just("script"), st.just(b"#!/bin/sh\n")),
    st.tuples(st.just("link"), st.sampled_from([b"plain", b"../..", b"/nowhere", b"-dash"])),
)
FILES = st.dictionaries(PATHS, CONTENTS, max_size=8)


def _fill(root: Path, files: dict[str, tuple[str, bytes]]) -> dict[str, tuple[str, bytes]]:
    """Make the folder hold these files and nothing else; a path below another file is left out."""
    for entry in root.iterdir():
        if entry.name != ".git":
            subprocess.run(["rm", "-rf", "--", entry], check=True)
    for path, (kind, content) in sorted(files.items()):
        file = root / path
        if any(parent.is_symlink() or parent.is_file() for parent in file.parents if root in parent.parents):
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            continue
        if kind == "link":
            file.symlink_to(os.fsdecode(content))
        else:
            file.write_bytes(content)
            file.chmod(0o755 if kind == "script" else 0o644)
    return _look(root)


def _look(root: Path) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for folder, folders, names in os.walk(root):
        for name in (*names, *folders):
            file = Path(folder, name)
            if file.is_symlink():
                found[str(file.relative_to(root))] = ("link", os.fsencode(os.readlink(file)))
            elif file.is_file() and name != ".git":
                kind = "script" if file.stat().st_mode & 0o100 else "file"
                found[str(file.relative_to(root))] = (kind, file.read_bytes())
    return found


@settings(
    max_examples=200 if os.environ.get("HOLDFAST_TORTURE") else 12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(first=FILES, second=FILES, third=FILES)
def test_restore_reproduces_any_snapshot_exactly(
    first: dict[str, tuple[str, bytes]], second: dict[str, tuple[str, bytes]], third: dict[str, tuple[str, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = UserRepo(Path(folder).resolve() / "repo")
        repo.path.mkdir()
        repo.git("init", "-q", "-b", "main")
        _fill(repo.path, first)
        repo.git("add", "-A")
        repo.git("commit", "-q", "--allow-empty", "-m", "first")
        workspace = prepare_workspace(repo.path, data_dir=Path(folder) / "data", run_id="r")
        expected: list[tuple[str, dict[str, tuple[str, bytes]]]] = []
        for files in (second, third):
            look = _fill(workspace.root, files)
            expected.append((snapshot(workspace, "phase", len(expected), at=AT).tree_id, look))
            assert expected[-1][0] == _tree_by_plain_git(workspace)

        for tree_id, look in (*expected, expected[0]):
            restore(workspace, tree_id, at=AT)
            assert _look(workspace.root) == look
            assert write_tree(workspace).tree_id == tree_id


def _tree_by_plain_git(workspace: Workspace) -> str:
    env = {**os.environ, "GIT_INDEX_FILE": str(workspace.state_dir / "plain-index")}
    subprocess.run(["git", "-C", workspace.root, "add", "-A"], env=env, check=True)
    done = subprocess.run(["git", "-C", workspace.root, "write-tree"], env=env, check=True, capture_output=True)
    return done.stdout.decode().strip()
