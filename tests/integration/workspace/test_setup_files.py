"""What set-up made is no part of the result, unless a phase changes it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.workspace import (
    LeftOutGroup,
    Workspace,
    changed_paths,
    inherit_setup,
    leave_out,
    open_workspace,
    prepare_workspace,
    read_setup,
    record_setup,
    restore,
    write_tree,
)


def write(workspace: Workspace, **files: str) -> None:
    for name, content in files.items():
        file = workspace.root / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def make_environment(workspace: Workspace, name: str = ".venv") -> None:
    (workspace.root / name / "lib").mkdir(parents=True)
    (workspace.root / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (workspace.root / name / "lib" / "module.py").write_text("x = 1\n")


def set_up(workspace: Workspace) -> None:
    record_setup(workspace, before=workspace.base_commit, at=AT)


def result_of(workspace: Workspace, tree: str) -> tuple[str, ...]:
    return changed_paths(workspace.repo, f"{workspace.base_commit}^{{tree}}", leave_out(workspace, tree, ()))


def test_what_setup_made_and_no_phase_touched_is_left_out_and_named(workspace: Workspace) -> None:
    write(workspace, gen__one_txt="1", gen__two_txt="2", lock_txt="lock", a_txt="changed by set-up\n")
    set_up(workspace)
    write(workspace, work_txt="a phase made this")
    tree = write_tree(workspace).tree_id

    assert result_of(workspace, tree) == ("work.txt",)
    assert read_setup(workspace).list_left_out(workspace, tree) == [
        LeftOutGroup("a.txt", 1, "setup"),
        LeftOutGroup("gen/", 2, "setup"),
        LeftOutGroup("lock.txt", 1, "setup"),
    ]


def test_what_a_phase_changes_of_it_is_the_phases(workspace: Workspace) -> None:
    write(workspace, gen__one_txt="1", gen__two_txt="2", a_txt="changed by set-up\n")
    set_up(workspace)
    write(workspace, gen__one_txt="better", a_txt="changed by a phase\n")

    assert result_of(workspace, write_tree(workspace).tree_id) == ("a.txt", "gen/one.txt")


def test_a_file_that_setup_deletes_is_still_there_in_the_result(workspace: Workspace) -> None:
    (workspace.root / "a.txt").unlink()
    set_up(workspace)

    assert result_of(workspace, write_tree(workspace).tree_id) == ()


@pytest.mark.parametrize("name", [".venv", "odd [name]*", "web/env"])
def test_an_environment_is_left_out_whole_and_is_in_no_tree(workspace: Workspace, name: str) -> None:
    make_environment(workspace, name)
    set_up(workspace)
    (workspace.root / name / "lib" / "module.pyc").write_text("compiled when a phase ran it")
    (workspace.root / name / "lib" / "module.py").write_text("x = 2\n")
    write(workspace, work_txt="done")
    tree = write_tree(workspace).tree_id

    assert changed_paths(workspace.repo, workspace.base_commit, tree) == ("work.txt",)
    assert read_setup(workspace).list_left_out(workspace, tree) == [LeftOutGroup(f"{name}/", 2, "setup")]


def test_node_modules_and_marked_caches_are_environments_too(workspace: Workspace) -> None:
    write(workspace, node_modules__left_pad_js="x")  # `node.modules`: by its name nothing of the kind
    (workspace.root / "web" / "node_modules" / "deep").mkdir(parents=True)
    (workspace.root / "web" / "node_modules" / "deep" / "index.js").write_text("x")
    (workspace.root / "web" / "app.js").write_text("x")
    (workspace.root / "target").mkdir()
    (workspace.root / "target" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    set_up(workspace)

    assert set(read_setup(workspace).folders) == {"web/node_modules", "target"}


def test_a_tracked_folder_is_never_an_environment(repo: UserRepo, data_dir: Path) -> None:
    repo.commit("vendored", node_modules__a_js="1")
    (repo.path / "node_modules").mkdir()
    (repo.path / "node_modules" / "a.js").write_text("1")
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "vendored")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-2")
    (workspace.root / "node_modules" / "b.js").write_text("2")
    set_up(workspace)

    assert read_setup(workspace).folders == {}


def test_files_that_git_ignores_are_nothing_to_speak_of(repo: UserRepo, data_dir: Path) -> None:
    repo.write(".gitignore", ".venv/\n")
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "ignore")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-2")
    make_environment(workspace)
    set_up(workspace)

    assert read_setup(workspace).list_left_out(workspace, write_tree(workspace).tree_id) == []


def test_restoring_leaves_an_environment_where_it_is(workspace: Workspace) -> None:
    make_environment(workspace)
    set_up(workspace)
    before = write_tree(workspace).tree_id
    write(workspace, work_txt="done")

    restore(workspace, before, at=AT)

    assert (workspace.root / ".venv" / "lib" / "module.py").read_text() == "x = 1\n"
    assert not (workspace.root / "work.txt").exists()


def test_recorded_twice_it_is_the_same(workspace: Workspace) -> None:
    write(workspace, gen__one_txt="1")
    set_up(workspace)
    record_setup(workspace, before=workspace.base_commit, at=AT.replace(year=2027))

    assert set(read_setup(workspace).made) == {"gen/one.txt"}


def test_a_second_setup_that_gives_other_content_is_setup_too(workspace: Workspace) -> None:
    write(workspace, stamp_txt="made at 10:00")
    set_up(workspace)
    tree = write_tree(workspace).tree_id
    write(workspace, stamp_txt="made at 11:00")
    record_setup(workspace, before=tree, at=AT)

    assert result_of(workspace, tree) == result_of(workspace, write_tree(workspace).tree_id) == ()


def test_a_fork_knows_what_the_setup_of_its_origin_made(
    repo: UserRepo, workspace: Workspace, data_dir: Path, make_repo: Callable[..., UserRepo]
) -> None:
    write(workspace, gen__one_txt="1")
    set_up(workspace)
    tree = write_tree(workspace).tree_id
    fork = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-2", base_commit=workspace.base_commit)
    restore(fork, tree, at=AT)

    inherit_setup(fork, workspace.run_id)
    inherit_setup(fork, workspace.run_id)

    assert result_of(open_workspace(data_dir, "run-2"), write_tree(fork).tree_id) == ()
