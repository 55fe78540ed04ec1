"""Objects enter a repository all at once: made beside its own ones, and moved in as one pack when they are whole.

Rule: whoever finds a tree in a repository takes it for granted that all it holds is there too. `git unpack-objects`
writes trees before files, so one that is cut off must not have written where anybody looks.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.workspace.files import remove_folder, sync_folder, write_whole
from holdfast.workspace.git import Git

_PREFIX = "tmp_objdir-holdfast-"  # `git prune` of the user's removes old folders that begin so
_LEFT_AFTER_S = 24 * 3600
_LOOSE = re.compile(r"[0-9a-f]{2}")
_FANOUT_END = 8 + 256 * 4
"""Where the names begin in the index of a pack: behind its head, and a table of how many begin with which byte."""


def import_objects(repo: Path, pack: bytes) -> None:
    """Unpack a pack, which may be thin, into a repository that has what it is thin against.

    On return all its objects are there and survive a power cut; after a kill at any point all of them are, or none.
    """
    objects = repo / "objects"
    _remove_left(objects)
    with _open_quarantine(objects) as folder:
        git = Git(git_dir=repo, env={"GIT_OBJECT_DIRECTORY": str(folder)})
        indexed = git.run("index-pack", "--stdin", "--fix-thin", stdin=pack, ok=(0, 1, 128))
        if indexed.exit_code or _has_duplicates(folder):
            _pack_anew(git, folder, pack)
        _move_in(folder / "pack", objects / "pack")


def _has_duplicates(folder: Path) -> bool:
    """Tell whether a pack has an object twice, as packs of trees that come and go have when they are joined.

    Git can go in circles where each of two objects is also there as a difference to the other.
    """
    for index in (folder / "pack").glob("*.idx"):
        data = index.read_bytes()
        count = int.from_bytes(data[_FANOUT_END - 4 : _FANOUT_END], "big")
        size = len(index.stem.removeprefix("pack-")) // 2
        names = [data[at : at + size] for at in range(_FANOUT_END, _FANOUT_END + count * size, size)]
        if len(set(names)) < count:
            return True
    return False


def _pack_anew(git: Git, folder: Path, pack: bytes) -> None:
    """Take the objects out of a pack one by one, and pack each once."""
    for path in (folder / "pack").iterdir():
        path.unlink()
    git.run("-c", "core.looseCompression=0", "unpack-objects", "-q", stdin=pack)
    names = "".join(f"{name}\n" for name in _list_loose(folder))
    if names:
        options = ("-q", "--threads=1", "--window=0", "--compression=1")
        git.run("pack-objects", *options, str(folder / "pack" / "pack"), stdin=names.encode())


def _move_in(made: Path, packs: Path) -> None:
    # The index comes last. crash: before it nobody sees any of the objects; after it all.
    for path in sorted(made.glob("pack-*"), key=lambda path: path.suffix == ".idx"):
        path.rename(packs / path.name)
    sync_folder(packs)


def has_whole(repo: Path, trees: Iterable[str]) -> bool:
    """Tell whether these trees are in the repository with all that they hold."""
    names = sorted(set(trees))
    if not names:
        return True
    walk = ("rev-list", "--objects", "--quiet", "--stdin")
    found = Git(git_dir=repo).run(*walk, stdin="".join(f"{name}\n" for name in names).encode(), ok=(0, 1, 128))
    return found.exit_code == 0


def remove_empty_objects(repo: Path) -> None:
    """Remove object files without content, as a power cut leaves them: git takes each for an object that is there."""
    for path in (repo / "objects").glob("[0-9a-f][0-9a-f]/*"):
        if path.is_file() and path.stat().st_size == 0:
            path.unlink(missing_ok=True)


@contextmanager
def _open_quarantine(objects: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=objects))
    try:
        (folder / "info").mkdir()
        (folder / "pack").mkdir()
        (objects / "pack").mkdir(exist_ok=True)
        write_whole(folder / "info" / "alternates", f"{objects}\n")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _list_loose(objects: Path) -> Iterator[str]:
    for below in objects.iterdir():
        if _LOOSE.fullmatch(below.name):
            yield from (f"{below.name}{path.name}" for path in below.iterdir() if not path.name.startswith("tmp_"))


def _remove_left(objects: Path) -> None:
    """Remove what processes that were killed left a day ago."""
    for folder in objects.glob(f"{_PREFIX}*"):
        try:
            is_left = time.time() - folder.stat().st_mtime > _LEFT_AFTER_S
        except FileNotFoundError:
            continue
        if is_left:
            remove_folder(folder)
