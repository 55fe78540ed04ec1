"""Packs of trees: what is too big to travel is named."""

import pytest
from tests.support.user_repository import UserRepo

from holdfast.errors import WorkspaceTooLarge
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
