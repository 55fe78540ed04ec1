"""Attempts to get out of the sandbox, run inside it whatever a policy would say, under each kind of sandbox.

Every attempt to read is made a second time outside, where it must succeed: what cannot find the canary anywhere proves
nothing. Every line ends with a sign that it ran to its end.
"""

import asyncio
import os
import platform
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.integration.agents.policy.test_escapes import CANARY, Cage
from tests.support.agents.phase import is_sleeping

from holdfast.agents.tools import shell as shell_module
from holdfast.agents.tools.shell import Shell
from holdfast.runtime.step import current_step
from holdfast.workspace import (
    CommandState,
    Outcome,
    ResourceLimits,
    SandboxKind,
    find_bubblewrap,
    find_landlock,
    write_tree,
)
from holdfast.workspace.commands.seccomp import JUDGED, REFUSED

PROBES = {SandboxKind.BUBBLEWRAP: find_bubblewrap(), SandboxKind.LANDLOCK: find_landlock()}
RAN = "ran-42"


class Surroundings(Cage):
    """A cage with everything around it that an attempt could find: keys, sockets, servers, processes, lost commits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in (".ssh/id_ed25519", ".pgpass", ".vault-token", ".config/rclone/rclone.conf", ".git-credentials"):
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(CANARY)
        self.repo.write(".env.local", CANARY)
        (self.data_dir / "spool/other").mkdir(parents=True)
        (self.data_dir / "spool/other/in").write_text(CANARY)
        self.shared = Path(f"/dev/shm/holdfast-{uuid4()}")
        self.shared.write_text(CANARY)
        self.in_tmp = folder / "in-tmp.txt"
        self.in_tmp.write_text(CANARY)
        self.socket = folder / "s"
        self.abstract = f"holdfast-{uuid4()}"
        self.servers = [
            _serve(socket.AF_UNIX, str(self.socket)),
            _serve(socket.AF_UNIX, f"\0{self.abstract}"),
            _serve(socket.AF_INET, ("127.0.0.1", 0)),
        ]
        self.port = self.servers[2].getsockname()[1]
        self.other = subprocess.Popen(["sleep", "600"], env={"SOME_API_KEY": CANARY}, cwd=self.home)
        self.step = 0
        self.names = {path.name for path in self.root.iterdir()}

    def make_history(self) -> None:
        """Let the repository hold a secret that was committed once, another branch, a stash and a remote's password."""
        self.repo.commit("with a secret", a_txt="zero\n", _env=CANARY)
        self.blob = self.repo.git("rev-parse", "HEAD:.env")
        (self.repo.path / ".env").unlink()
        super().make_history()
        self.repo.git("checkout", "-q", "-b", "other")
        self.repo.commit("elsewhere", notes_txt=f"see {CANARY}")
        self.repo.git("checkout", "-q", "main")
        self.repo.write("a.txt", CANARY)
        self.repo.git("stash")
        self.repo.git("remote", "add", "origin", f"https://user:{CANARY}@localhost/x.git")

    def tidy(self) -> None:
        """Remove what an attempt has left in the workspace."""
        for path in self.root.iterdir():
            if path.name not in self.names:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for path in (self.root / "src").iterdir():
            if path.name != "b.py":
                path.unlink()

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.other.kill()
        self.other.wait()
        self.shared.unlink()

    def fill(self, line: str) -> str:
        return line.format(
            repo=self.repo.path,
            home=self.home,
            data=self.data_dir,
            root=self.root,
            pid=self.other.pid,
            port=self.port,
            socket=self.socket,
            abstract=self.abstract,
            blob=self.blob,
            shared=self.shared,
            tmp=self.in_tmp,
            engine=os.getpid(),
        )

    def run_inside(self, line: str, **changes: Any) -> Outcome:
        shell = replace(self.shell(), **changes)
        self.step += 1
        return self._run(shell, f"(\n{line}\n)\necho {RAN}")

    def _run(self, shell: Shell, line: str) -> Outcome:
        token = current_step.set(("run-1", f"step-{self.step}"))
        try:
            return asyncio.run(shell.run(line, timeout_s=60))
        finally:
            current_step.reset(token)

    def run_outside(self, line: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "SOME_API_KEY": CANARY}
        done = subprocess.run(["/bin/sh", "-c", line], cwd=self.root, env=env, capture_output=True, check=False)
        self.tidy()
        return (done.stdout + done.stderr).decode(errors="replace")


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
                client.sendall(f"{CANARY}\n".encode())

    threading.Thread(target=answer, daemon=True).start()
    return server


@pytest.fixture(scope="module", params=list(PROBES), ids=lambda kind: kind.value)
def cage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    probe = PROBES[request.param]
    if not probe.works:
        pytest.skip(probe.reason)
    folder = tmp_path_factory.mktemp("cage")
    (folder / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell_module, "probe_once", lambda: probe)
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("SOME_API_KEY", CANARY)
        made = Surroundings(folder)
        yield made
        made.close()


def _python(code: str) -> str:
    """A line that runs a Python program; its own braces are doubled for `fill`."""
    return f"python3 -Ic '{code}'"


_CONNECT = "import socket; s=socket.socket(socket.{family}); s.connect({address}); print(s.recv(99).decode())"
READS = {
    # the user's home
    "variable": 'F=$HOME/.ssh/id_ed25519; cat "$F" {home}/.ssh/id_ed25519',
    "tilde of root": "cat ~/.ssh/id_ed25519 {home}/.ssh/id_rsa",
    "pgpass": "cat {home}/.pgpass",
    "vault": "cat {home}/.vault-token",
    "rclone": "cat {home}/.config/rclone/rclone.conf",
    "git credentials": "cat {home}/.git-credentials",
    "aws": "cat {home}/.aws/credentials",
    "glob": "cat {home}/.s*/*",
    "find": "find {home} -type f -exec cat {{}} +",
    "find from the root": (
        r"find / -xdev \( -path /usr -o -path /root -o -path /var -o -path /opt \) -prune"
        " -o -path {home}/.vault-token -exec cat {{}} ';' 2>&1; cat {home}/.vault-token"
    ),
    "tar": "tar cf - -C {home} .ssh | tr -d '\\000'",
    "tar checkpoint": "tar cf /dev/null a.txt --checkpoint=1 --checkpoint-action=exec='cat {home}/.netrc'",
    "isolated python": _python('print(open("{home}/.netrc").read())'),
    "python from standard input": "python3 - <<'X'\nprint(open('{home}/.npmrc').read())\nX",
    "here document": "sh <<X\ncat {home}/.netrc\nX",
    "perl": "perl -e 'open(F,\"{home}/.netrc\");print <F>'",
    "awk": "awk 1 {home}/.netrc",
    "sed": "sed -n p {home}/.netrc",
    "dd": "dd if={home}/.netrc status=none",
    "grep": "grep -r canary {home}",
    "base64": "base64 {home}/.netrc | base64 -d",
    "sort": "sort {home}/.netrc",
    "link made and used": "ln -sf {home}/.ssh keys; cat keys/id_rsa",
    "link of a link": "ln -sfn {home} one; ln -sfn one/.ssh two; cat two/id_rsa",
    "hard link": "ln -f {home}/.netrc hard 2>/dev/null; cat hard",
    "copy": "cp {home}/.netrc copied; cat copied",
    "dot dot": "cat ../../../home/.netrc",
    "change of folder": "cd {home} && cat .netrc",
    "read of the shell": 'while read -r line || [ -n "$line" ]; do echo "$line"; done < {home}/.netrc',
    "source": ". {home}/.netrc 2>&1",
    "git no index": "git diff --no-index /dev/null {home}/.netrc",
    "git hash": "git hash-object {home}/.netrc; cat {home}/.netrc",
    "compiler": "printf '#include \"{home}/.netrc\"\\n' | cc -E - 2>&1 || cat {home}/.netrc",
    "include of make": "printf '$(info $(file <{home}/.netrc))\\nall:\\n' | make -f - 2>/dev/null; cat {home}/.netrc",
    "environment of a shell": "ENV={home}/.netrc sh -ic : 2>&1; cat {home}/.netrc",
    # the checkout and our data
    "the checkout": "cat {repo}/.env.local",
    "the checkout by git": 'cat "$(git rev-parse --git-common-dir)/../.env.local" {repo}/.env.local',
    "the checkout by the git file": 'cat "$(sed "s/gitdir: //;s#/.git/.*##" .git)/.env.local" {repo}/.env.local',
    "the database": "cat {data}/holdfast.db",
    "the database by dot dot": "cat ../../holdfast.db",
    "another command": "cat {data}/spool/other/in",
    "all of our data": "cat {data}/spool/*/in {data}/*.db",
    # secrets in the workspace
    "the secret file": "cat .env",
    "its name in parts": "X=.en; cat ${{X}}v",
    "all files": "cat ./.* config/* 2>/dev/null",
    "moved first": "mv .env moved; cat moved; mv moved .env",
    "hard link to it": "ln .env linked; cat linked; rm -f linked",
    "moved deeper": "mv config/server.pem src/x; cat src/x; mv src/x config/server.pem",
    "folder moved": "mv config src/config; cat src/config/server.pem; mv src/config config",
    "appended and read": "cat config/server.pem; exec 3<> .env && cat <&3",
    # other processes
    "environment of a process": "tr '\\000' '\\n' < /proc/{pid}/environ",
    "environment of all": "cat /proc/[0-9]*/environ | tr '\\000' '\\n'",
    "folder of a process": "cat /proc/{pid}/cwd/.netrc",
    "root of a process": "cat /proc/{pid}/root{home}/.netrc",
    "memory of a process": _python(
        'import re;p="/proc/{pid}/";m=open(p+"mem","rb",0)\n'
        'for l in open(p+"maps"):\n'
        ' if "stack" in l:\n'
        '  a,b=[int(x,16) for x in l.split()[0].split("-")];m.seek(a);print(m.read(b-a).decode("latin-1"))'
    ),
    "the engine's variables": "tr '\\000' '\\n' < /proc/{pid}/environ; cat /proc/{engine}/environ",
    "shared memory": "cat {shared}",
    "temporary files": "cat {tmp}",
    # sockets
    "unix socket": _python(_CONNECT.format(family="AF_UNIX", address='"{socket}"')),
    "abstract socket": _python(_CONNECT.format(family="AF_UNIX", address='"\\0{abstract}"')),
    "loopback": _python(_CONNECT.format(family="AF_INET", address='("127.0.0.1",{port})')),
    "loopback by another name": _python(_CONNECT.format(family="AF_INET", address='("127.1.2.3",{port})'))
    + "; "
    + _python(_CONNECT.format(family="AF_INET", address='("localhost",{port})')),
    "loopback in IPv6 clothes": _python(_CONNECT.format(family="AF_INET6", address='("::ffff:127.0.0.1",{port})')),
    "device of bash": "bash -c 'cat < /dev/tcp/127.0.0.1/{port}'",
    "curl": "http_proxy= curl -s --http0.9 -m 5 http://localhost:{port}/ --output -",
    "background child": "(setsid cat {home}/.netrc &) ; sleep 0.2",
    "other shell": "env -i /bin/bash -c 'cat {home}/.netrc'",
    "link raced": (
        "mkdir -p race; for i in 1 2 3 4 5 6 7 8; do ln -sfn {home} race/x; cat race/x/.netrc 2>/dev/null; "
        "ln -sfn src race/x; done"
    ),
}
HISTORY = {
    "log with patches": "git log -p --all",
    "log of one file": "git log -p -- .env; git log --all -p",
    "show": "git show HEAD~1:.env",
    "object by its id": "git cat-file blob {blob}",
    "object without replacement": "git --no-replace-objects cat-file -p {blob}",
    "all objects": "git cat-file --batch-all-objects --batch",
    "reachable objects": "git rev-list --objects --all | cut -c1-40 | git cat-file --batch",
    "other branch": "git show other:notes.txt",
    "stash": "git stash show -p",
    "grep in all commits": "git grep canary $(git rev-list --all)",
    "export": "git fast-export --all",
    "remotes": "git remote -v",
    "settings": "git config -l",
    "settings as a file": "cat {repo}/.git/config",
    "the repository itself": "git --git-dir={repo}/.git show other:notes.txt",
    "its objects as alternates": "GIT_ALTERNATE_OBJECT_DIRECTORIES={repo}/.git/objects git cat-file -p {blob}",
    "objects by hand": _python(
        'import zlib,glob\nfor f in glob.glob("{repo}/.git/objects/??/*"):\n print(zlib.decompress(open(f,"rb").read()))'  # noqa: E501
    ),
    "clone": "git clone -q {repo} /tmp/cloned-$$ 2>&1; git -C /tmp/cloned-$$ log -p --all; rm -rf /tmp/cloned-$$",
    "a worktree of it": "git -C {repo} log -p --all",
    "diff of a blob": "git diff {blob} HEAD:a.txt",
}
WRITES = {
    "home": "echo x > {home}/new",
    "sort": "sort -o {home}/new a.txt",
    "append": "echo x >> {home}/.netrc",
    "bashrc": "tee {home}/.bashrc < a.txt",
    "authorized keys": "mkdir -p {home}/.ssh; cp a.txt {home}/.ssh/authorized_keys",
    "python": _python('open("{home}/new","w")'),
    "perl": "perl -e 'open(F,\">{home}/new\")'",
    "by a link": "ln -sfn {home} out; touch out/new; echo x > out/.netrc",
    "moved out": "cp a.txt moved.txt; mv moved.txt {home}/moved.txt",
    "hard link out": "ln a.txt {home}/linked",
    "removed": "rm -rf {home}/.ssh",
    "emptied": "truncate -s 0 {home}/.netrc",
    "emptied by the call": _python('import os; os.truncate("{home}/.netrc", 0)'),
    "checkout": "echo x > {repo}/a.txt",
    "checkout by git": "git -C {repo} checkout -q -b evil",
    "hook": "echo x > {repo}/.git/hooks/post-commit",
    "git config": "git config core.fsmonitor 'touch {home}/hooked'",
    "own git file": "rm -f .git; mkdir -p .git; echo x > .git/config",
    "own git file as a link": "ln -sfn {home} .git",
    "a part file as a link": "ln -sfn {home}/new .git.holdfast-part; rm -f .git; echo x > .git",
    "commit": "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x",
    "reference": "git update-ref refs/heads/main HEAD~0; git branch evil",
    "database": "echo x > {data}/holdfast.db",
    "another workspace": "mkdir -p {data}/worktrees/other && echo x > {data}/worktrees/other/x",
    "spool": "echo x > {data}/spool/other/in; rm -rf {data}/spool/other",
    "etc": "echo x > /etc/holdfast-test",
    "cron": "mkdir -p /var/spool/cron; echo x > /var/spool/cron/holdfast-test",
    "usr": "touch /usr/local/bin/holdfast-test",
    "mount": "mount -t tmpfs none {home}",
    "namespace": "unshare -Urm sh -c 'mount --bind {root} {home}'",
    "chroot": "unshare -r chroot / touch {home}/new",
    "shared memory": "echo x > {shared}",
    "temporary files": "echo x > {tmp}",
    "killed": "kill -9 {pid}; kill -STOP {pid}",
    "traced": _python("import ctypes;l=ctypes.CDLL(None);print(l.ptrace(16,{pid},0,0))") + "; kill -STOP {pid}",
}


@pytest.mark.parametrize("name", [*READS, *HISTORY])
def test_nothing_is_seen(cage: Surroundings, name: str) -> None:
    line = cage.fill({**READS, **HISTORY}[name])

    outcome = cage.run_inside(line)

    assert RAN in outcome.output
    assert CANARY not in outcome.output
    for path in cage.root.iterdir():
        if path.is_file() and not path.is_symlink() and path.name not in cage.names:
            assert CANARY not in path.read_text(errors="replace"), path
    cage.tidy()
    assert CANARY in cage.run_outside(line), "the attempt finds nothing outside either, so it proves nothing"


def _look_around(cage: Surroundings) -> Any:
    """Return the content of all that an attempt must leave alone."""
    files = {
        str(path): path.read_bytes() if path.is_file() else None
        for folder in (cage.home, cage.repo.path, cage.data_dir / "spool/other")
        for path in sorted(folder.rglob("*"))
    }
    git_file = cage.root / ".git"
    own = git_file.read_text() if git_file.is_file() and not git_file.is_symlink() else None
    database = (cage.data_dir / "holdfast.db").read_text()
    others = cage.shared.read_text(), cage.in_tmp.read_text(), sorted(cage.data_dir.glob("worktrees/*"))
    process = cage.other.poll(), Path(f"/proc/{cage.other.pid}/stat").read_text().split()[2]
    return files, database, own, others, process


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_changed(cage: Surroundings, name: str) -> None:
    before = _look_around(cage)

    outcome = cage.run_inside(cage.fill(WRITES[name]))

    assert RAN in outcome.output
    assert _look_around(cage) == before
    for place in ("/etc/holdfast-test", "/var/spool/cron/holdfast-test", "/usr/local/bin/holdfast-test"):
        assert not Path(place).exists()
    cage.tidy()


_HARMLESS_OUTSIDE = (
    *("home", "sort", "append", "bashrc", "python", "by a link", "moved out", "hard link out", "removed", "emptied"),
    *("emptied by the call", "checkout", "checkout by git", "hook", "own git file", "database", "another workspace"),
    *("spool", "shared memory", "temporary files", "killed", "reference", "commit"),
)


@pytest.mark.parametrize("name", _HARMLESS_OUTSIDE)
def test_outside_the_same_attempt_changes_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    free = Surroundings(tmp_path)
    try:
        before = _look_around(free)
        subprocess.run(["/bin/sh", "-c", free.fill(WRITES[name])], cwd=free.root, capture_output=True, check=False)
        if name == "killed":
            free.other.wait(10)
        else:
            assert _look_around(free) != before
    finally:
        free.close()


WORKS = {
    "git status --short a.txt; git log --oneline | wc -l": "2",
    "git blame -s a.txt | cut -c1-1 | wc -l": "1",
    "git show --stat HEAD | grep -c a.txt": "1",
    "git diff HEAD~1 --stat | grep -c a.txt": "1",
    'python3 -c \'import json, subprocess; print(subprocess.check_output(["echo", "7"]).decode())\'': "7",
    "cd src && echo 1 > made && cat made && rm made": "1",
    "echo 2 > $TMPDIR/x && cat $TMPDIR/x": "2",
    "echo 3 > ~/x && cat ~/x": "3",
    "echo 4 | (read x; echo $x)": "4",
    "bash -c 'cat <(echo 5)'": "5",
    "mkdir -p src/d && echo 6 > src/d/f && mv src/d/f src/g && cat src/g && rm -r src/d src/g": "6",
    "chmod +x a.txt; chmod -x a.txt; date +%Y >/dev/null; echo 8": "8",
    "sh -c 'sleep 300 & kill $!; wait; echo 9'": "9",
    "env | grep -c HOLDFAST_AGENT_COMMAND=1": "1",
}


@pytest.mark.parametrize("line", WORKS)
def test_what_work_needs_is_there(cage: Surroundings, line: str) -> None:
    outcome = cage.run_inside(line)

    assert outcome.output.split() == [WORKS[line], RAN]


LINGERING = {
    "session": "setsid sleep 9431 &",
    "no variables": "env -i setsid sleep 9431 >/dev/null 2>&1 &",
    "no hang-up": "(trap '' HUP TERM INT; nohup setsid sleep 9431 >/dev/null 2>&1 &)",
    "forked twice": _python(
        'import os\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  os.execvp("sleep",["sleep","9431"])\n os._exit(0)'  # noqa: E501
    ),
    "deaf": "(trap '' TERM; env -i setsid sh -c 'trap \"\" TERM; sleep 9431' &)",
}


@pytest.mark.parametrize("name", LINGERING)
def test_nothing_outlives_its_command(cage: Surroundings, name: str) -> None:
    outcome = cage.run_inside(LINGERING[name])

    assert outcome.output.endswith(f"{RAN}\n")
    assert outcome.state is CommandState.EXITED
    assert not is_sleeping("9431")


_MB = 1024**2
BOMBS: dict[str, tuple[str, dict[str, int]]] = {
    "processes": (
        _python("import os,time\nfor _ in range(9): os.fork()\ntime.sleep(300)"),
        {"processes": 100},
    ),
    "memory": (
        "for i in 1 2 3 4; do " + _python("import time; x=bytearray(120<<20); time.sleep(300)") + " & done; wait",
        {"memory": 300 * _MB},
    ),
    "processor": ("while :; do :; done", {"cpu_s": 1}),
    "disk": ("exec yes > src/big", {"file_size": 10 * _MB}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_bounded_and_the_outcome_says_so(cage: Surroundings, name: str) -> None:
    line, limits = BOMBS[name]
    sandbox = cage.shell().sandbox
    assert sandbox is not None
    cage.step += 1

    outcome = cage._run(replace(cage.shell(), sandbox=replace(sandbox, limits=ResourceLimits(**limits))), line)

    word = {"disk": "file"}.get(name, name)
    assert word in outcome.limit, outcome
    assert outcome.exit_code
    cage.tidy()


def test_one_process_gets_no_more_memory_than_all(cage: Surroundings) -> None:
    sandbox = cage.shell().sandbox
    assert sandbox is not None

    outcome = cage.run_inside(
        _python("x=bytearray(900<<20); print(len(x))"),
        sandbox=replace(sandbox, limits=ResourceLimits(memory=300 * _MB)),
    )

    assert "MemoryError" in outcome.output


def test_a_phase_that_only_reads_cannot_write(cage: Surroundings) -> None:
    before = write_tree(cage.workspace).tree_id

    outcome = cage.run_inside(
        "touch new.txt; rm -f a.txt; echo x > src/b.py", sandbox=cage.shell(is_read_only=True).sandbox
    )

    assert RAN in outcome.output
    assert write_tree(cage.workspace).tree_id == before


def test_settings_of_the_kernel_cannot_be_written(cage: Surroundings) -> None:
    """Writes what is there already: whoever is root would change the whole machine with anything else."""
    path = "/proc/sys/kernel/core_pattern"

    outcome = cage.run_inside(f'old=$(cat {path}) && echo "$old" > {path} && echo written')

    assert "written" not in outcome.output


def test_calls_that_lead_out_are_refused_by_the_kernel(cage: Surroundings) -> None:
    """Each by its number, past every library: answered with "not permitted" before the kernel looks at anything."""
    numbers = {**REFUSED[platform.machine()], "clone in a new user namespace": JUDGED[platform.machine()]["clone"]}
    flags = {numbers["clone in a new user namespace"]: 0x10000000 | 17}
    calls = ", ".join(f'("{name}", {number}, {flags.get(number, 0)})' for name, number in numbers.items())
    code = (
        f"import ctypes; l = ctypes.CDLL(None, use_errno=True); calls = [{calls}]\n"
        "for name, number, first in calls:\n"
        "  answer = l.syscall(ctypes.c_long(number), ctypes.c_long(first), 0, 0, 0, 0, 0)\n"
        "  if answer == 0 or ctypes.get_errno() != 1: print(name, answer, ctypes.get_errno())\n"
        "print(len(calls))"
    )

    outcome = cage.run_inside(_python(code))

    assert outcome.output.split() == [str(len(numbers)), RAN]


def test_a_call_of_another_architecture_is_no_way_around(cage: Surroundings) -> None:
    if platform.machine() != "x86_64":
        return
    code = "import ctypes; print(ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39)))"

    outcome = cage.run_inside(_python(code))

    assert outcome.output.split()[-1] == RAN
    assert "Bad system call" in outcome.output


_FAMILIES = {1: "unix", 2: "inet", 10: "inet6", 16: "netlink", 17: "packet", 31: "bluetooth", 38: "alg", 40: "vsock"}


def test_sockets_are_those_that_the_sandbox_has(cage: Surroundings) -> None:
    """In a network namespace of its own a command may have its loopback; without one it has no socket at all."""
    code = (
        "import socket\n"
        f"for family in {list(_FAMILIES)}:\n"
        "  try:\n"
        "    socket.socket(family, socket.SOCK_STREAM if family < 16 else socket.SOCK_RAW).close()\n"
        "    print(family)\n"
        "  except OSError: pass\n"
        "socket.socketpair()"
    )

    *found, last = cage.run_inside(_python(code)).output.split()

    assert last == RAN
    is_landlock = shell_module.probe_once().kind is SandboxKind.LANDLOCK
    assert [_FAMILIES[int(word)] for word in found] == ([] if is_landlock else ["unix", "inet", "inet6", "netlink"])
