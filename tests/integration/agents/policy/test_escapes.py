"""Attempts to get out of the workspace. Each must fail twice: by the policy, and in the sandbox if it got past that.

`CANARY` stands for what must not be seen, and the user's repository, git's data and the machine for what must not
change.
"""

import asyncio
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.phase import is_sleeping
from tests.support.user_repository import UserRepo

from holdfast.agents.policy.tool_policy import ToolPolicy
from holdfast.agents.tools.files import WholeFileBackend
from holdfast.agents.tools.shell import Shell, open_shell, probe_once
from holdfast.persona import Permissions, Verdict
from holdfast.runtime.step import current_step
from holdfast.workspace import Outcome, Workspace, prepare_workspace, snapshot, write_tree

CANARY = "canary-5c1f"
needs_sandbox = pytest.mark.skipif(not probe_once().works, reason=probe_once().reason)


class Cage:
    """A run's workspace with secrets all around it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.data_dir = folder / "data"
        self.repo = UserRepo(folder / "repo")
        self.repo.path.mkdir()
        self.repo.git("init", "-q", "-b", "main")
        self.make_history()
        self.workspace: Workspace = prepare_workspace(self.repo.path, data_dir=self.data_dir, run_id="run-1")
        self.root = self.workspace.root
        for name in (".ssh/id_rsa", ".aws/credentials", ".npmrc", ".netrc", ".claude/token", ".bash_history"):
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(CANARY)
        (self.data_dir / "holdfast.db").write_text(CANARY)
        (self.root / ".env").write_text(CANARY)
        (self.root / "config").mkdir()
        (self.root / "config/server.pem").write_text(CANARY)
        (self.root / "away").symlink_to(self.home)

    def make_history(self) -> None:
        self.repo.commit("first", a_txt="one\n", src__b_py="print(1)\n")

    @property
    def policy(self) -> ToolPolicy:
        hidden = (self.data_dir, self.repo.path)
        return ToolPolicy(self.root, Permissions(), is_contained=True, hidden=hidden, home=str(self.home))

    def shell(self, **options: Any) -> Shell:
        return open_shell(self.root, data_dir=self.data_dir, workspace=self.workspace, **options)

    def run(self, line: str, **changes: Any) -> Outcome:
        """Run a line in the sandbox, whatever the policy would say."""
        shell = replace(self.shell(), **changes)
        token = current_step.set(("run-1", line))
        try:
            return asyncio.run(shell.run(line, timeout_s=30))
        finally:
            current_step.reset(token)

    def state(self) -> Any:
        index = (self.workspace.git_dir / "index").read_bytes()
        return self.repo.state(), (self.root / ".git").read_text(), index, sorted(self.repo.path.rglob("*"))

    def fill(self, line: str) -> str:
        return line.format(repo=self.repo.path, home=self.home, data=self.data_dir, root=self.root, pid=os.getpid())


@pytest.fixture
def cage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cage:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    return Cage(tmp_path)


READS = [
    "cat .env",
    "cat ./config/../.env",
    "cat < .env",
    "cat .en? config/*.pem",
    "head -c 100 {root}/.env",
    "cat away/.ssh/id_rsa",
    "cat ~/.ssh/id_rsa",
    "cat $HOME/.aws/credentials",
    "cat {home}/.npmrc {home}/.netrc",
    "cat {home}/.claude/token",
    "cat ../../../home/.ssh/id_rsa",
    "cat {data}/holdfast.db",
    "sh -c 'cat .env'",
    "echo $(cat .env)",
    "echo `cat .env`",
    "find . -name .env -exec cat {{}} +; cat .env",
    "cat /proc/{pid}/environ",
    "cp .env copy.txt && cat copy.txt",
    "ln -s {home}/.ssh here && cat here/id_rsa",
]
# What no reading of the line can see; only the sandbox is left.
HIDDEN_READS = [
    "X=.en; cat ${{X}}v",
    "F=$(printf '.e%s' nv); cat $F",
    "grep -rh canary . ; tar cf - . | tr -d '\\0'",
    "python3 -c \"import os;print(open('.'+'env').read(), open(os.path.expanduser('~/.ssh/id_rsa')).read())\"",
    "env; set; for f in /proc/[0-9]*/environ; do cat $f; done",
    "cat {home}/.s*/*",
]
WRITES = [
    "echo x > {repo}/a.txt",
    "echo x > ../../../repo/a.txt",
    "rm -rf {repo}/src",
    "cp a.txt {repo}/.git/config",
    "echo x > {repo}/.git/hooks/post-commit",
    "echo x >> .git",
    "rm .git",
    "mv .git gone",
    "mkdir -p .git/hooks",
    "git commit --allow-empty -m x",
    "git add -A",
    "git config core.hooksPath /nowhere",
    "git update-ref refs/heads/main HEAD~1",
    "git branch -D main",
    "git -C {repo} checkout -b evil",
    "git --git-dir={repo}/.git update-ref -d refs/heads/main",
    "touch away/new",
    "tee {home}/.profile < a.txt",
    "dd if=a.txt of={home}/.bashrc",
    "sed -i s/one/two/ {repo}/a.txt",
    "ln -sf /etc/passwd {repo}/a.txt",
    "echo x > {data}/holdfast.db",
    "echo x > /etc/holdfast-test",
]
HIDDEN_WRITES = [
    "D={repo}; echo x > $D/new.txt; rm -rf $D/src",
    "python3 -c \"open('{repo}/a.txt', 'w'); open('{home}/.profile', 'w')\"",
    "sh -c 'cd /; for d in {repo}/.git; do rm -rf $d/refs; done'",
]


@pytest.mark.parametrize("line", [*READS, *WRITES])
def test_the_policy_lets_none_of_them_pass(cage: Cage, line: str) -> None:
    judgement = cage.policy("execute", {"command": cage.fill(line)})

    assert judgement.verdict is not Verdict.ALLOW, judgement


@needs_sandbox
@pytest.mark.parametrize("line", [*READS, *HIDDEN_READS])
def test_in_the_sandbox_there_is_nothing_to_see(cage: Cage, line: str) -> None:
    outcome = cage.run(cage.fill(line))

    assert CANARY not in outcome.output
    assert CANARY not in "".join(path.read_text() for path in cage.root.glob("*.txt"))


@needs_sandbox
@pytest.mark.parametrize("line", [*WRITES, *HIDDEN_WRITES])
def test_in_the_sandbox_there_is_nothing_to_change(cage: Cage, line: str) -> None:
    before = cage.state(), sorted(cage.home.rglob("*")), (cage.data_dir / "holdfast.db").read_text()

    cage.run(cage.fill(line))

    assert (cage.state(), sorted(cage.home.rglob("*")), (cage.data_dir / "holdfast.db").read_text()) == before
    assert not Path("/etc/holdfast-test").exists()


@needs_sandbox
def test_a_background_process_does_not_stay(cage: Cage) -> None:
    outcome = cage.run("(trap '' HUP TERM; setsid nohup sleep 543 >/dev/null 2>&1 &) ; echo left")

    assert outcome.output == "left\n"
    assert not is_sleeping("543")


@needs_sandbox
@pytest.mark.parametrize("has_network", [False, True])
def test_the_network_is_there_only_if_it_was_granted(cage: Cage, has_network: bool) -> None:
    interfaces = cage.run("tail -n +3 /proc/net/dev | cut -d: -f1", has_network=has_network).output.split()

    here = [line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    assert sorted(interfaces) == (sorted(here) if has_network else ["lo"])


@needs_sandbox
def test_a_phase_that_only_reads_cannot_write_by_commands_either(cage: Cage) -> None:
    before = write_tree(cage.workspace).tree_id
    shell = cage.shell(is_read_only=True)

    outcome = cage.run("touch new.txt; rm -f a.txt; echo x > /tmp/scratch && cat /tmp/scratch", sandbox=shell.sandbox)

    assert outcome.output.endswith("x\n")
    assert write_tree(cage.workspace).tree_id == before


@needs_sandbox
def test_what_a_persona_may_read_is_there(cage: Cage) -> None:
    shell = cage.shell(is_secret_allowed=lambda path: path.name == ".env")

    outcome = cage.run("cat .env config/server.pem", is_secret_allowed=shell.is_secret_allowed)

    assert outcome.output.startswith(CANARY)
    assert outcome.output.count(CANARY) == 1, "the other one is masked"


def test_a_hook_in_the_worktree_is_not_run_by_the_engine(cage: Cage) -> None:
    """With husky and its like the hooks' folder is in the worktree, where an agent may write."""
    (cage.root / ".husky").mkdir()
    hook = cage.root / ".husky/post-commit"
    hook.write_text(f"#!/bin/sh\ntouch {cage.home}/hooked\n")
    hook.chmod(0o755)
    for name in ("pre-commit", "reference-transaction", "post-index-change"):
        hook.with_name(name).hardlink_to(hook)
    cage.repo.git("config", "core.hooksPath", str(cage.root / ".husky"))

    snapshot(cage.workspace, "spec", 1, at=datetime(2026, 1, 1, tzinfo=UTC), message="x")

    assert not (cage.home / "hooked").exists()


@pytest.mark.parametrize("path", ["/../../../home/.npmrc", "away/.npmrc", "/away/.npmrc", "~/.npmrc", ".env", "/.git"])
def test_the_file_tools_do_not_lead_out(cage: Cage, path: str) -> None:
    for tool in ("read_file", "ls", "grep", "glob"):
        argument = "file_path" if tool == "read_file" else "path"
        assert cage.policy(tool, {argument: path, "pattern": "x"}).verdict is Verdict.DENY


def test_a_path_of_the_machine_means_one_in_the_workspace(cage: Cage) -> None:
    backend = WholeFileBackend(cage.root, staging_dir=cage.data_dir / "staged")

    backend.write(f"{cage.home}/.npmrc", "mine")

    assert (cage.home / ".npmrc").read_text() == CANARY
    assert (cage.root / str(cage.home).lstrip("/") / ".npmrc").read_text() == "mine"


def test_a_search_over_everything_does_not_show_what_is_in_secret_files(cage: Cage) -> None:
    backend = WholeFileBackend(cage.root, staging_dir=cage.data_dir / "staged")
    (cage.root / "notes.md").write_text(f"see {CANARY}")

    found = backend.grep(CANARY)

    assert [match["path"] for match in found.matches or ()] == ["/notes.md"]
