"""Workers of the version before: their code comes out of the repository's history, and runs beside today's."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_MIGRATIONS = "src/holdfast/persistence/migrations/versions"
_SCHEMA = "src/holdfast/persistence/schema.py"
_PROMISE = "oldest_rows"
"""Versions that know it look in the database whether they may go on there; earlier ones refuse what is newer."""


def find_older() -> str | None:
    """Return the commit before the last migration, or the first that may work beside a newer one if that is later.

    `None` without the history of the repository.
    """
    last = _git("log", "-1", "--format=%H", "--diff-filter=A", "--", _MIGRATIONS)
    first = _git("log", "--reverse", "--format=%H", "-S", _PROMISE, "--", _SCHEMA).partition("\n")[0]
    before = _git("rev-parse", "--verify", "--quiet", f"{last}^") if last else ""
    if before and _PROMISE in _git("show", f"{before}:{_SCHEMA}"):
        return before
    return first or None


def unpack(commit: str, folder: Path) -> Path:
    """Write the package of a commit below a folder; returns where Python finds it."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=_ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class OlderProcess:
    """A command of an earlier version; it is ended like those of today's."""

    def __init__(self, package: Path, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        program = [sys.executable, "-c", "from holdfast.cli.app import main; main()", *arguments]
        environment = {**env, "PYTHONPATH": str(package)}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                program, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def end(self, number: int) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        return self.process.wait()


def _git(*arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False, env=environment)
    return done.stdout.strip() if done.returncode == 0 else ""
