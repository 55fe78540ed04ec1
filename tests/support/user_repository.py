"""A repository as its user has it, and the moment at which tests happen."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class UserRepo:
    """A repository as its user has it, driven by git as its user drives it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *args: str, check: bool = True) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.path.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-c", "user.name=Owner", "-c", "user.email=owner@example.org", *args]
        done = subprocess.run(command, cwd=self.path, env=env, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, name: str, content: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def commit(self, message: str = "change", **files: str) -> str:
        for name, content in files.items():
            self.write(name.replace("__", "/").replace("_", "."), content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def state(self) -> dict[str, str]:
        """All that a run must leave alone: HEAD, branches that are not ours, index, files."""
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags", "refs/remotes")
        return {
            "head": (self.path / ".git/HEAD").read_text(),
            "refs": "\n".join(line for line in refs.splitlines() if "heads/holdfast/" not in line),
            "index": str((self.path / ".git/index").read_bytes() if (self.path / ".git/index").exists() else b""),
            "status": self.git("status", "--porcelain"),
            "config": (self.path / ".git/config").read_text(),
        }
