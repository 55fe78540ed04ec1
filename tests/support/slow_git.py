"""A `git` before the real one that stands still at one of its commands until it is let on."""

import os
import shutil
from pathlib import Path

import pytest
from tests.support.progress_limit import until

_SCRIPT = """#!/bin/sh
case " $* " in *" {command} "*)
    trap '' {ignores}
    : > {folder}/reached
    while [ ! -e {folder}/let-on ]; do sleep 0.02; done
esac
exec {git} "$@"
"""


class SlowGit:
    """Found by everything in this process that starts git from now on. At the end of its block it is let on."""

    def __init__(self, folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, *, ignores: str = "USR1") -> None:
        folder.mkdir()
        self._folder = folder
        script = folder / "git"
        script.write_text(_SCRIPT.format(command=command, folder=folder, git=shutil.which("git"), ignores=ignores))
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def __enter__(self) -> "SlowGit":
        return self

    def __exit__(self, *_: object) -> None:
        self.let_on()

    async def wait_until_reached(self) -> None:
        await until(self.is_reached, "git is called")

    def is_reached(self) -> bool:
        return (self._folder / "reached").exists()

    def let_on(self) -> None:
        (self._folder / "let-on").touch()
