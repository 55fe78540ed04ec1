"""Runs git the same way on every machine. Nothing outside this package calls git.

Nothing of the user's runs along: no hook, no signing, no prompt, no background clean-up, no `GIT_*` variable, no key.
Nothing of the repository's own runs either: no filter or merge driver of its `.git/config`, nothing that fetches
(`git_settings`), and a folder that is only laid out like a repository is none unless it is named as one. In the run's
own worktree (`is_exact`) the settings that change what a tree holds are fixed too, so that a tree id does not
depend on who computed it. The user's checkout keeps the user's settings.
"""

import contextlib
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from holdfast.errors import WorkspaceError
from holdfast.keys import without_keys
from holdfast.workspace.commands.process_tree import kill_tree
from holdfast.workspace.commands.process_watch import ProcessWatch
from holdfast.workspace.repository_guard.git_settings import OverridesCache, Setting, parse_settings, to_environment

# Locks of ours that a running git must keep: a git that outlives its killed engine still works on the files, and the
# next engine has to wait for it.
HELD_LOCKS: ContextVar[tuple[int, ...]] = ContextVar("held_locks", default=())

# The git processes of one piece of work, for whoever may have to give the work up.
GIT_PROCESSES: ContextVar["GitProcesses | None"] = ContextVar("git_processes", default=None)

TIMEOUT_S = 900.0
CONTENTION_WAIT_S = 10.0
_LOOK_S = 0.5

_SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "core.quotePath=false",
    "safe.bareRepository=explicit",
    "log.showSignature=false",
    "core.alternateRefsCommand=true",
)
_EXACT = (
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
    "core.sparseCheckout=false",
    "core.splitIndex=false",
    "core.untrackedCache=false",
)
# Another git holds a lock file for a moment, or is just making a worktree (git reads all of them and stumbles over a
# half-made one); waiting helps. A ref that is not where it was expected does not match.
_CONTENTION = re.compile(
    r"Unable to create '[^']*\.lock': File exists|could not lock config file|failed to read [^\n]*/commondir"
)

_OVERRIDES = OverridesCache()


class GitProcesses:
    """The git processes that one piece of work has running. Once they are stopped, the work starts no other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def stop(self, signal_no: int) -> None:
        """Send a signal to those that run. After SIGTERM git removes its lock files; after SIGKILL the next one does
        that, under our own lock."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.send_signal(signal_no)

    def start(self, argv: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process. Raises `WorkspaceError` once they were stopped."""
        with self._lock:
            if self._is_stopped:
                raise WorkspaceError("The work on the files was given up.", hint="Resume the run to do it again.")
            process = subprocess.Popen(argv, **options)
            self._running.add(process)
            return process

    def note_end(self, process: "subprocess.Popen[bytes]") -> None:
        with self._lock:
            self._running.discard(process)


@dataclass(frozen=True)
class Author:
    """Who a commit is by."""

    name: str
    email: str


HOLDFAST = Author("holdfast", "holdfast@localhost")
_ROLES = ("AUTHOR", "COMMITTER")


@dataclass(frozen=True)
class GitResult:
    """What a git command printed, and how it ended."""

    exit_code: int
    stdout: bytes
    stderr: str

    @property
    def line(self) -> str:
        return os.fsdecode(self.stdout).strip("\n")

    @property
    def names(self) -> list[str]:
        """The output of a `-z` option as path names; any byte but NUL can stand in one."""
        return [os.fsdecode(name) for name in self.stdout.split(b"\0") if name]


def is_object_id(text: str) -> bool:
    """Tell whether a text is the whole id of an object, and no other name of one."""
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def to_stdin(names: Iterable[str]) -> bytes:
    """Encode path names as git reads them with `-z`."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


@dataclass(frozen=True)
class Git:
    """A place where git runs: a folder, or an explicit git directory, work tree and index file."""

    folder: Path | None = None
    git_dir: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    is_exact: bool = True
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *args: str, stdin: bytes = b"", ok: Collection[int] = (0,)) -> GitResult:
        """Run one git command. Raises `WorkspaceError` if it ends with a code that is not in `ok`."""
        deadline = time.monotonic() + CONTENTION_WAIT_S
        while True:
            result = self._run_once(args, stdin)
            if result.exit_code in ok:
                return result
            if not _CONTENTION.search(result.stderr) or time.monotonic() > deadline:
                raise _failure(args, result)
            time.sleep(random.uniform(0.01, 0.1))  # noqa: S311 (spreads retries, protects nothing)

    def line(self, *args: str, stdin: bytes = b"") -> str:
        return self.run(*args, stdin=stdin).line

    def find(self, *args: str) -> str | None:
        """Return the command's output, or `None` if git says that there is no such thing."""
        result = self.run(*args, ok=(0, 1, 128))
        return result.line if result.exit_code == 0 else None

    def resolve(self, *names: str) -> dict[str, str | None]:
        """Return the id of the object that each name stands for, `None` where there is none; with one process."""
        lines = self.run("cat-file", "--batch-check=%(objectname)", stdin="\n".join(names).encode()).line.split("\n")
        return {name: None if " " in line else line for name, line in zip(names, lines, strict=True)}

    def _run_once(self, args: tuple[str, ...], stdin: bytes) -> GitResult:
        done = self._call([*self._command(), *args], stdin, self._environment())
        assert done is not None  # nobody gives it up
        return done

    def _call(
        self, command: list[str], stdin: bytes, env: dict[str, str], *, is_silent: Callable[[], bool] | None = None
    ) -> GitResult | None:
        """Run git; `None` if it was given up as silent, which is asked for every moment."""
        processes = GIT_PROCESSES.get() or GitProcesses()
        try:
            process = processes.start(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=env,
                pass_fds=HELD_LOCKS.get(),
            )
        except FileNotFoundError as missing:
            raise WorkspaceError("git was not found.", hint="Install git 2.38 or later.") from missing
        with process:
            try:
                output = _communicate(process, stdin, is_silent)
            except subprocess.TimeoutExpired as late:
                kill_tree(process)
                raise _too_late(command[1:]) from late
            except BaseException:
                process.kill()
                raise
            finally:
                processes.note_end(process)
        return output and GitResult(process.returncode, output[0], output[1].decode(errors="replace"))

    @contextmanager
    def stream(self, *args: str, stdin: bytes = b"") -> Iterator[IO[bytes]]:
        """Run one git command whose output may have no end; it is ended with the block. Raises `WorkspaceError`.

        `stdin` must be short enough for a pipe.
        """
        with self._open(args) as (watch, requests, output):
            with contextlib.suppress(BrokenPipeError):
                requests.write(stdin)
                requests.close()
            yield output
            if output.read(1) == b"" and (exit_code := watch.process.wait()) != 0:
                raise _failure(args, GitResult(exit_code, b"", watch.read_errors()))

    @contextmanager
    def converse(self, *args: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Run one git command that answers requests one after the other; it is ended with the block.

        Whoever writes requests must read the answers before the next ones do not fit into a pipe.
        """
        with self._open(args) as (_watch, requests, output):
            yield requests, output

    @contextmanager
    def _open(self, args: tuple[str, ...]) -> Iterator[tuple[ProcessWatch, IO[bytes], IO[bytes]]]:
        """Start git for one block, and end it after that or when its time is over: then whatever the block raises is a
        consequence, and a `WorkspaceError` says so."""
        processes = GIT_PROCESSES.get() or GitProcesses()
        child = processes.start(  # git is ours; the words are no shell's
            [*self._command(), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=self._environment(),
            process_group=0,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        watch = ProcessWatch(child, TIMEOUT_S)
        try:
            yield watch, child.stdin, child.stdout
        except Exception as error:
            if watch.is_late:
                raise _too_late(args) from error
            raise
        finally:
            watch.end()
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            child.stdout.close()
            processes.note_end(child)

    def _environment(self) -> dict[str, str]:
        index = {"GIT_INDEX_FILE": str(self.index)} if self.index is not None else {}
        return _clean_environment() | index | to_environment(self._find_overrides()) | dict(self.env)

    def _find_overrides(self) -> dict[str, str]:
        """Find what keeps the repository's own settings from running programs."""
        if self.folder is None and self.git_dir is None:
            return {}
        git_dir = self.git_dir
        if git_dir is not None and self.folder is None and not (git_dir / "config.worktree").exists():
            git_dir = find_common_dir(git_dir) or git_dir  # all worktrees of a repository share its settings
        places = [git_dir] if git_dir is not None else []
        more = [place / name for place in places for name in ("config", "config.worktree", "commondir")]
        if self.folder is not None:
            more.append(self.folder / ".git")
        base = self.folder or git_dir or Path("/")
        return _OVERRIDES.get((self.folder, git_dir), base, more, self._list_settings)

    def _list_settings(self) -> tuple[list[Setting], list[Path]]:
        command = [*self._command(), "config", "--list", "--includes", "--show-scope", "--show-origin", "-z"]
        done = self._call(command, b"", _clean_environment())
        assert done is not None
        return parse_settings(done.stdout)

    def _command(self) -> list[str]:
        command = ["git", "--no-pager", "--literal-pathspecs"]
        for setting in (*_SAFE, *(_EXACT if self.is_exact else ())):
            command += ["-c", setting]
        if self.folder is not None:
            command += ["-C", str(self.folder)]
        if self.git_dir is not None:
            command.append(f"--git-dir={self.git_dir}")
        if self.work_tree is not None:
            command.append(f"--work-tree={self.work_tree}")
        return command


def find_common_dir(git_dir: Path) -> Path | None:
    """Return the repository's git directory, of which this may be that of a worktree; `None` if it is neither."""
    try:
        link = (git_dir / "commondir").read_text().rstrip("\n")
    except FileNotFoundError:
        return Path(os.path.realpath(git_dir)) if (git_dir / "HEAD").exists() else None
    except OSError:
        return None
    return Path(os.path.realpath(git_dir / link))


def _clean_environment() -> dict[str, str]:
    env = {name: value for name, value in without_keys(os.environ).items() if not name.startswith("GIT_")}
    return env | _FIXED_VARIABLES


def identity(author: Author, at: datetime | None = None) -> dict[str, str]:
    """Return the variables that make `author` the author and committer of what git writes, at the time `at`."""
    env = {f"GIT_{role}_{part.upper()}": getattr(author, part) for role in _ROLES for part in ("name", "email")}
    if at is not None:
        env |= {f"GIT_{role}_DATE": f"@{int(at.timestamp())} +0000" for role in _ROLES}
    return env


_FIXED_VARIABLES = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_EDITOR": "true",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ADVICE": "0",
    **identity(HOLDFAST),
}


def _communicate(
    process: "subprocess.Popen[bytes]", stdin: bytes, is_silent: Callable[[], bool] | None
) -> tuple[bytes, bytes] | None:
    """Return what a process says; `None` once it was given up, and killed. Raises `TimeoutExpired`."""
    deadline, unsent = time.monotonic() + TIMEOUT_S, stdin
    while True:
        left_s = deadline - time.monotonic()
        try:
            return process.communicate(unsent, timeout=left_s if is_silent is None else min(_LOOK_S, left_s))
        except subprocess.TimeoutExpired:
            unsent = b""  # it has it, or gets the rest with the next call
            if is_silent is None or left_s <= _LOOK_S:
                raise
            if is_silent():
                kill_tree(process)  # a helper of a transport would go on for itself
                return None


def _too_late(args: Sequence[str]) -> WorkspaceError:
    return WorkspaceError(f"git did not end within {TIMEOUT_S:g} s.", command=" ".join(["git", *args]))


def _failure(args: tuple[str, ...], result: GitResult) -> WorkspaceError:
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"exit code {result.exit_code}"
    command = "git " + " ".join(args)
    return WorkspaceError(
        f"`{command[:200]}` failed: {last}",
        hint="Look at the repository with git; nothing that was recorded is lost.",
        command=command,
        stderr=last,
        exit_code=result.exit_code,
    )
