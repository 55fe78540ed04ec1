"""Packs of trees: what is too big to travel is named."""

import os
import tracemalloc

import pytest
from tests.support.user_repository import UserRepo

from holdfast.errors import WorkspaceError, WorkspaceTooLarge
from holdfast.workspace.transfer.packs import make_pack


def test_a_step_that_is_too_big_to_travel_is_refused_with_its_biggest_files(repo: UserRepo) -> None:
    git_dir, first = repo.path / ".git", repo.git("rev-parse", "HEAD^{tree}")
    repo.commit("second", big_txt="\n".join(str(number) for number in range(5_000)), small_txt="small\n")
    second = repo.git("rev-parse", "HEAD^{tree}")
    size = len(make_pack(git_dir, [second], without=[first]))

    with pytest.raises(WorkspaceTooLarge) as refused:
        make_pack(git_dir, [second], without=[first], max_bytes=size - 1)

    assert refused.value.code == "workspace_too_large"
    assert refused.value.message.startswith("What changed in one step is more than")
    assert refused.value.facts["paths"][0] == "big.txt"
    assert ".gitignore" in refused.value.hint
    assert len(make_pack(git_dir, [second], without=[first], max_bytes=size)) == size


def test_only_what_the_step_changed_is_named_and_no_more_of_it_is_read_than_may_travel(repo: UserRepo) -> None:
    git_dir = repo.path / ".git"
    (repo.path / "old.bin").write_bytes(os.urandom(1024**2))
    repo.commit("first")
    first = repo.git("rev-parse", "HEAD")
    (repo.path / "new.bin").write_bytes(os.urandom(12 * 1024**2))
    repo.commit("second", small_txt="small\n")
    second = repo.git("rev-parse", "HEAD^{tree}")

    tracemalloc.start()
    with pytest.raises(WorkspaceTooLarge) as refused:
        make_pack(git_dir, [second], without=[first], max_bytes=1024**2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert refused.value.facts["paths"] == ("new.bin", "small.txt")
    assert peak < 4 * 1024**2


def test_a_pack_is_in_the_memory_once(repo: UserRepo) -> None:
    first = repo.git("rev-parse", "HEAD")
    (repo.path / "new.bin").write_bytes(os.urandom(8 * 1024**2))
    repo.commit("second")
    second = repo.git("rev-parse", "HEAD^{tree}")

    tracemalloc.start()
    size = len(make_pack(repo.path / ".git", [second], without=[first]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert 8 * 1024**2 < size < peak < size * 3 // 2


def test_a_pack_that_cannot_be_made_says_why(repo: UserRepo) -> None:
    with pytest.raises(WorkspaceError, match=f"failed: fatal: bad object {'0' * 39}1"):
        make_pack(repo.path / ".git", [f"{'0' * 39}1"])
