"""The workflow's own commands are contained like an agent's: what they run may have been written by one."""

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import ToolMessage
from tests.support.engine_world import Turn, World, hand_in, phase, template

from holdfast.agents.tools import shell as shell_module
from holdfast.engine.phase.command_shell import PACKAGE_HOSTS, CommandKind, open_command_shell
from holdfast.enums import RunStatus
from holdfast.errors import WorkspaceError
from holdfast.runtime.step import Stopped
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import SandboxKind, SandboxProbe, find_bubblewrap, find_landlock, open_workspace

CANARY = "the-canary-sings"
PROBES = {SandboxKind.BUBBLEWRAP: find_bubblewrap(), SandboxKind.LANDLOCK: find_landlock()}
NO_SANDBOX = SandboxProbe(None, "none for this test")
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

# Runs each line and tells what it printed; the same program is run outside, where each must find the canary.
TRIES = """
import json, subprocess, sys
answers = {}
for name, line in json.loads(sys.argv[1]).items():
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=60)
    answers[name] = (done.stdout + done.stderr).decode(errors="replace")[-300:]
print(json.dumps(answers))
"""
_CONNECT = "import socket; s=socket.socket(socket.{0}); s.connect({1}); print(s.recv(99).decode())"
READS = {
    "key": "cat {home}/.ssh/id_ed25519",
    "key by a variable": 'D={home}; cat "$D/.ssh/"*',
    "key by a link": "ln -sf {home}/.ssh/id_ed25519 link && cat link; rm -f link",
    "key by a folder's link": "ln -sfn {home} there && cat there/.ssh/id_ed25519; rm -f there",
    "key by a climb": "cat $(pwd | sed 's,[^/]*,..,g')/{home}/.ssh/id_ed25519",
    "key by python": "python3 -c \"print(open('{home}/.ssh/id_ed25519').read())\"",
    "key by a hard link": "ln {home}/.ssh/id_ed25519 hard && cat hard; rm -f hard",
    "key by tar": "tar cf - -C {home} .ssh | tr -d '\\000'",
    "key by an archive's link": "mkdir -p t && cp -r {home}/.ssh t/ && cat t/.ssh/id_ed25519; rm -rf t",
    "key by a file descriptor": "exec 7< {home}/.ssh/id_ed25519; cat <&7",
    "key by a shell's source": "(. {home}/.ssh/id_ed25519) 2>&1; true",
    "key by git": "git hash-object -t blob --stdin < {home}/.ssh/id_ed25519 >/dev/null && cat {home}/.ssh/id_ed25519",
    "key by git without an index": "git diff --no-index /dev/null {home}/.ssh/id_ed25519",
    "password file": "cat {home}/.pgpass",
    "main checkout": "cat {repo}/notes.local",
    "main checkout by its name": "find {repo} -name notes.local -exec cat {{}} +",
    "main checkout by git": "cat $(git rev-parse --git-common-dir)/../notes.local {repo}/notes.local",
    "database": "grep -ac . {data}/marked.db && cat {data}/marked.db",
    "consents": "cat {data}/consent-marked.json",
    "another run's spool": "cat {data}/spool/other/in",
    "another run's worktree": "cat {data}/worktrees/other/file",
    "a file in the system's temporary folder": "cat {tmp}",
    "shared memory": "cat {shared}",
    "variables of another process": "tr '\\0' '\\n' < /proc/{pid}/environ",
    "folder of another process": "cat /proc/{pid}/cwd/.pgpass",
    "root of another process": "cat /proc/{pid}/root{home}/.pgpass",
    "root of the process above": "cat /proc/$PPID/root{home}/.pgpass",
    "network": 'python3 -c "' + _CONNECT.format("AF_INET", "('127.0.0.1', {port})") + '"',
    "network by the shell": "bash -c 'cat < /dev/tcp/127.0.0.1/{port}'",
    "unix socket": 'python3 -c "' + _CONNECT.format("AF_UNIX", "'{socket}'") + '"',
    "abstract socket": 'python3 -c "' + _CONNECT.format("AF_UNIX", "'\\\\0{abstract}'") + '"',
}
WRITES = {
    "checkout": "echo x > {repo}/planted",
    "git hook": "printf '#!/bin/sh\\n' > {repo}/.git/hooks/planted; mkdir -p {repo}/.git/hooks/planted",
    "git configuration": "git config core.hooksPath /x; git config --global a.b '!x'; echo x >> {repo}/.git/config",
    "worktree's git file": "echo 'gitdir: /x' > .git; rm -f .git; mv .git away",
    "home": "echo x > {home}/planted; mkdir -p {home}/.config/autostart; echo x >> {home}/.bashrc",
    "keys": "echo x >> {home}/.ssh/authorized_keys; rm -rf {home}/.ssh",
    "data": "echo x > {data}/planted; rm -f {data}/marked.db; : > {data}/consent-marked.json",
    "temporary file outside": "rm -f {tmp}; echo x > {tmp}",
    "another process": "kill -9 {pid}; kill -STOP {pid}",
}


def fill(lines: dict[str, str], places: dict[str, Any]) -> dict[str, str]:
    return {name: line.format(**places) for name, line in lines.items()}


def script(lines: dict[str, str]) -> list[str]:
    return ["python3", "-c", TRIES, json.dumps(lines)]


@pytest.fixture(params=list(PROBES), ids=lambda kind: kind.value)
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SandboxProbe:
    probe = PROBES[request.param]
    if not probe.works:
        pytest.skip(probe.reason)
    monkeypatch.setattr(shell_module, "probe_once", lambda: probe)
    return probe


@pytest.fixture
def places(world: World, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What there is to find around a run: keys, another run, sockets, a server, a process."""
    home, data, repo = tmp_path, world.data_dir, world.repo
    shared = Path(f"/dev/shm/holdfast-{uuid4()}")
    in_tmp = Path(f"/var/tmp/holdfast-{uuid4()}")
    names = (".ssh/id_ed25519", ".pgpass")
    files = [*(home / name for name in names), repo / "notes.local", data / "marked.db", data / "consent-marked.json"]
    for path in (*files, data / "spool/other/in", data / "worktrees/other/file", shared, in_tmp):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    abstract, path = f"holdfast-{uuid4()}", tmp_path / "s"
    servers = [
        _serve(socket.AF_INET, ("127.0.0.1", 0)),
        _serve(socket.AF_UNIX, str(path)),
        _serve(socket.AF_UNIX, f"\0{abstract}"),
    ]
    other = subprocess.Popen(["sleep", "600"], env={"SOME_KEY": CANARY}, cwd=home)
    port = servers[0].getsockname()[1]
    found = {"home": home, "data": data, "repo": repo, "shared": shared, "tmp": in_tmp, "pid": other.pid, "port": port}
    yield {**found, "socket": path, "abstract": abstract}
    other.kill()
    other.wait()
    for server in servers:
        server.close()
    for path in (shared, in_tmp, data / "worktrees/other/file"):
        path.unlink()
    shutil.rmtree(data / "worktrees/other")
    shutil.rmtree(data / "spool/other")


def _serve(family: socket.AddressFamily, address: Any) -> socket.socket:
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind(address)
    server.listen(16)

    def answer() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.sendall(CANARY.encode())

    threading.Thread(target=answer, daemon=True).start()
    return server


async def _write_file(turn: Turn) -> None:
    def write() -> ToolMessage:
        turn.write("a.txt", "new\n")
        return ToolMessage(content="written", name="write_file", tool_call_id="call-write_file")

    await turn.use_tool("write_file", write, file_path="/a.txt", content="…")
    turn.hand_in()


def made_of(kind: CommandKind, argv: list[str], **options: Any) -> WorkflowTemplate:
    """A template whose only command is of this kind."""
    if kind is CommandKind.CHECKS:
        return template(phase("spec", checks=[argv]), **options)
    if kind is CommandKind.HOOKS:
        return template("spec", hooks=[{"after": ["write_file"], "run": argv}], **options)
    return template("spec", setup=[argv], **options)


def find_results(world: World, run_id: Any) -> list[dict[str, Any]]:
    found = [event.payload.get("result") for event in world.events(run_id, "tool.result")]
    return [result for result in found if isinstance(result, dict) and "exit_code" in result]


@pytest.mark.parametrize("kind", [CommandKind.CHECKS, CommandKind.HOOKS], ids=lambda kind: kind.value)
async def test_what_an_agent_wrote_gets_nothing_out(
    world: World, sandbox: SandboxProbe, places: dict[str, Any], kind: CommandKind
) -> None:
    lines = fill(READS, places)
    outside = subprocess.run(script(lines), cwd=world.repo, capture_output=True, text=True, check=True)

    result = await world.run(
        _write_file, template=made_of(kind, script(lines)), engine={"find_sandbox": lambda: sandbox}
    )

    assert result.state is RunStatus.COMPLETED
    [inside] = find_results(world, result.run_id)
    assert inside["sandbox"] == sandbox.kind
    answers = json.loads(inside["output"].strip())
    assert answers.keys() == lines.keys()
    assert [name for name, text in answers.items() if CANARY in text] == []
    assert [name for name, text in json.loads(outside.stdout).items() if CANARY not in text] == []


async def test_what_an_agent_wrote_changes_nothing_outside(
    world: World, sandbox: SandboxProbe, places: dict[str, Any]
) -> None:
    def look() -> list[Any]:
        files = [path for path in world.repo.rglob("*") if path.is_file() and "/worktrees/" not in str(path)]
        files += [places["home"] / ".ssh/id_ed25519", world.data_dir / "marked.db", places["tmp"]]
        files += [world.data_dir / "consent-marked.json"]
        contents = [
            (str(path), path.read_text(errors="replace")) for path in sorted(files) if "objects" not in path.parts
        ]
        return [*contents, (places["home"] / "planted").exists(), (world.data_dir / "planted").exists()]

    def state_of(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    before = look()
    lines = fill(WRITES, places)

    result = await world.run(
        template=made_of(CommandKind.CHECKS, script(lines)), engine={"find_sandbox": lambda: sandbox}
    )

    assert result.state is RunStatus.COMPLETED
    assert [entry for entry in look() if entry not in before and "refs" not in str(entry)] == []
    assert state_of(places["pid"]) == "S"
    assert (world.worktree(result.run_id) / ".git").read_text().startswith("gitdir: ")


async def test_set_up_has_the_network_until_an_agent_has_worked(
    world: World, sandbox: SandboxProbe, places: dict[str, Any]
) -> None:
    lines = fill({name: READS[name] for name in ("network", "key", "main checkout")}, places)
    made = template(phase("spec", risk="high"), setup=[script(lines)])
    paused = await world.run(template=made, engine={"find_sandbox": lambda: sandbox})
    shutil.rmtree(world.worktree(paused.run_id))

    await world.engine(find_sandbox=lambda: sandbox).resume(paused.run_id)

    answers = [json.loads(result["output"].strip()) for result in find_results(world, paused.run_id)]
    reached = [[name for name, text in each.items() if CANARY in text] for each in answers]
    assert reached == [["network"], []]


async def test_what_set_up_leaves_in_its_home_is_there_for_checks(world: World, sandbox: SandboxProbe) -> None:
    setup = "mkdir -p $HOME/.cargo $XDG_CACHE_HOME/x && echo lib > $HOME/.cargo/lib && echo built > $XDG_CACHE_HOME/x/y"
    check = "cat $HOME/.cargo/lib $XDG_CACHE_HOME/x/y; echo $HOLDFAST_RUN_ID"
    made = template(phase("spec", checks=[["sh", "-c", check]]), setup=[["sh", "-c", setup]])

    result = await world.run(template=made, engine={"find_sandbox": lambda: sandbox})

    assert result.state is RunStatus.COMPLETED
    assert find_results(world, result.run_id)[1]["output"] == f"lib\nbuilt\n{result.run_id}\n"
    assert not (Path(os.environ["HOME"]) / ".cargo").exists()


async def test_a_workflow_can_do_without_the_sandbox_and_the_journal_says_so(
    world: World, places: dict[str, Any]
) -> None:
    made = made_of(CommandKind.CHECKS, ["cat", f"{places['home']}/.pgpass"], sandbox={"checks": False})

    result = await world.run(template=made)

    [check] = find_results(world, result.run_id)
    assert (check["output"], check["sandbox"], check["unsandboxed_by"]) == (CANARY, "none", "workflow tried-out")
    [started] = world.events(result.run_id, "run.started")
    assert started.payload["unsandboxed_by_workflow"] == ["checks"]


async def test_what_the_workflow_lists_can_be_read_and_reached(
    world: World, sandbox: SandboxProbe, places: dict[str, Any]
) -> None:
    world.git("config", "user.email", "someone@example.org", folder=world.repo)
    (world.repo / "test.pem").write_text("a key for tests")
    (world.repo / "live.pem").write_text("a key for the world")
    world.git("add", "test.pem", "live.pem")
    world.git("commit", "-q", "-m", "keys")
    line = f"cat {places['home']}/.pgpass; echo; cat test.pem; echo; cat live.pem"
    rules = {"readable": ["~/.pgpass"], "secrets": ["test.*"]}

    result = await world.run(
        template=made_of(CommandKind.CHECKS, ["sh", "-c", f"{line}; true"], sandbox=rules),
        engine={"find_sandbox": lambda: sandbox},
    )

    output = find_results(world, result.run_id)[0]["output"]
    assert output.splitlines()[:2] == [CANARY, "a key for tests"]
    assert "a key for the world" not in output


# -- without any sandbox ----------------------------------------------------------------------------------------------

NONE = {"find_sandbox": lambda: NO_SANDBOX}


@pytest.mark.parametrize("kind", [CommandKind.CHECKS, CommandKind.HOOKS], ids=lambda kind: kind.value)
async def test_without_a_sandbox_a_person_is_asked_before_an_agents_code_runs(
    world: World, tmp_path: Path, kind: CommandKind
) -> None:
    made = made_of(kind, ["sh", "-c", f"echo ran >> {tmp_path}/ran"])

    paused = await world.run(_write_file, template=made, engine=NONE)
    [question] = await world.approvals(paused.run_id)
    was_run = (tmp_path / "ran").exists()
    await world.engine(**NONE).decide(paused.run_id, question.id, "approve", by="ann")
    result = await world.engine(_write_file, **NONE).resume(paused.run_id)

    assert (paused.state, was_run) == (RunStatus.PAUSED, False)
    assert "no sandbox is in force" in str(question.shown)
    assert f"May the agent run “$ sh -c 'echo ran >> {tmp_path}/ran'”?" in question.shown["question"].replace("…", "")
    assert result.state is RunStatus.COMPLETED
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_a_check_that_a_person_does_not_allow_fails_its_phase_unrun(world: World, tmp_path: Path) -> None:
    made = made_of(CommandKind.CHECKS, ["touch", f"{tmp_path}/ran"])
    paused = await world.run(template=made, engine=NONE)
    [question] = await world.approvals(paused.run_id)
    await world.engine(**NONE).decide(paused.run_id, question.id, "reject", comment="not here", by="ann")

    result = await world.engine(**NONE).resume(paused.run_id)

    assert result.state is RunStatus.FAILED
    assert result.error is not None
    assert "ann" in result.error.message
    assert "not here" in result.error.message
    assert not (tmp_path / "ran").exists()


async def test_without_a_sandbox_set_up_is_not_repeated_on_an_agents_files_until_a_person_chooses_so(
    world: World, tmp_path: Path
) -> None:
    made = template(phase("spec", risk="high"), setup=[["sh", "-c", f"echo x >> {tmp_path}/ran"]])
    paused = await world.run(template=made, engine=NONE)
    shutil.rmtree(world.worktree(paused.run_id))

    refused = await world.engine(**NONE).resume(paused.run_id)
    once = (tmp_path / "ran").read_text()
    await world.engine(**NONE).retry(paused.run_id, is_unsandboxed=True, by="ann")

    assert refused.error is not None
    assert (refused.error.code, once) == ("sandbox_missing", "x\n")
    assert (tmp_path / "ran").read_text() == "x\nx\n"
    assert find_results(world, paused.run_id)[-1]["unsandboxed_by"] == "ann"


async def test_a_command_that_was_to_be_contained_is_not_run_free_by_a_process_without_a_sandbox(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between the intent and the start; where the next one runs there is no sandbox."""
    from holdfast.engine.phase import commands

    async def die(*_args: Any) -> Any:
        raise Stopped(WorkspaceError("the process dies here"))

    made = made_of(CommandKind.CHECKS, ["touch", f"{tmp_path}/ran"])
    with monkeypatch.context() as patch:
        patch.setattr(commands, "_run_spooled", die)
        with pytest.raises(WorkspaceError, match="dies here"):
            await world.run(template=made)
    [run_id] = world.db.store.list_runs()

    result = await world.engine(hand_in, **NONE).resume(run_id)

    assert result.state is RunStatus.PAUSED
    assert not (tmp_path / "ran").exists()


async def test_a_repeated_set_up_reaches_where_packages_come_from_unless_hosts_are_listed(world: World) -> None:
    paused = await world.run(template=template(phase("spec", risk="high")))
    place = open_workspace(world.data_dir, str(paused.run_id))
    found = {}
    for network in (None, "deny", "allow", ("example.org",)):
        made = template("spec", sandbox={"network": network})
        history = SimpleNamespace(started_at=1, unsandboxed_by=None)
        scope: Any = SimpleNamespace(
            place=place,
            template=made,
            history=history,
            run=SimpleNamespace(forked_from=None),
            config=SimpleNamespace(data_dir=world.data_dir),
            find_sandbox=shell_module.probe_once,
        )
        opened = open_command_shell(scope, CommandKind.SETUP, {}).shell
        assert opened.sandbox is not None
        found[network] = (opened.sandbox.hosts, opened.has_network)

    assert found == {
        None: (PACKAGE_HOSTS, False),
        "deny": ((), False),
        "allow": ((), True),
        ("example.org",): (("example.org",), False),
    }


@pytest.mark.skipif(not any(probe.kind for probe in PROBES.values()), reason="no sandbox works on this machine")
async def test_a_set_up_that_fails_for_lack_of_something_names_the_line_that_gives_it(world: World) -> None:
    made = template("spec", setup=[["sh", "-c", "echo no login; exit 3"]])
    contained = await world.run(template=made)
    free = await world.run(template=template("spec", setup=made.model_dump()["setup"], sandbox={"setup": False}))

    assert contained.error is not None
    assert free.error is not None
    assert contained.error.message.endswith("exit code 3: no login")
    assert "`sandbox: {setup: false}` in the workflow, and a new run" in contained.error.hint
    assert "sandbox" not in free.error.hint
