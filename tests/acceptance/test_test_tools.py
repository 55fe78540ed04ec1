"""What `make test` installs: said before it is done, or said to be missing, with the tests that are skipped for it."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install-test-tools.sh"


def run(folder: Path, *, user: int, refused: str = "", has_all: bool = False) -> tuple[list[str], list[str]]:
    """Run the script on a machine with next to nothing; return what it says and which packages it asked apt-get for."""
    programs = folder / "bin"
    programs.mkdir()
    scripts = {
        "id": f"echo {user}",
        "apt-get": f'echo "$*" >> {folder}/asked; case "$*" in *{refused or "nothing"}*) exit 1; esac',
    }
    if has_all:
        scripts |= {"bwrap": "exit 0", "chromium": "exit 0", "faketime": "exit 0", "systemd-analyze": "exit 0"}
        node = folder / ".venv/lib/python3.11/site-packages/playwright/driver/node"
        node.parent.mkdir(parents=True)
        node.write_text("#!/bin/sh\n")
        node.chmod(0o755)
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    bash = shutil.which("bash") or "/bin/bash"
    done = subprocess.run([bash, SCRIPT], cwd=folder, env={"PATH": str(programs)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = (folder / "asked").read_text().splitlines() if (folder / "asked").exists() else []
    return done.stdout.splitlines(), [line.split("-y ")[1] for line in lines if "install" in line]


def test_where_nothing_is_missing_nothing_is_said_or_done(tmp_path: Path) -> None:
    assert run(tmp_path, user=0, has_all=True) == ([], [])


def test_what_is_installed_is_said(tmp_path: Path) -> None:
    said, packages = run(tmp_path, user=0)

    assert said == ["Installing bubblewrap, faketime, chromium, libatomic1, systemd with apt-get, for the tests …"]
    assert packages == ["bubblewrap faketime chromium libatomic1 systemd"]


def test_what_cannot_be_installed_names_the_tests_that_are_skipped(tmp_path: Path) -> None:
    said, packages = run(tmp_path, user=0, refused="chromium")

    assert said[1:] == ["The browser tests will be skipped: chromium is not installed."]
    assert packages[1:] == ["bubblewrap", "faketime", "chromium", "libatomic1", "systemd"]


def test_without_root_nothing_is_tried_and_the_command_is_shown(tmp_path: Path) -> None:
    said, packages = run(tmp_path, user=1000)

    assert "apt-get install bubblewrap faketime chromium libatomic1 systemd" in said[0]
    assert [line.split(" tests")[0] for line in said[1:]] == [
        "The sandbox",
        "A wrong clock is tested in Python alone: faketime is not installed.",
        "The browser",
        "The browser and page module",
        "The systemd unit",
    ]
    assert packages == []


@pytest.mark.parametrize("script", ["install-test-tools.sh", "get-uv.sh"])
def test_every_use_of_apt_get_is_announced(script: str) -> None:
    lines = (SCRIPT.parent / script).read_text().splitlines()
    called = next(number for number, line in enumerate(lines) if "apt-get update" in line)

    assert any("echo" in line and "with apt-get" in line for line in lines[:called])
