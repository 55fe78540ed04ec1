"""What is limited has one name, the one that its runs have."""

from pathlib import Path

import pytest

from holdfast.fleet.limits import check_limit


@pytest.mark.parametrize(
    "url", ["https://git.example.org/team/shop.git", "ssh://git@git.example.org/shop", "git@git.example.org:shop.git"]
)
def test_a_repository_that_is_named_by_a_url_keeps_its_name(url: str) -> None:
    assert check_limit("repository", url, 2) == ("repository", url)


def test_a_repository_that_is_a_folder_is_named_by_its_whole_path() -> None:
    assert check_limit("repository", ".", 2) == ("repository", str(Path.cwd().resolve()))
