"""A terminal to type into and read from, and the command as a shell starts it.

Both fork a process that has imported everything already, unless they are told that it is to be a cold start.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from tests.support.forked_command import WarmProcess, start_warm
from tests.support.progress_limit import waiting_until

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Terminal:
    """A process on a pseudo-terminal. Reading waits for what is expected, never for a time."""

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str],
        columns: int = 100,
        lines: int = 40,
        cwd: Path | None = None,
        is_cold: bool = False,
    ) -> None:
        self.screen = ""
        self._place = 0
        self._fd, child_fd = pty.openpty()
        fcntl.ioctl(child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {**env, "TERM": "xterm-256color"}
        self.process: WarmProcess | subprocess.Popen[bytes]
        if is_cold:
            self.process = subprocess.Popen(
                [HOLDFAST, *arguments],
                env=env,
                cwd=cwd,
                stdin=child_fd,
                stdout=child_fd,
                stderr=child_fd,
                preexec_fn=_own_terminal,
            )
        else:
            self.process = start_warm(arguments, env, cwd, (os.ttyname(child_fd),) * 3)
        os.close(child_fd)

    def wait_for(self, *texts: str) -> str:
        """Read until one of the texts is on the screen after the last one found and the last typing; return which."""
        with waiting_until(lambda: f"it says {texts}:\n{self.screen[-3000:]}"):
            while not (found := [text for text in texts if text in self.screen[self._place :]]):
                assert self._read(), f"it ended without saying {texts}:\n{self.screen[-3000:]}"
        self._place = self.screen.index(found[0], self._place) + len(found[0])
        return found[0]

    def type(self, text: str) -> None:
        self._place = len(self.screen)
        os.write(self._fd, text.encode())

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def end(self) -> int:
        while self._read():
            pass
        os.close(self._fd)
        return self.process.wait()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)


def _own_terminal() -> None:
    """Ctrl-C typed into the terminal reaches the process only if the terminal is its own."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def shell(
    *arguments: str, env: dict[str, str], cwd: Path | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err, typed = (Path(folder, name) for name in ("out", "err", "in"))
        for path in (out, err):
            path.touch()
        if stdin is not None:
            typed.write_text(stdin)
        source = os.devnull if stdin is None else str(typed)
        process = start_warm(arguments, env, cwd, (source, str(out), str(err)))
        try:
            code = process.wait()
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
        return subprocess.CompletedProcess(["holdfast", *arguments], code, out.read_text(), err.read_text())
