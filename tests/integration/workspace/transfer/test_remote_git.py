"""Git that reaches a remote: a server that says nothing is given up, and a slow one is waited for."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine_world import git, make_repo
from tests.support.progress_limit import wait_until
from tests.support.silent_server import open_silent_server
from tests.support.ssh_server import serve_by_ssh

from holdfast.errors import RepositoryMissing
from holdfast.workspace.transfer import remote_git
from holdfast.workspace.transfer.remotes import fetched_branch, list_branches


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


@pytest.fixture
def silent_port() -> Iterator[int]:
    with open_silent_server() as port:
        yield port


def list_helpers(port: int) -> list[str]:
    """List the processes that are about this port."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
            found += [words] if f"127.0.0.1:{port}/" in words else []
    return found


@pytest.mark.parametrize("scheme", ["https", "ssh"])
@pytest.mark.parametrize("branch", [None, "main"])
def test_a_server_that_says_nothing_is_given_up_with_all_that_git_has_started(
    silent_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, branch: str | None
) -> None:
    monkeypatch.setattr(remote_git, "SILENT_S", 1.0)
    url = f"{scheme}://{'git@' if scheme == 'ssh' else ''}127.0.0.1:{silent_port}/shop.git"
    with (
        pytest.raises(RepositoryMissing, match=r"said nothing for 1 s|[Cc]onnection timed out"),
        fetched_branch(url, branch, tmp_path / "data"),
    ):
        pass
    wait_until(lambda: not list_helpers(silent_port), "they are gone")


def serve_shop(folder: Path) -> Path:
    """Serve a repository by the user's own ssh, and return what it was asked for."""
    make_repo(folder / "work")
    git(folder, "clone", "--quiet", "--bare", str(folder / "work"), str(folder / "shop.git"))
    return serve_by_ssh(folder, "code.example.org", folder / ".gitconfig")


def test_a_server_that_is_slow_and_alive_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_shop(tmp_path)
    program, gate = tmp_path / "ssh", tmp_path / "gate"
    os.mkfifo(gate)
    program.write_text(program.read_text().replace("exec sh", f"read _line < {gate}; exec sh"))
    is_unanswered, opened = remote_git._is_unanswered, list[bool]()

    def ask_and_open(trace: Path) -> bool:
        """Let the server answer when its time is over."""
        if not opened:
            opened.append(True)
            gate.write_text("go\n")
        return is_unanswered(trace)

    monkeypatch.setattr(remote_git, "SILENT_S", 0.0)
    monkeypatch.setattr(remote_git, "_is_unanswered", ask_and_open)
    assert list_branches("git@code.example.org:shop.git") == (("main",), "main")
    assert opened


def test_an_answer_that_has_begun_is_no_silence(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert not remote_git._is_unanswered(trace)  # another program than curl is at it
    trace.write_text("== Info: Connected to 127.0.0.1\n=> Send header: GET /\n")
    assert remote_git._is_unanswered(trace)
    trace.write_text("== Info: Connected to 127.0.0.1\n=> Send header: GET /\n<= Recv header: HTTP/1.1 200 OK\n")
    assert not remote_git._is_unanswered(trace)


def test_the_users_own_ssh_is_run_with_limits_if_it_takes_them(tmp_path: Path) -> None:
    log = serve_shop(tmp_path)
    list_branches("git@code.example.org:shop.git")
    assert "-o ConnectTimeout=45 -o ServerAliveInterval=15 -o ServerAliveCountMax=3 " in log.read_text()

    (tmp_path / "ssh").rename(tmp_path / "plink")
    settings = tmp_path / ".gitconfig"
    settings.write_text(settings.read_text().replace(f"{tmp_path}/ssh", f"{tmp_path}/plink"))
    log.unlink()
    list_branches("git@code.example.org:shop.git")
    assert "ConnectTimeout" not in log.read_text()
