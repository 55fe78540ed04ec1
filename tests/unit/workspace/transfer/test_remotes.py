"""Where this place has its copies of remote repositories."""

from pathlib import Path

from holdfast.workspace.transfer.remotes import is_mirror, mirror_path

DATA = Path("/data")


def test_a_repository_of_a_persons_own_is_no_copy_of_a_remote_one_whatever_its_name() -> None:
    mirror = mirror_path("https://example.org/shop.git", DATA)

    assert is_mirror(mirror, DATA)
    assert not is_mirror(Path("/code") / mirror.name, DATA)
    assert not is_mirror(mirror.with_name("4f1c.git"), DATA)
