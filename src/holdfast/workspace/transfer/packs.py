"""A run's objects as git packs: made where they are, unpacked where they are missing.

A pack is thin: it leaves out what the objects before it have, which whoever unpacks it must have already. Unpacking
twice does no harm, and one that was cut off has left nothing (`quarantine.py`).
"""

import hashlib
import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from holdfast.errors import WorkspaceError, WorkspaceTooLarge
from holdfast.workspace.files import remove_folder, sync_folder, write_whole
from holdfast.workspace.git import Git
from holdfast.workspace.refs import run_refs
from holdfast.workspace.transfer.quarantine import has_whole, import_objects
from holdfast.workspace.worktree import open_workspace

MAX_STEP_BYTES = 256 * 1024**2
_PACK = ("pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset", "--threads=1")
_BIGGEST = 3
_HEAD_BYTES = 12
_READ_BYTES = 256 * 1024


@dataclass(frozen=True)
class BasePack:
    """The pack of a commit without its history, in parts; `digest` is that of its bytes."""

    digest: str
    parts: tuple[bytes, ...]


def make_pack(
    repo: Path, objects: Sequence[str], *, without: Sequence[str] = (), max_bytes: int = MAX_STEP_BYTES
) -> bytes:
    """Pack trees and commits with all that they hold, but for what the objects in `without` hold.

    Raises `WorkspaceTooLarge`, and `WorkspaceError` if an object is no longer in the repository.
    """
    revisions = "".join(f"{name}\n" for name in objects) + "".join(f"^{name}\n" for name in without)
    with Git(git_dir=repo).stream(*_PACK, "--thin", stdin=revisions.encode()) as output:
        packed = io.BytesIO()  # which gives its bytes away without a copy
        while packed.tell() <= max_bytes and (data := output.read(_READ_BYTES)):
            packed.write(data)  # what is too big must not fill the memory before it is refused
    if packed.tell() > max_bytes:
        raise _too_large(repo, objects[-1], "What changed in one step", max_bytes, without=without)
    return packed.getvalue()


def unpack(repo: Path, packs: Sequence[bytes]) -> None:
    """Put the objects of packs, in their order, into a repository that has those they are thin against.

    After a kill all of them are there, or none.
    """
    import_objects(repo, _join(packs))


def _join(packs: Sequence[bytes]) -> bytes:
    """Join packs to one, which one git process unpacks: a head with the number of objects, the objects, their hash.

    Offsets inside a pack are relative, and other bases are named by their ids, so that both stay right.
    """
    if len(packs) == 1:
        return packs[0]
    hashes = [hashlib.sha1 if _is_sha1(pack) else hashlib.sha256 for pack in packs]
    size = hashes[0]().digest_size
    count = sum(int.from_bytes(pack[8:_HEAD_BYTES], "big") for pack in packs)
    # Views: packs may be big, and are in the memory once more already when they are joined.
    head = packs[0][:8] + count.to_bytes(4, "big")
    parts: list[bytes | memoryview] = [head, *(memoryview(pack)[_HEAD_BYTES:-size] for pack in packs)]
    digest = hashes[0]()
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def _is_sha1(pack: bytes) -> bool:
    return hashlib.sha1(memoryview(pack)[:-20], usedforsecurity=False).digest() == pack[-20:]


def find_missing(repo: Path, objects: Iterable[str]) -> set[str]:
    """Find which of these trees and commits are not in the repository, with one git process."""
    names = list(dict.fromkeys(objects))
    if not names:
        return set()
    return {name for name, found in Git(git_dir=repo).resolve(*names).items() if found is None}


def has_trees(data_dir: Path, run_id: str, trees: Iterable[str]) -> bool:
    """Tell whether these recorded trees of a run can be read in a data directory, with all that they hold."""
    try:
        workspace = open_workspace(data_dir, run_id)
        return workspace.repo.is_dir() and has_whole(workspace.repo, trees)
    except WorkspaceError:
        return False


def make_base_pack(repo: Path, commit: str, *, part_bytes: int, max_bytes: int) -> BasePack:
    """Pack a commit and its tree, without its history. Raises `WorkspaceTooLarge`."""
    parts: list[bytes] = []
    digest = hashlib.sha256()
    with Git(git_dir=repo).stream(*_PACK, "--shallow", stdin=f"--shallow {commit}\n{commit}\n".encode()) as output:
        while data := output.read(part_bytes):
            digest.update(data)
            parts.append(data)
            if len(parts) * part_bytes > max_bytes + part_bytes:
                break
    if sum(map(len, parts)) > max_bytes:
        hint = "Raise carry_max_mb, name the repository by a URL that all workers reach, or put it under shared_roots."
        raise _too_large(repo, commit, "The commit that the run starts from", max_bytes, hint=hint)
    return BasePack(digest.hexdigest(), tuple(parts))


def make_carried_repository(repo: Path, commit: str, digest: str, parts: Iterable[bytes]) -> None:
    """Make a bare repository that has one commit without its history. It is there whole, or not at all.

    Raises `WorkspaceError` if the parts are not those of the pack with this digest.
    """
    part = repo.with_name(f"{repo.name}.{uuid.uuid4().hex[:8]}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    kind = "sha256" if len(commit) == 64 else "sha1"
    Git().run("init", "--quiet", "--bare", f"--object-format={kind}", "--template=", "--", str(part))
    packed = part / "base.pack"
    with packed.open("wb") as file:
        found = _write_parts(file, parts)
    if found != digest:
        remove_folder(part)
        message = "What the database has of the run's base is damaged or not complete."
        raise WorkspaceError(message, hint="Resume the run on the machine that has its repository.")
    write_whole(part / "shallow", f"{commit}\n")
    with packed.open("rb") as file:
        Git(git_dir=part).run("index-pack", "--stdin", stdin=file.read())
    packed.unlink()
    sync_folder(part)
    try:
        part.rename(repo)  # crash: before it a half-made copy that nobody uses, after it a whole one
    except OSError:
        remove_folder(part)  # another process was faster, with the same content
        if not repo.is_dir():
            raise
    sync_folder(repo.parent)


def _write_parts(file: IO[bytes], parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for data in parts:
        digest.update(data)
        file.write(data)
    return digest.hexdigest()


def set_refs(repo: Path, run_id: str, refs: Mapping[str, str]) -> None:
    """Let the run's refs of these names, which follow its prefix, stand for these commits; with one git process."""
    if not refs:
        return
    lines = (f"update {run_refs(run_id)}/{name} {commit}\n" for name, commit in sorted(refs.items()))
    Git(git_dir=repo).run("update-ref", "--stdin", stdin="".join(lines).encode())


def _too_large(
    repo: Path,
    name: str,
    what: str,
    limit: int,
    *,
    hint: str = "Put such files under .gitignore.",
    without: Sequence[str] = (),
) -> WorkspaceTooLarge:
    """Make an error that names the biggest files of a tree or commit, of those that the ones in `without` lack."""
    known = {entry for other in without for entry in _list_files(repo, other)}
    sizes = {path: size for path, digest, size in _list_files(repo, name) if (path, digest, size) not in known}
    biggest = sorted(sizes, key=lambda path: -sizes[path])[:_BIGGEST]
    names = ", ".join(f"{path} ({sizes[path] / 1024**2:.1f} MiB)" for path in biggest)
    message = (
        f"{what} is more than the {limit / 1024**2:.0f} MiB that travel with a run; the biggest files are {names}."
    )
    # A name may be no text, which no journal holds.
    return WorkspaceTooLarge(_to_plain_text(message), hint=hint, paths=tuple(_to_plain_text(path) for path in biggest))


def _list_files(repo: Path, name: str) -> Iterator[tuple[str, str, int]]:
    """Yield the files of a tree or commit: path, id of the content, size."""
    for entry in Git(git_dir=repo).run("ls-tree", "-r", "-l", "-z", "--full-tree", name).names:
        words, _, path = entry.partition("\t")
        _mode, _type, digest, size = words.split()
        if size.isdigit():  # a submodule has none
            yield path, digest, int(size)


def _to_plain_text(text: str) -> str:
    return text.encode(errors="replace").decode()
