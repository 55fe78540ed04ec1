import errno
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import BaseBranchMissing, RepositoryMissing, WorkspaceError, WorkspaceTooLarge
from holdfast.workspace import (
    CopyLimits,
    Workspace,
    open_workspace,
    prepare_workspace,
    restore,
    snapshot,
    worktree,
    write_tree,
)
from holdfast.workspace.refs import to_component
from holdfast.workspace.repository import find_dirty_paths, find_repository


def test_run_gets_a_worktree_and_branch_and_the_user_nothing(repo: UserRepo, data_dir: Path) -> None:
    before = repo.state()

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert workspace.root == data_dir / "worktrees" / "run-1"
    assert (workspace.root / "src/b.py").read_text() == "print(1)\n"
    assert workspace.branch == "holdfast/run-1"
    assert workspace.base_commit == repo.git("rev-parse", "main") == repo.git("rev-parse", "holdfast/run-1")
    assert workspace.is_rebuilt
    assert not workspace.is_private
    assert repo.state() == before


def test_second_call_finds_what_is_there_and_keeps_work(repo: UserRepo, workspace: Workspace, data_dir: Path) -> None:
    (workspace.root / "a.txt").write_text("work\n")

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert not again.is_rebuilt
    assert (again.root / "a.txt").read_text() == "work\n"
    assert open_workspace(data_dir, "run-1") == again


def test_dirty_checkout_is_reported_and_not_taken_along(repo: UserRepo, data_dir: Path) -> None:
    repo.write("a.txt", "not committed\n")
    repo.write("new.txt", "untracked\n")
    before = repo.state()

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    found = find_repository(repo.path)
    assert found is not None
    assert set(find_dirty_paths(found, data_dir=data_dir)) == {"a.txt", "new.txt"}
    assert (workspace.root / "a.txt").read_text() == "one\n"
    assert not (workspace.root / "new.txt").exists()
    assert repo.state() == before


def test_bare_repository(repo: UserRepo, tmp_path: Path, data_dir: Path) -> None:
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "bare.git"))

    workspace = prepare_workspace(tmp_path / "bare.git", data_dir=data_dir, run_id="r")

    assert (workspace.root / "a.txt").exists()
    assert workspace.source is None


def test_shallow_clone(repo: UserRepo, tmp_path: Path, data_dir: Path) -> None:
    repo.commit("second", a_txt="two\n")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(tmp_path / "shallow"))

    workspace = prepare_workspace(tmp_path / "shallow", data_dir=data_dir, run_id="r")

    assert workspace.is_shallow
    assert (workspace.root / "a.txt").read_text() == "two\n"


def test_detached_head_starts_from_the_named_branch(repo: UserRepo, data_dir: Path) -> None:
    first = repo.git("rev-parse", "HEAD")
    second = repo.commit("second", a_txt="two\n")
    repo.git("checkout", "-q", "--detach", first)
    before = repo.state()

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="r")
    at_head = prepare_workspace(repo.path, data_dir=data_dir, run_id="h", base_branch="HEAD")

    assert (workspace.base_commit, at_head.base_commit) == (second, first)
    assert repo.state() == before


def test_branch_of_a_remote_will_do(repo: UserRepo, tmp_path: Path, data_dir: Path) -> None:
    repo.git("branch", "topic")
    repo.git("clone", "-q", str(repo.path), str(tmp_path / "clone"))

    workspace = prepare_workspace(tmp_path / "clone", data_dir=data_dir, run_id="r", base_branch="topic")

    assert workspace.base_commit == repo.git("rev-parse", "topic")


def test_empty_repository_starts_from_nothing(make_repo: Callable[..., UserRepo], data_dir: Path) -> None:
    empty = make_repo("empty")

    workspace = prepare_workspace(empty.path, data_dir=data_dir, run_id="r")
    again = prepare_workspace(empty.path, data_dir=data_dir, run_id="r")

    assert workspace.base_commit == again.base_commit
    assert [entry.name for entry in workspace.root.iterdir()] == [".git"]
    assert empty.git("rev-parse", "--verify", "--quiet", "HEAD", check=False) == ""


def test_missing_base_branch_names_those_there_are(repo: UserRepo, data_dir: Path) -> None:
    repo.git("branch", "develop")

    with pytest.raises(BaseBranchMissing) as caught:
        prepare_workspace(repo.path, data_dir=data_dir, run_id="r", base_branch="master")

    assert caught.value.branches == ("develop", "main")
    assert "develop, main" in caught.value.hint
    assert not (data_dir / "worktrees/r").exists()


def test_base_stays_when_the_branch_moves_or_is_rewritten(repo: UserRepo, workspace: Workspace, data_dir: Path) -> None:
    repo.git("commit", "-q", "--amend", "-m", "rewritten")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert again.base_commit == workspace.base_commit != repo.git("rev-parse", "main")


def test_recorded_base_that_is_gone_is_an_error(repo: UserRepo, data_dir: Path) -> None:
    with pytest.raises(BaseBranchMissing, match="no longer in the repository"):
        prepare_workspace(repo.path, data_dir=data_dir, run_id="r", base_commit="0123" * 10)


def test_subfolder_is_the_root_of_the_work(repo: UserRepo, data_dir: Path) -> None:
    workspace = prepare_workspace(repo.path / "src", data_dir=data_dir, run_id="r")

    assert workspace.root == workspace.worktree / "src"
    assert (workspace.root / "b.py").exists()
    assert workspace.source == repo.path / "src"


def test_subfolder_that_the_base_does_not_have_is_an_error(repo: UserRepo, data_dir: Path) -> None:
    repo.git("checkout", "-q", "-b", "other")
    repo.commit("more", late__c_py="")

    with pytest.raises(WorkspaceError, match="'late' is not in branch 'main'"):
        prepare_workspace(repo.path / "late", data_dir=data_dir, run_id="r")


def test_folder_that_the_repository_around_it_does_not_know_is_plain(repo: UserRepo, data_dir: Path) -> None:
    repo.write("scratch/x.txt", "x")

    workspace = prepare_workspace(repo.path / "scratch", data_dir=data_dir, run_id="r")

    assert workspace.is_private
    assert (workspace.root / "x.txt").read_text() == "x"


def test_linked_worktree_of_the_user(repo: UserRepo, tmp_path: Path, data_dir: Path) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))

    workspace = prepare_workspace(tmp_path / "side", data_dir=data_dir, run_id="r", base_branch="side")

    assert workspace.repo == repo.path / ".git"
    assert (workspace.root / "a.txt").exists()


@pytest.mark.parametrize("kind", ["missing", "file", "broken", "inside"])
def test_what_is_no_repository_is_refused_clearly(repo: UserRepo, tmp_path: Path, data_dir: Path, kind: str) -> None:
    path = tmp_path / "thing"
    match kind:
        case "file":
            path.write_text("x")
        case "broken":
            path.mkdir()
            (path / ".git").write_text("gitdir: /nowhere\n")
        case "inside":
            path = repo.path / ".git"

    with pytest.raises(WorkspaceError) as caught:
        prepare_workspace(path, data_dir=data_dir, run_id="r")

    assert str(path) in caught.value.message
    assert caught.value.hint
    assert isinstance(caught.value, RepositoryMissing) == (kind in ("missing", "file"))


def test_vanished_repository_is_named_and_the_work_stays(repo: UserRepo, workspace: Workspace, data_dir: Path) -> None:
    (workspace.root / "new.txt").write_text("work\n")
    repo.path.rename(repo.path.with_name("elsewhere"))
    with pytest.raises(RepositoryMissing):
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    repo.path.mkdir()
    with pytest.raises(RepositoryMissing, match="is gone"):
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    repo.path.rmdir()
    repo.path.with_name("elsewhere").rename(repo.path)

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert not again.is_rebuilt
    assert (again.root / "new.txt").read_text() == "work\n"


def test_lost_folder_is_made_again(repo: UserRepo, workspace: Workspace, data_dir: Path) -> None:
    workspace.root.rename(workspace.root.with_name("gone"))

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert again.is_rebuilt
    assert (again.root / "a.txt").read_text() == "one\n"


def test_pruned_worktree_is_adopted_with_its_work(repo: UserRepo, workspace: Workspace, data_dir: Path) -> None:
    (workspace.root / "a.txt").write_text("work\n")
    (workspace.root / "new.txt").write_text("work\n")
    tree = write_tree(workspace).tree_id
    repo.git("worktree", "unlock", str(workspace.root))
    workspace.root.rename(workspace.root.with_name("away"))
    repo.git("worktree", "prune")
    workspace.root.with_name("away").rename(workspace.root)

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert not again.is_rebuilt
    assert write_tree(again).tree_id == tree
    assert subprocess.run(["git", "-C", again.root, "status"], capture_output=True, check=False).returncode == 0


def test_users_prune_does_not_drop_a_worktree_that_is_away(repo: UserRepo, workspace: Workspace) -> None:
    workspace.root.rename(workspace.root.with_name("away"))

    repo.git("worktree", "prune", "--expire=now")

    assert workspace.git_dir.exists()


@pytest.mark.parametrize("damage", ["gone", "altered"])
def test_damaged_link_file_is_written_again(repo: UserRepo, workspace: Workspace, data_dir: Path, damage: str) -> None:
    link = workspace.root / ".git"
    link.unlink()
    if damage == "altered":
        link.write_text("gitdir: /somewhere/else\n")

    prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert link.read_text() == f"gitdir: {workspace.git_dir}\n"


def test_own_repository_folder_in_place_of_the_link_is_refused(
    repo: UserRepo, workspace: Workspace, data_dir: Path
) -> None:
    (workspace.root / ".git").unlink()
    subprocess.run(["git", "init", "-q", workspace.root], check=True)

    with pytest.raises(WorkspaceError, match="not the run's"):
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")


def test_branch_called_holdfast_is_no_obstacle(repo: UserRepo, data_dir: Path) -> None:
    repo.git("branch", "holdfast")

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    assert workspace.branch == "holdfast-r"
    assert prepare_workspace(repo.path, data_dir=data_dir, run_id="r").branch == "holdfast-r"


def test_run_branch_that_the_user_has_checked_out_is_no_obstacle(
    repo: UserRepo, workspace: Workspace, data_dir: Path
) -> None:
    repo.git("worktree", "remove", "-f", "-f", str(workspace.root))
    repo.git("checkout", "-q", "holdfast/run-1")

    again = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert (again.root / "a.txt").exists()
    assert repo.git("symbolic-ref", "HEAD") == "refs/heads/holdfast/run-1"


def test_many_runs_on_one_repository_at_once(repo: UserRepo, data_dir: Path) -> None:
    before = repo.state()
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda n: prepare_workspace(repo.path, data_dir=data_dir, run_id=f"r{n}"), range(12)))
    for number, run in enumerate(runs):
        (run.root / "mine.txt").write_text(str(number))

    trees = [write_tree(run).tree_id for run in runs]

    assert len(set(trees)) == 12
    assert [(run.root / "mine.txt").read_text() for run in runs] == [str(number) for number in range(12)]
    assert repo.state() == before


def test_users_hooks_settings_and_variables_do_not_reach_the_run(
    repo: UserRepo, data_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook = repo.write(".git/hooks/post-checkout", f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    repo.git("config", "core.fsmonitor", f"touch {tmp_path}/monitored;")
    repo.git("config", "core.autocrlf", "true")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "monitored").exists()
    assert (workspace.root / "a.txt").read_bytes() == b"one\n"


def test_sparse_checkout_of_the_user_does_not_lose_files(repo: UserRepo, data_dir: Path) -> None:
    repo.git("sparse-checkout", "set", "--cone", "nothing")

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    assert (workspace.root / "src/b.py").exists()
    assert write_tree(workspace).tree_id == repo.git("rev-parse", "main^{tree}")
    assert not (repo.path / "src/b.py").exists()


def test_data_directory_inside_the_checkout_stays_out_of_sight(repo: UserRepo) -> None:
    data_dir = repo.path / ".data"

    prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    assert repo.git("status", "--porcelain") == ""
    found = find_repository(repo.path)
    assert found is not None
    assert find_dirty_paths(found, data_dir=data_dir) == ()


def test_odd_run_ids_stay_apart(repo: UserRepo, data_dir: Path) -> None:
    odd = ["a b", "a/b", "a..b", "-x", ".hidden", "x.lock", "ü", "x" * 200, "x" * 199 + "y", "@"]

    runs = [prepare_workspace(repo.path, data_dir=data_dir, run_id=run_id) for run_id in odd]

    assert len({run.root for run in runs}) == len(odd)
    assert all(run.root.parent == data_dir / "worktrees" for run in runs)


def test_plain_folder_is_copied_without_our_data(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("a.txt", "sub/b c.txt", "app.db", "app.db-wal", "app.db-shm", "inner/x.py", "-odd", "build/out.o"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("build/\n")
    subprocess.run(["git", "init", "-q", folder / "inner"], check=True)
    data_dir = folder / "data"

    workspace = prepare_workspace(folder, data_dir=data_dir, run_id="r")
    again = prepare_workspace(folder, data_dir=data_dir, run_id="r")

    copied = {path.relative_to(workspace.root).as_posix() for path in workspace.root.rglob("*") if path.is_file()}
    assert copied - {".git"} == {"a.txt", "sub/b c.txt", ".gitignore", "inner/x.py", "-odd"}
    assert workspace.is_private
    assert workspace.source == folder
    assert not (folder / ".git").exists()
    assert again.base_commit == workspace.base_commit


def test_data_directory_around_a_plain_folder_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_text("a")

    workspace = prepare_workspace(tmp_path / "folder", data_dir=tmp_path, run_id="r")

    assert (workspace.root / "a.txt").read_text() == "a"


def test_plain_folder_goes_on_when_it_vanished_or_became_a_repository(tmp_path: Path, data_dir: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    first = prepare_workspace(folder, data_dir=data_dir, run_id="r")
    subprocess.run(["git", "init", "-q", folder], check=True)
    second = prepare_workspace(folder, data_dir=data_dir, run_id="r")
    folder.rename(tmp_path / "gone")

    third = prepare_workspace(folder, data_dir=data_dir, run_id="r")

    assert first.repo == second.repo == third.repo


def test_fork_of_a_run_on_a_plain_folder_shares_its_repository(tmp_path: Path, data_dir: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = prepare_workspace(folder, data_dir=data_dir, run_id="r")
    (first.root / "new.txt").write_text("new")
    plan_snapshot = snapshot(first, "plan", 1, at=AT)

    prepare_workspace(folder, data_dir=data_dir, run_id="f", base_commit=first.base_commit, forked_from=first)
    fork = prepare_workspace(folder, data_dir=data_dir, run_id="f")
    restore(fork, plan_snapshot.tree_id, at=AT)

    assert (fork.root / "new.txt").read_text() == "new"
    assert (fork.repo, fork.is_private, fork.source) == (first.repo, True, folder)
    assert fork.root != first.root


def test_full_disk_is_a_typed_error(repo: UserRepo, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(WorkspaceError, match="No space left"):
            prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    assert (prepare_workspace(repo.path, data_dir=data_dir, run_id="r").root / "a.txt").exists()


@given(st.lists(st.text(max_size=150), min_size=2, max_size=2, unique=True))
@settings(max_examples=200, deadline=None)
def test_ref_components_are_valid_and_differ(names: list[str]) -> None:
    first, second = (to_component(name) for name in names)

    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_%][A-Za-z0-9_%.-]*", first)
    assert not re.search(r"\.\.|\.lock$|\.$", first)


def test_empty_plain_folder(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "folder").mkdir()

    workspace = prepare_workspace(tmp_path / "folder", data_dir=data_dir, run_id="r")

    assert [entry.name for entry in workspace.root.iterdir()] == [".git"]


def test_too_large_plain_folder_is_refused_before_anything_is_copied(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/big.bin").write_bytes(b"x" * 5000)

    monkeypatch.setattr(worktree, "COPY_LIMITS", CopyLimits(max_bytes=4000))

    with pytest.raises(WorkspaceTooLarge, match=r"big\.bin"):
        prepare_workspace(tmp_path / "folder", data_dir=data_dir, run_id="r")

    assert not (data_dir / "repositories/r.git").exists()


@pytest.fixture
def with_submodule(repo: UserRepo, make_repo: Callable[..., UserRepo]) -> UserRepo:
    library = make_repo("library")
    library.commit("library", lib_c="int x;\n")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "vendor/lib")
    repo.commit("add submodule")
    return repo


def test_submodules_are_filled_from_the_users_copy(with_submodule: UserRepo, data_dir: Path) -> None:
    before = with_submodule.state()

    workspace = prepare_workspace(with_submodule.path, data_dir=data_dir, run_id="r")

    assert (workspace.root / "vendor/lib/lib.c").read_text() == "int x;\n"
    assert workspace.empty_submodules == ()
    assert write_tree(workspace).tree_id == with_submodule.git("rev-parse", "main^{tree}")
    assert with_submodule.state() == before


def test_submodule_without_a_copy_is_named(with_submodule: UserRepo, tmp_path: Path, data_dir: Path) -> None:
    with_submodule.git("clone", "-q", str(with_submodule.path), str(tmp_path / "clone"))

    workspace = prepare_workspace(tmp_path / "clone", data_dir=data_dir, run_id="r")

    assert workspace.empty_submodules == ("vendor/lib",)
    assert prepare_workspace(tmp_path / "clone", data_dir=data_dir, run_id="r").empty_submodules == ("vendor/lib",)
    assert write_tree(workspace).tree_id == with_submodule.git("rev-parse", "main^{tree}")


def test_work_inside_a_submodule_is_named_not_lost_in_silence(with_submodule: UserRepo, data_dir: Path) -> None:
    workspace = prepare_workspace(with_submodule.path, data_dir=data_dir, run_id="r")
    (workspace.root / "vendor/lib/lib.c").write_text("int y;\n")

    tree = write_tree(workspace)

    assert [(item.path, item.reason) for item in tree.left_out] == [("vendor/lib", "submodule_changes")]
    assert tree.tree_id == with_submodule.git("rev-parse", "main^{tree}")


def test_submodule_can_be_the_repository_itself(with_submodule: UserRepo, data_dir: Path) -> None:
    path = with_submodule.path / "vendor/lib"

    workspace = prepare_workspace(path, data_dir=data_dir, run_id="r")

    assert (workspace.root / "lib.c").exists()
    assert with_submodule.git("status", "--porcelain") == ""


def test_the_copy_of_a_plain_folder_is_without_databases_and_their_locks(tmp_path: Path, data_dir: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "runs.sqlite3-locks").mkdir(parents=True)
    for name in ("a.txt", "app.db", "app.db-wal", "runs.sqlite3", "runs.sqlite3-shm", "runs.sqlite3-locks/7f", "x.dbm"):
        (folder / name).write_text("x")

    workspace = prepare_workspace(folder, data_dir=data_dir, run_id="r")

    assert {path.name for path in workspace.root.iterdir()} - {".git"} == {"a.txt", "x.dbm"}
