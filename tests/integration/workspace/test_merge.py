from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import WorkspaceConflict, WorkspaceError
from holdfast.workspace import (
    Author,
    MergeAction,
    MergeOptions,
    ResultStep,
    Workspace,
    deliver_result,
    make_branch,
    merge_result,
    prepare_workspace,
    remove_workspace,
    snapshot,
)

WRITER = Author("Writer", "writer@example.org")
BY_WRITER = MergeOptions(author=WRITER)
OWN = ("plan.json", ".holdfast")


def _work(workspace: Workspace, attempt: int = 1, **files: str) -> ResultStep:
    for name, content in files.items():
        file = workspace.root / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return ResultStep(snapshot(workspace, "work", attempt, at=AT).commit, f"Step {attempt}\n\nWhy it was done.\n")


def test_result_reaches_a_clean_checkout_as_a_proper_commit(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, a_txt="two\n", new_txt="new\n", plan_json="{}", _holdfast__log="x")

    merged = merge_result(workspace, [step], target_branch="main", at=AT, options=BY_WRITER, without=OWN)

    assert (merged.action, merged.checkout) == (MergeAction.FAST_FORWARDED, repo.path)
    assert repo.git("status", "--porcelain") == ""
    assert (repo.path / "a.txt").read_text() == "two\n"
    assert repo.git("ls-files").split() == ["a.txt", "new.txt", "src/b.py"]
    assert (
        repo.git("log", "-1", "--format=%an <%ae> %cn|%s|%b")
        == "Writer <writer@example.org> Writer|Step 1|Why it was done."
    )
    assert (merged.summary.added, merged.summary.removed) == (2, 1)


def test_each_step_becomes_a_commit_and_empty_ones_none(repo: UserRepo, workspace: Workspace) -> None:
    steps = [_work(workspace, 1, a_txt="two\n"), _work(workspace, 2, plan_json="{}"), _work(workspace, 3, c_txt="c")]

    merge_result(workspace, steps, target_branch="main", at=AT, options=BY_WRITER, without=OWN)

    assert repo.git("log", "--format=%s").splitlines() == ["Step 3", "Step 1", "first"]


def test_own_file_that_the_user_has_too_stays_as_it_was(repo: UserRepo, data_dir: Path) -> None:
    repo.commit("theirs", plan_json="theirs")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    merge_result(workspace, [_work(workspace, plan_json="ours", c_txt="c")], target_branch="main", at=AT, without=OWN)

    assert (repo.path / "plan.json").read_text() == "theirs"


def test_branch_that_moved_on_gets_a_merge_commit(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, new_txt="new\n")
    theirs = repo.commit("theirs", a_txt="theirs\n")

    merged = merge_result(workspace, [step], target_branch="main", at=AT, options=BY_WRITER)

    assert merged.action is MergeAction.MERGED
    assert repo.git("rev-parse", "HEAD^1") == theirs
    assert repo.git("status", "--porcelain") == ""
    assert (repo.path / "new.txt").exists()


def test_a_second_merge_goes_on_from_the_first(repo: UserRepo, workspace: Workspace) -> None:
    merge_result(workspace, [_work(workspace, 1, a_txt="two\n")], target_branch="main", at=AT, options=BY_WRITER)
    repo.commit("theirs", c_txt="theirs\n")

    second = merge_result(
        workspace, [_work(workspace, 2, a_txt="three\n")], target_branch="main", at=AT, options=BY_WRITER
    )

    assert second.action is MergeAction.MERGED
    assert (repo.path / "a.txt").read_text() == "three\n"
    assert repo.git("log", "--format=%s", "--first-parent", "HEAD^2").splitlines() == ["Step 2", "Step 1", "first"]
    again = merge_result(
        workspace, [_work(workspace, 2, a_txt="three\n")], target_branch="main", at=AT, options=BY_WRITER
    )
    assert again.action is MergeAction.NOTHING_TO_DO


def test_what_was_taken_back_after_a_merge_is_taken_back_on_the_branch(repo: UserRepo, workspace: Workspace) -> None:
    before = (repo.path / "a.txt").read_text()
    merge_result(workspace, [_work(workspace, 1, a_txt="two\n")], target_branch="main", at=AT, options=BY_WRITER)

    merge_result(workspace, [_work(workspace, 2, a_txt=before)], target_branch="main", at=AT, options=BY_WRITER)

    assert (repo.path / "a.txt").read_text() == before
    assert repo.git("log", "--format=%s").splitlines() == ["Step 2", "Step 1", "first"]


def test_conflict_names_the_files_and_changes_nothing(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, a_txt="ours\n", new_txt="new\n")
    repo.commit("theirs", a_txt="theirs\n")
    before = repo.state()

    with pytest.raises(WorkspaceConflict) as caught:
        merge_result(workspace, [step], target_branch="main", at=AT)

    assert caught.value.paths == ("a.txt",)
    assert repo.state() == before


@pytest.mark.parametrize("dirt", ["modified", "staged", "untracked", "ignored", "folder"])
def test_checkout_with_changes_in_those_files_is_not_touched(repo: UserRepo, workspace: Workspace, dirt: str) -> None:
    repo.write(".git/info/exclude", "ignored.txt\n")
    step = _work(workspace, a_txt="ours\n", untracked_txt="ours", folder="ours")
    (workspace.root / "ignored.txt").write_text("ours")
    workspace.git.run("add", "-f", "ignored.txt")
    tree = workspace.git.line("write-tree")
    if dirt == "ignored":
        step = ResultStep(tree, "with an ignored file")
    match dirt:
        case "modified":
            repo.write("a.txt", "theirs\n")
        case "staged":
            repo.write("a.txt", "theirs\n")
            repo.git("add", "a.txt")
        case "folder":
            repo.write("folder/x", "theirs\n")
        case _:
            repo.write(f"{dirt}.txt", "theirs\n")
    before = repo.state()

    with pytest.raises(WorkspaceConflict) as caught:
        merge_result(workspace, [step], target_branch="main", at=AT)

    expected = {"modified": "a.txt", "staged": "a.txt", "folder": "folder/x"}.get(dirt, f"{dirt}.txt")
    assert caught.value.paths == (expected,)
    assert repo.state() == before


def test_changes_in_other_files_survive(repo: UserRepo, workspace: Workspace) -> None:
    repo.write("src/b.py", "mine\n")
    repo.write("notes.txt", "mine\n")

    merge_result(workspace, [_work(workspace, a_txt="ours\n")], target_branch="main", at=AT)

    assert (repo.path / "a.txt").read_text() == "ours\n"
    assert (repo.path / "src/b.py").read_text() == "mine\n"
    assert (repo.path / "notes.txt").read_text() == "mine\n"


def test_branch_that_is_not_checked_out_moves_without_a_checkout(repo: UserRepo, workspace: Workspace) -> None:
    repo.git("checkout", "-q", "-b", "elsewhere")
    repo.write("a.txt", "dirty\n")

    merged = merge_result(workspace, [_work(workspace, a_txt="ours\n")], target_branch="main", at=AT)

    assert merged.checkout is None
    assert repo.git("show", "main:a.txt") == "ours"
    assert (repo.path / "a.txt").read_text() == "dirty\n"


def test_branch_that_does_not_exist_is_made(repo: UserRepo, workspace: Workspace) -> None:
    merged = merge_result(workspace, [_work(workspace, c_txt="c")], target_branch="result", at=AT)

    assert merged.action is MergeAction.CREATED
    assert repo.git("show", "result:c.txt") == "c"


def test_merging_twice_does_nothing_the_second_time(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, c_txt="c")
    first = merge_result(workspace, [step], target_branch="main", at=AT)
    repo.commit("later", later_txt="x")

    again = merge_result(workspace, [step], target_branch="main", at=AT.replace(year=2027))

    assert again.action is MergeAction.NOTHING_TO_DO
    assert again.commit != first.commit


def test_nothing_to_merge(repo: UserRepo, workspace: Workspace) -> None:
    before = repo.state()

    merged = merge_result(workspace, [_work(workspace, plan_json="{}")], target_branch="main", at=AT, without=OWN)

    assert merged.action is MergeAction.NOTHING_TO_DO
    assert repo.state() == before


def test_result_of_an_empty_repository_is_its_first_commit(make_repo: Callable[..., UserRepo], data_dir: Path) -> None:
    empty = make_repo("empty")
    workspace = prepare_workspace(empty.path, data_dir=data_dir, run_id="r")

    merged = merge_result(workspace, [_work(workspace, a_txt="a")], target_branch="main", at=AT)

    assert merged.action is MergeAction.CREATED
    assert empty.git("rev-list", "--count", "main") == "1"
    assert (empty.path / "a.txt").read_text() == "a"
    assert empty.git("status", "--porcelain") == ""


def test_merge_works_after_the_workspace_is_gone(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, c_txt="c")
    remove_workspace(workspace, at=AT)

    merge_result(workspace, [step], target_branch="main", at=AT)

    assert (repo.path / "c.txt").exists()


def test_author_is_the_user_of_the_repository(repo: UserRepo, workspace: Workspace) -> None:
    repo.git("config", "user.name", "Owner of the repo")
    repo.git("config", "user.email", "owner@example.org")

    merge_result(workspace, [_work(workspace, c_txt="c")], target_branch="main", at=AT)

    assert repo.git("log", "-1", "--format=%an") == "Owner of the repo"


def test_branch_to_push_holds_the_result(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, c_txt="c", plan_json="{}")
    before = repo.state()

    made = make_branch(workspace, [step], at=AT, without=OWN)
    again = make_branch(workspace, [step], at=AT, without=OWN)
    named = make_branch(workspace, [step], at=AT, name="feature/x", without=OWN)

    assert made == again
    assert made.name == workspace.branch
    assert named.commit == made.commit
    assert repo.git("ls-tree", "-r", "--name-only", made.name).split() == ["a.txt", "c.txt", "src/b.py"]
    assert {**repo.state(), "refs": ""} == {**before, "refs": ""}


def test_branch_of_the_user_is_not_moved(repo: UserRepo, workspace: Workspace) -> None:
    with pytest.raises(WorkspaceError, match="There is a branch 'main'"):
        make_branch(workspace, [_work(workspace, c_txt="c")], at=AT, name="main")


@pytest.fixture
def plain(tmp_path: Path, data_dir: Path) -> Workspace:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("keep.txt", "change.txt", "drop.txt"):
        (folder / name).write_text(name)
    return prepare_workspace(folder, data_dir=data_dir, run_id="r")


def _change(plain: Workspace) -> str:
    (plain.root / "drop.txt").unlink()
    (plain.root / "change.txt").write_text("changed")
    (plain.root / "run.sh").write_text("#!/bin/sh")
    (plain.root / "run.sh").chmod(0o755)
    (plain.root / "link").symlink_to("run.sh")
    (plain.root / "plan.json").write_text("{}")
    return snapshot(plain, "work", 1, at=AT).tree_id


def test_result_is_delivered_to_a_plain_folder(plain: Workspace) -> None:
    tree = _change(plain)

    delivered = deliver_result(plain, tree, without=OWN)

    folder = delivered.folder
    assert sorted(entry.name for entry in folder.iterdir()) == ["change.txt", "keep.txt", "link", "run.sh"]
    assert (folder / "change.txt").read_text() == "changed"
    assert (folder / "run.sh").stat().st_mode & 0o111
    assert (folder / "link").is_symlink()
    assert deliver_result(plain, tree, without=OWN) == delivered


@pytest.mark.parametrize("theirs", ["change.txt", "drop.txt", "run.sh"])
def test_delivery_stops_before_it_overwrites_a_change_of_the_user(plain: Workspace, theirs: str) -> None:
    tree = _change(plain)
    assert plain.source is not None
    (plain.source / theirs).write_text("mine")

    with pytest.raises(WorkspaceConflict) as caught:
        deliver_result(plain, tree, without=OWN)

    assert caught.value.paths == (theirs,)
    assert (plain.source / theirs).read_text() == "mine"
    assert (plain.source / "drop.txt").exists()
