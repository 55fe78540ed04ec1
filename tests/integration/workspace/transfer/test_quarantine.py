"""Objects that come to a repository are there all at once, or not at all."""

import random
from pathlib import Path

import pytest
from tests.support.user_repository import UserRepo

from holdfast.workspace.git import Git, GitResult
from holdfast.workspace.transfer import quarantine
from holdfast.workspace.transfer.packs import find_missing, make_pack, unpack
from holdfast.workspace.transfer.quarantine import has_whole


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
def there(repo: UserRepo, tmp_path: Path) -> Path:
    """Another repository, which has the first commit."""
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(tmp_path / "there.git"))
    return tmp_path / "there.git"


def add_tree(repo: UserRepo, **files: str) -> str:
    repo.commit("more", **files)
    return repo.git("rev-parse", "HEAD^{tree}")


@pytest.mark.parametrize("command", ["index-pack", "unpack-objects", "pack-objects"])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_process_that_dies_while_it_unpacks_has_left_nothing(
    repo: UserRepo, there: Path, monkeypatch: pytest.MonkeyPatch, command: str, is_before: bool
) -> None:
    base = repo.git("rev-parse", "HEAD")
    tree = add_tree(repo, **{f"f{number}_txt": f"{random.random()}\n" * 99 for number in range(9)})
    pack = make_pack(repo.path / ".git", [tree], without=[base])
    run = Git.run

    def die(self: Git, *args: str, stdin: bytes = b"", **options: object) -> GitResult:
        if command not in args:
            return run(self, *args, stdin=stdin, **options)  # type: ignore[arg-type]
        run(self, *args, stdin=stdin[: len(stdin) // 2] if is_before else stdin, ok=range(256))
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Git, "run", die)
        patch.setattr(quarantine, "_has_duplicates", lambda _folder: command != "index-pack")
        with pytest.raises(Died):
            unpack(there, [pack])
    assert find_missing(there, [tree]) == {tree}

    unpack(there, [pack])
    assert has_whole(there, [tree])


def test_a_pack_that_is_moved_in_only_in_part_is_not_seen(
    repo: UserRepo, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, tree = repo.git("rev-parse", "HEAD"), add_tree(repo, a_txt="new\n")
    pack = make_pack(repo.path / ".git", [tree], without=[base])
    rename = Path.rename

    def die(path: Path, target: Path) -> Path:
        if path.suffix == ".idx":
            raise Died
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)
        with pytest.raises(Died):
            unpack(there, [pack])
    assert find_missing(there, [tree]) == {tree}

    unpack(there, [pack])
    assert has_whole(there, [tree])


def test_a_tree_whose_files_are_not_there_is_not_whole(repo: UserRepo, there: Path) -> None:
    tree = add_tree(repo, a_txt="new\n")
    listed = Git(git_dir=repo.path / ".git").run("cat-file", "tree", tree).stdout
    Git(git_dir=there).run("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=listed)

    assert find_missing(there, [tree]) == set()  # it is there itself
    assert not has_whole(there, [tree])


def test_trees_that_come_and_go_are_each_there_once(repo: UserRepo, there: Path) -> None:
    lines, last = [str(number) for number in range(3_000)], repo.git("rev-parse", "HEAD")
    base, trees, packs = last, [], []
    for number in range(6):
        content = "\n".join(lines[: 3_000 - number % 2])
        trees.append(add_tree(repo, a_txt=content, n_txt=str(number)))
        packs.append(make_pack(repo.path / ".git", [trees[-1]], without=[base, last]))
        last = trees[-1]

    unpack(there, packs)

    [index] = (there / "objects" / "pack").glob("*.idx")
    names = Git(git_dir=there).run("show-index", stdin=index.read_bytes()).line.splitlines()
    objects = [line.split()[1] for line in names]
    assert len(objects) == len(set(objects))
    assert has_whole(there, trees)
    Git(git_dir=there).run("fsck", "--full", "--strict")
