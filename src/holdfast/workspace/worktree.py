"""One git worktree and branch per run, under the data directory.

Every step can be repeated: a call after a kill finds out how far the last one came. The mark `holdfast-ready` in the
worktree's own git directory is set last; without it nobody has worked there yet and files may be written anew, with it
no file is ever overwritten here. The user's checkout, index, HEAD and branches are only read.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from holdfast.errors import BaseBranchMissing, RepositoryMissing, WorkspaceError
from holdfast.workspace.files import hold_lock, is_within, own_folders, remove_folder, stamp_file, write_whole
from holdfast.workspace.git import Git, is_object_id
from holdfast.workspace.private_repository import COPY_LIMITS, ensure_private_repository
from holdfast.workspace.refs import base_ref, branch_names, run_refs, to_component
from holdfast.workspace.repository import Repository, find_repository, missing_folder, resolve_base
from holdfast.workspace.repository_guard.checkout_size import check_size
from holdfast.workspace.submodules import fill_submodules
from holdfast.workspace.worktree_registration import READY_MARK, ensure_registered


@dataclass(frozen=True)
class Workspace:
    """Where a run works. `root` is the agent's folder: the worktree's top, or the subfolder that the user named."""

    run_id: str
    root: Path
    worktree: Path
    git_dir: Path
    repo: Path
    source: Path | None
    state_dir: Path
    branch: str
    base_branch: str
    base_commit: str
    is_private: bool = False
    is_shallow: bool = False
    is_rebuilt: bool = False
    empty_submodules: tuple[str, ...] = ()
    is_carried: bool = False
    """The repository here is only what the database has of one that is elsewhere."""

    @property
    def git(self) -> Git:
        """Git in the worktree. The git directory is named, never looked up through a file that an agent can write."""
        return Git(git_dir=self.git_dir, work_tree=self.worktree)

    @property
    def lock_path(self) -> Path:
        return self.state_dir / "lock"


def prepare_workspace(
    repo_path: Path,
    *,
    data_dir: Path,
    run_id: str,
    base_branch: str = "main",
    base_commit: str | None = None,
    forked_from: Workspace | None = None,
) -> Workspace:
    """Make the run's worktree, or find it. May be called again after a kill at any point, and at every resume.

    On return the worktree is complete. `is_rebuilt` says that files were written now, so the caller has to restore the
    last recorded tree. The base stays what it was on the first call, or what `base_commit` says, wherever the branch
    has moved since. A fork of a run on a plain folder shares the private repository of `forked_from`.
    Raises `WorkspaceError` and its kinds; the worktree is then as it was.
    """
    data_dir, repo_path = data_dir.resolve(), repo_path.resolve()
    name = to_component(run_id)
    state_dir = data_dir / "worktrees" / ".state" / name
    with hold_lock(state_dir / "lock"):
        carried = _read_stored(state_dir)
        is_carried = carried.get("is_carried") is True
        repository: Repository | None
        if is_carried:
            prefix = Path(carried["root"]).relative_to(carried["worktree"]).as_posix()
            repository = Repository(Path(carried["repo"]), prefix="" if prefix == "." else prefix, is_shallow=True)
            is_private = carried["is_private"]
        else:
            private_dir = _find_private_dir(state_dir, data_dir / "repositories" / f"{name}.git", forked_from)
            repository = None if private_dir.exists() else find_repository(repo_path)
            is_private = repository is None
        if repository is None:
            repository = ensure_private_repository(
                private_dir, repo_path, base_branch=base_branch, data_dir=data_dir, limits=COPY_LIMITS
            )
        _keep_out_of_sight(data_dir, repository)
        _clear_stale_locks(repository, run_id)
        base, branch, tip = _fix_start(repository, run_id, base_branch, base_commit)
        worktree = data_dir / "worktrees" / name
        git_dir, is_ready = ensure_registered(repository.git, worktree, branch)
        workspace = Workspace(
            run_id=run_id,
            root=worktree / repository.prefix,
            worktree=worktree,
            git_dir=git_dir,
            repo=repository.git_dir,
            source=repo_path if is_private and not is_carried else repository.folder,
            state_dir=state_dir,
            branch=branch,
            base_branch=base_branch,
            base_commit=base,
            is_private=is_private,
            is_shallow=repository.is_shallow,
            is_carried=is_carried,
        )
        return _complete(workspace, repository, tip, is_ready=is_ready)


def discard_copy(workspace: Workspace) -> None:
    """Take back the copy of a folder without git, of which nothing was recorded: the next call copies it anew."""
    with hold_lock(workspace.lock_path):
        remove_folder(workspace.worktree)  # crash: made again from the copy that is still there
        part = workspace.repo.with_name(f"{workspace.repo.name}.part")
        if part.exists():
            remove_folder(part)
        workspace.repo.rename(part)  # crash: left over, and removed by whoever makes the next copy
        remove_folder(part)


def open_workspace(data_dir: Path, run_id: str) -> Workspace:
    """Read the workspace as the last `prepare_workspace` left it; nothing is looked at or changed."""
    path = data_dir.resolve() / "worktrees" / ".state" / to_component(run_id) / _STORED
    try:
        stored = json.loads(path.read_text())
        stored.setdefault("is_carried", False)  # not there in those of earlier versions
        facts: dict[str, Any] = {field.name: _read(field.name, stored[field.name]) for field in fields(Workspace)}
        return Workspace(**facts)
    except FileNotFoundError as missing:
        raise RepositoryMissing(f"Run {run_id} has no workspace here.", hint="Resume the run to make it.") from missing
    except (ValueError, KeyError, TypeError) as damaged:
        raise WorkspaceError(f"{path} is damaged.", hint="Resume the run to write it anew.") from damaged


def note_workspace(workspace: Workspace) -> None:
    """Write down a workspace that has no worktree here, so that what the run recorded can be read."""
    workspace.state_dir.mkdir(parents=True, exist_ok=True)
    write_whole(workspace.state_dir / _STORED, json.dumps(asdict(replace(workspace, is_rebuilt=False)), default=str))


_STORED = "workspace.json"
_PATHS = {"root", "worktree", "git_dir", "repo", "source", "state_dir"}


def _read(name: str, value: object) -> object:
    if name in _PATHS and isinstance(value, str):
        return Path(value)
    return tuple(value) if isinstance(value, list) else value


def _complete(workspace: Workspace, repository: Repository, tip: str, *, is_ready: bool) -> Workspace:
    if not is_ready:
        check_size(Git(git_dir=workspace.repo), tip, workspace.worktree)
        # crash: the mark is missing, so the next call writes all files again; nobody has worked on them.
        workspace.git.run("reset", "--quiet", "--hard")
        empty = fill_submodules(
            workspace.git,
            worktree=workspace.worktree,
            checkout=repository.checkout,
            state_dir=workspace.state_dir,
        )
        _begin_index(workspace, is_at_base=tip == workspace.base_commit)
        workspace = replace(workspace, is_rebuilt=True, empty_submodules=empty)
    else:
        known = _read_stored(workspace.state_dir)
        workspace = replace(workspace, empty_submodules=tuple(known.get("empty_submodules", ())))
    if not workspace.root.is_dir():
        _check_subfolder(workspace, repository, is_new=not is_ready)
    note_workspace(workspace)
    write_whole(workspace.git_dir / READY_MARK, "")
    return workspace


def _check_subfolder(workspace: Workspace, repository: Repository, *, is_new: bool) -> None:
    if is_new:
        raise missing_folder(repository.prefix, workspace.base_branch)
    workspace.root.mkdir(parents=True, exist_ok=True)


BEGUN_INDEXES: dict[Path, tuple[str, int, int, int]] = {}
"""The indexes that this process has begun, each with the commit that it holds and how it looked then."""
_MOST_BEGUN = 1000


def _begin_index(workspace: Workspace, *, is_at_base: bool) -> None:
    """Let trees be built from what git has just written out: it knows already that these files are not changed."""
    index = workspace.state_dir / "index"
    index.unlink(missing_ok=True)
    if is_at_base and (workspace.git_dir / "index").exists():
        # With its time: git looks again at a file that is not older than the index.
        shutil.copy2(workspace.git_dir / "index", index)
        if len(BEGUN_INDEXES) >= _MOST_BEGUN:
            BEGUN_INDEXES.clear()
        BEGUN_INDEXES[index] = (workspace.base_commit, *stamp_file(index))


def _fix_start(repository: Repository, run_id: str, base_branch: str, base_commit: str | None) -> tuple[str, str, str]:
    """Fix the commit that the run starts from, and its branch; return both, and where the branch stands."""
    git, ref = repository.git, base_ref(run_id)
    first, second = (f"refs/heads/{name}" for name in branch_names(run_id))
    if base_commit and is_object_id(base_commit) and _is_new(repository, run_id, first, second):
        create = f"create {ref} {base_commit}\ncreate {first} {base_commit}\n"
        # crash: both refs or none; git checks that the commit is there. What does not go is looked at more closely.
        if git.run("update-ref", "--stdin", stdin=create.encode(), ok=(0, 1, 128)).exit_code == 0:
            return base_commit, first.removeprefix("refs/heads/"), base_commit
    base_name = f"{base_commit or ref}^{{commit}}"
    known = git.resolve(base_name, ref, first, second, "refs/heads/holdfast")
    commit = known[base_name]
    if commit is None and base_commit is None:
        commit = resolve_base(repository, base_branch)
    if commit is None:
        raise BaseBranchMissing(
            f"The commit {base_commit} that the run started from is no longer in the repository.",
            branches=(),
            hint="Bring it back with git fetch, or start a new run.",
        )
    branch = next((name for name in (first, second) if known[name]), None)
    changes = [] if known[ref] == commit else [f"update {ref} {commit}\n"]
    if branch is None:
        branch = second if known["refs/heads/holdfast"] else first
        changes.append(f"create {branch} {commit}\n")
    if changes:
        # crash: from here on the base is fixed and cannot be collected as garbage, wherever its branch goes.
        git.run("update-ref", "--stdin", stdin="".join(changes).encode())
    return commit, branch.removeprefix("refs/heads/"), known[branch] or commit


def _is_new(repository: Repository, run_id: str, *branches: str) -> bool:
    """Tell whether a repository has no ref of a run yet, by the files that git has refs in; false where in doubt."""
    folder, packed = repository.git_dir, repository.git_dir / "packed-refs"
    names = (run_refs(run_id), *branches, "refs/heads/holdfast")
    if not (folder / "refs" / "heads").is_dir() or (folder / "reftable").exists():
        return False
    if any(os.path.lexists(folder / name) and (folder / name).is_file() for name in names[1:]):
        return False
    listed = packed.read_bytes() if packed.exists() else b""
    is_packed = any(name.encode() in listed for name in (*names[:-1], "refs/heads/holdfast\n"))
    return not is_packed and not (folder / names[0]).exists()


def _read_stored(state_dir: Path) -> dict[str, Any]:
    """Read what the last call wrote down; nothing if that is damaged, since all of it can be found out again."""
    try:
        stored: dict[str, Any] = json.loads((state_dir / _STORED).read_text())
        return stored
    except (FileNotFoundError, ValueError):
        return {}


def _find_private_dir(state_dir: Path, default: Path, forked_from: Workspace | None) -> Path:
    """Find where the run's private repository is, or would be made if the user's folder has no git."""
    known = _read_stored(state_dir)
    if known:
        if known["is_private"]:
            return Path(known["repo"])
        if not Path(known["repo"]).exists():
            raise RepositoryMissing(f"The repository {known['repo']} that the run was started with is gone.")
    return forked_from.repo if forked_from is not None and forked_from.is_private else default


def _keep_out_of_sight(data_dir: Path, repository: Repository) -> None:
    """Hide our folders inside the user's checkout from the user's `git status`."""
    if repository.checkout is None or not is_within(data_dir, repository.checkout):
        return
    for folder in own_folders(data_dir, repository.checkout):
        if folder.is_dir() and not (folder / ".gitignore").exists():
            write_whole(folder / ".gitignore", "*\n")


def _clear_stale_locks(repository: Repository, run_id: str) -> None:
    """Lock files that a killed git left on refs of this run; we hold the run's lock, so nobody works on them."""
    of_branches = (repository.git_dir / "refs/heads" / f"{branch}.lock" for branch in branch_names(run_id))
    for lock in (*(repository.git_dir / run_refs(run_id)).rglob("*.lock"), *of_branches):
        if lock.exists():
            lock.unlink()
