"""Git that reaches a remote, and gives it up when it says nothing; one that is slow may take long.

Rule: whoever waits for a stranger's server gets an answer of git's in any case. ssh is given limits of its own. curl is
given one for each transfer, which does not count until the connection and its encryption are there: so curl's trace is
watched for the first line of an answer.
"""

import re
import shlex
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.workspace.git import Git, GitResult

SILENT_S = 45.0
_TRIES = 3
# In curl's trace, which has no data and no password.
_ANSWER = re.compile(rb"<= Recv header")


@dataclass(frozen=True)
class RemoteGit(Git):
    """A place where git runs that may reach a remote. A server that says nothing is a failure of the command."""

    def _run_once(self, args: tuple[str, ...], stdin: bytes) -> GitResult:
        with tempfile.TemporaryDirectory(prefix="holdfast-git-") as folder:
            trace, silent_at = Path(folder) / "trace", time.monotonic() + SILENT_S
            env = self._environment() | self._limits() | {"GIT_TRACE_CURL": str(trace), "GIT_TRACE_CURL_NO_DATA": "1"}

            def is_silent() -> bool:
                return time.monotonic() > silent_at and _is_unanswered(trace)

            done = self._call([*self._command(), *args], stdin, env, is_silent=is_silent)
        if done is None:
            return GitResult(128, b"", f"the server has said nothing for {SILENT_S:g} s")
        return done

    def _limits(self) -> dict[str, str]:
        """Return the variables that limit how long a server may say nothing."""
        limits = {"GIT_HTTP_LOW_SPEED_LIMIT": "1", "GIT_HTTP_LOW_SPEED_TIME": f"{max(1, round(SILENT_S))}"}
        done = self._call([*self._command(), "config", "--get", "core.sshCommand"], b"", self._environment())
        command = done.stdout.decode(errors="surrogateescape").strip() if done is not None else ""
        if not command or _is_openssh(command):  # what else the user has may not know these options
            alive_s = max(1, round(SILENT_S / _TRIES))
            words = (f"ConnectTimeout={max(1, round(SILENT_S))}", f"ServerAliveInterval={alive_s}")
            options = " ".join(f"-o {word}" for word in (*words, f"ServerAliveCountMax={_TRIES}"))
            limits["GIT_SSH_COMMAND"] = f"{command or 'ssh'} {options}"  # of an option that is there twice, the first
        return limits


def _is_openssh(command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return bool(words) and Path(words[0]).name == "ssh"


def _is_unanswered(trace: Path) -> bool:
    """Tell whether curl is at work and has had no answer yet; without curl there is no trace."""
    try:
        text = trace.read_bytes()
    except FileNotFoundError:
        return False
    return bool(text) and not _ANSWER.search(text)
