"""Where no sandbox is in force a person is asked about everything but exact forms that show files of the workspace.

The attempts are lines that got past a reading of the shell once, or may; none of them may run unasked.
"""

import os
from pathlib import Path

import pytest

from holdfast.agents.policy.judgement import Judgement
from holdfast.agents.policy.tool_policy import ToolPolicy
from holdfast.persona import Permissions, Verdict

FORMS = [
    "pwd",
    "ls",
    "ls -la",
    "ls -l src",
    "ls -1 src/a.py",
    " ls ",
    "cat src/a.py",
    "cat -n src/a.py README.md",
    "cat ./src/a.py\n",
    "cat {root}/src/a.py",
    "head -5 src/a.py",
    "head -n 5 src/a.py",
    "tail -c 100 README.md",
    "wc -l src/a.py README.md",
    "cat inner-link",
    "git status",
    "git status -s -b",
    "git status --porcelain",
    "git diff --stat",
    "git diff --name-only",
    "git diff --cached --name-status",
    "git diff src/a.py",
    "git diff -- src/a.py README.md",
    "git log --oneline -5",
    "git log -n 3",
    "git branch",
    "git branch --show-current",
    "git ls-files",
    "git rev-parse HEAD",
]
VARIABLES = [
    'F=$HOME/.ssh/id_ed25519; cat "$F"',
    "F={home}/.ssh/id_rsa; cat $F",
    "cat ${{HOME}}/.ssh/id_rsa",
    "X=.en; cat ${{X}}v",
    "set -- {home}/.ssh/id_rsa; cat $1",
    'read F < list; cat "$F"',
    "cat $F",
    "cat src/$F",
    "cd ~; cat .ssh/id_rsa",
    "HOME=/ ls",
    "A=1 cat src/a.py",
    "PATH=.:$PATH cat src/a.py",
    "LD_PRELOAD=./x.so ls",
    "export PATH=.; ls",
    'IFS=/; cat $"x"',
    "cat ~/.ssh/id_rsa",
    "cat ~root/.ssh/id_rsa",
    "cat `echo .env`",
    "cat $(printf '.e%s' nv)",
    "cat $((1))",
]
LINKS = [
    "ln -s {home}/.ssh here && cat here/id_rsa",
    "ln -s / r; cat r/etc/shadow",
    "cat away/.ssh/id_rsa",
    "cat tracked-link",
    "ls away",
    "ls -l away/",
    "cat src/../away/.npmrc",
    "cat ../../etc/passwd",
    "cat /etc/passwd",
    "cat //etc/passwd",
    "ls /",
    "ls ..",
    "ls -la {home}",
    "cat .git",
    "cat .git/config",
    "cat .env",
    "cat config/server.pem",
    "head -n 5 .env",
    "wc -l .env README.md",
    "tail -f src/a.py",
    "cat fifo",
    "cat src",
    "cat missing.txt",
    "cp -rL away stolen",
    "readlink -f away",
]
CODE = [
    "python3 -Ic 'print(1)'",
    "python3 -c 'print(1)'",
    "python3 src/a.py",
    "python3 <<'EOF'\nprint(1)\nEOF",
    "python3 -m http.server",
    "sh run.sh",
    "./run.sh",
    "bash -c ls",
    "bash <<< ls",
    "sh -s < run.sh",
    "perl -e 1",
    "ruby -e 1",
    "node -e 1",
    "php -r 1",
    "lua x.lua",
    "tclsh x",
    "awk 'BEGIN{{system(\"id\")}}'",
    "awk -f prog.awk README.md",
    "gawk '@load \"filefuncs\"'",
    "sed -n 'w /tmp/x' README.md",
    "sed -n '1e id' README.md",
    "sed -n s/a/b/w/x README.md",
    "make",
    "make test",
    "npm test",
    "pytest",
    "cargo build",
    "go generate ./...",
    "cmake .",
    "gcc -o x x.c",
    "ed README.md",
    "ex -c '!id' README.md",
    "vim -c ':!id' README.md",
    "emacs --batch --eval '(shell-command \"id\")'",
    "less README.md",
    "more README.md",
    "man ls",
    "man -P id ls",
    "gdb -batch -ex 'shell id'",
    "busybox ls",
    "eval ls",
    "exec ls",
    "command ls",
    ". ./run.sh",
    "source run.sh",
    "trap 'id' EXIT",
    "alias ls=id",
    "ls() {{ id; }}; ls",
]
TOOLS_THAT_RUN_OR_WRITE = [
    "tar cf x.tar --checkpoint=1 --checkpoint-action=exec=id src",
    "tar xf x.tar -C /",
    "tar --to-command=id -xf x.tar",
    "tar -I id -cf x src",
    "zip x.zip src -T -TT id",
    "find . -delete",
    "find . -name '*.py' -delete",
    "find . -exec id ;",
    "find . -execdir id +",
    "find . -fprintf out %p",
    "find . -fls out",
    "find src -type f",
    "xargs id < list",
    "ls | xargs rm",
    "sort -o {home}/new README.md",
    "sort --compress-program=id README.md",
    "uniq README.md out",
    "tee {home}/x",
    "tee out < README.md",
    "dd if=README.md of=out",
    "split README.md",
    "split --filter=id README.md",
    "csplit README.md 1",
    "install README.md out",
    "rsync -e id README.md x:y",
    "rsync README.md out",
    "cp README.md out",
    "mv README.md out",
    "rm README.md",
    "rm -rf src",
    "truncate -s 0 README.md",
    "touch x",
    "mkdir x",
    "chmod 777 README.md",
    "ln README.md y",
    "patch -p1 < x.diff",
    "shred README.md",
    "env",
    "env ls",
    "printenv",
    "ps aux",
    "ps e",
    "kill 1",
    "timeout 5 ls",
    "nice ls",
    "nohup ls",
    "time ls",
    "stdbuf -o0 ls",
    "env -i setsid sh -c 'sleep 99' &",
    "setsid sleep 99",
    "sleep 99 &",
    "ls &",
    "watch ls",
    "script -c id",
    "parallel ls ::: x",
    "flock x ls",
    "grep -r key .",
    "grep -f .env README.md",
    "rg --pre id x",
    "diff <(cat .env) x",
    "comm -3 .env README.md",
    "file -m x README.md",
    "xxd .env",
    "base64 .env",
    "od -c .env",
    "strings .env",
    "jq . .env",
    "openssl enc -in .env",
    "column .env",
]
NETWORK = [
    "curl http://localhost:1",
    "http_proxy=http://localhost:1 curl localhost",
    "wget localhost",
    "nc -l 1",
    "ssh x",
    "scp README.md x:",
    "cat < /dev/tcp/localhost/1",
    "pip install x",
    "npm ci",
    "socat - UNIX-CONNECT:/var/run/docker.sock",
    "docker run -v /:/x alpine",
    "cat /proc/{pid}/environ",
    "cat /proc/self/environ",
    "holdfast budget RUN --add 50",
    "holdfast token create --role admin",
    "holdfast approve 12345678",
]
GIT = [
    "git -c alias.x='!id' x",
    "git -c core.pager=id log",
    "git -c core.fsmonitor=id status",
    "git -C src status",
    "git -C {home} status",
    "git --git-dir=/x status",
    "git --no-pager log",
    "git --paginate log",
    "git --exec-path=. status",
    "git config alias.status '!id'",
    "git config core.hooksPath .",
    "git config --get user.name",
    "git diff --ext-diff",
    "git diff --output=x",
    "git diff --textconv",
    "git diff --no-index /etc/passwd README.md",
    "git diff",
    "git diff --cached",
    "git diff HEAD",
    "git diff main",
    "git diff .env",
    "git diff -- .env",
    "git diff -- src",
    "git diff -- :/",
    "git diff -- '*'",
    "git diff --",
    "git diff away",
    "git log -p",
    "git log --all",
    "git log -S key",
    "git log --output=x",
    "git log HEAD -- .env",
    "git show HEAD",
    "git show HEAD:.env",
    "git cat-file -p HEAD:.env",
    "git grep key",
    "git grep -O id x",
    "git archive HEAD",
    "git blame src/a.py",
    "git stash",
    "git checkout -- .",
    "git restore src/a.py",
    "git apply x.diff",
    "git clean -fdx",
    "git reset --hard",
    "git branch new",
    "git branch -D main",
    "git branch -m a b",
    "git rev-parse --git-common-dir",
    "git rev-parse HEAD .env",
    "git ls-files -o",
    "git ls-files --with-tree=HEAD",
    "git status --porcelain=v2",
    "git status -- .env",
    "git help -a",
    "git bisect run id",
    "git rebase -x id HEAD",
    "git submodule foreach id",
    "git difftool -x id",
    "git fetch",
    "git push",
    "git worktree list",
    "git instaweb",
    "git status; id",
    "git",
]
SHELL_TRICKS = [
    "ls; id",
    "ls && id",
    "ls || id",
    "ls | cat",
    "ls\nid",
    "ls \n id",
    "ls\r\nid",
    "ls\tsrc",
    "ls\x00id",
    "ls\x0bid",
    "ls #x",
    "ls > out",
    "ls >> out",
    "ls 2>&1",
    "cat < README.md",
    "cat <<EOF\n$(id)\nEOF",
    "cat <<< x",
    "cat README.md > {home}/x",
    "(ls)",
    "{{ ls; }}",
    "! ls",
    "if true; then ls; fi",
    "for f in *; do cat $f; done",
    "while :; do ls; done",
    "case x in x) id;; esac",
    "cat *",
    "cat src/*.py",
    "cat .e?v",
    "cat .[e]nv",
    "cat {{.env,README.md}}",
    "cat s'rc/a.py'",
    'cat "src/a.py"',
    "cat src\\/a.py",
    "c\\at src/a.py",
    "'cat' src/a.py",
    "c''at src/a.py",
    "/bin/cat src/a.py",
    "./cat src/a.py",
    "bin/ls",
    "LS",
    "ｃat src/a.py",
    "cat src\u2044a.py",
    "cat\u00a0src/a.py",
    "cat src/a.py\u2028id",
    "cat \u202esrc/a.py",
    "сat src/a.py",
    "ls -Z",
    "ls --color=always",
    "ls -L away",
    "ls --hyperlink",
    "cat --help",
    "cat -",
    "cat",
    "cat -- src/a.py",
    "head --bytes=5 src/a.py",
    "head -n -5 src/a.py",
    "tail --pid=1 -f src/a.py",
    "wc --files0-from=.env",
    "wc",
    "pwd -P x",
    "cd src",
    "cd src && ls",
    "pushd src",
    "echo x",
    "true",
    "ls " + "src " * 4000 + "; id",
    "",
    " ",
    "ls -la -- src",
    "test -f .env",
    "[ -f .env ]",
    "ls !$",
    "ls =id",
    "cat src/a.py:1",
]
ATTEMPTS = [*VARIABLES, *LINKS, *CODE, *TOOLS_THAT_RUN_OR_WRITE, *NETWORK, *GIT, *SHELL_TRICKS]


class Place:
    """A workspace with what must not be shown in it and around it, and no sandbox."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.home = folder / "home"
        for name in ("src", "config", "bin"):
            (self.root / name).mkdir(parents=True)
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh/id_rsa").write_text("key")
        names = ("src/a.py", "README.md", "run.sh", ".env", "config/server.pem", ".git", "cat", "bin/ls", "list")
        for name in names:
            (self.root / name).write_text("x\n")
        os.mkfifo(self.root / "fifo")
        for name, target in (("away", self.home), ("tracked-link", ".env"), ("inner-link", "README.md")):
            (self.root / name).symlink_to(target)

    def judge(self, line: str, **rules: object) -> Judgement:
        policy = ToolPolicy(self.root, Permissions.model_validate(rules), home=str(self.home))
        return policy("execute", {"command": line})

    def fill(self, line: str) -> str:
        return line.format(root=self.root, home=self.home, pid=os.getpid())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_there_are_enough_attempts() -> None:
    assert len(set(ATTEMPTS)) == len(ATTEMPTS) >= 200


@pytest.mark.parametrize("line", FORMS)
def test_a_plain_look_at_the_workspace_runs_unasked(place: Place, line: str) -> None:
    judgement = place.judge(place.fill(line))

    assert (judgement.verdict, judgement.rule) == (Verdict.ALLOW, "read-only form"), judgement


@pytest.mark.parametrize("line", ATTEMPTS)
def test_nothing_else_runs_unasked(place: Place, line: str) -> None:
    judgement = place.judge(place.fill(line))

    assert judgement.verdict in (Verdict.ASK, Verdict.DENY), judgement
    assert judgement.reason


def test_the_reason_is_that_there_is_no_sandbox(place: Place) -> None:
    plain, pushing = place.judge("make"), place.judge("git push")

    assert plain.rule == pushing.rule == "no-sandbox"
    assert plain.reason.startswith("no sandbox is in force on this machine, so")
    assert "git push publishes commits" in pushing.reason


def test_what_is_denied_stays_denied(place: Place) -> None:
    assert place.judge("sudo id").verdict is Verdict.DENY
    assert place.judge("rm -rf /").verdict is Verdict.DENY


def test_a_persona_cannot_open_what_the_missing_sandbox_closed(place: Place) -> None:
    rules = {"commands": {"allow": ["make", "git push", "ls"]}, "network": "allow"}

    assert [place.judge(line, **rules).verdict for line in ("make", "git push", "ls")] == ["ask", "ask", "allow"]


def test_a_persona_can_close_a_form(place: Place) -> None:
    rules = {"commands": {"ask": ["git"], "deny": ["ls"]}, "read": {"deny": ["src/**"]}}

    verdicts = [place.judge(line, **rules).verdict for line in ("git status", "ls", "cat src/a.py")]
    assert verdicts == ["ask", "deny", "deny"]


def test_the_whole_difference_is_shown_only_where_no_file_looks_like_a_secret(place: Place) -> None:
    for name in (".env", "config/server.pem"):
        (place.root / name).unlink()

    assert place.judge("git diff").verdict is Verdict.ALLOW


def test_git_is_asked_about_where_a_folder_could_pose_as_a_repository(place: Place) -> None:
    """In a folder below the worktree's top git would take the agent's own files HEAD and config for a repository."""
    (place.root / ".git").unlink()

    assert place.judge("git status").verdict is Verdict.ASK


@pytest.mark.parametrize("entry", ["", ".", "bin", "{root}/bin", "{home}/link"])
def test_programs_of_the_agent_are_not_found_under_a_harmless_name(
    place: Place, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    (place.home / "link").symlink_to(place.root / "bin")
    monkeypatch.setenv("PATH", f"/usr/bin:{place.fill(entry)}")

    assert place.judge("ls").verdict is Verdict.ASK


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({}, "ask"),
        ({"is_contained": True}, "allow"),
        ({"is_unsandboxed": True}, "allow"),
        ({"is_contained": True, "is_switched_off": True}, "ask"),
        ({"is_unsandboxed": True, "is_switched_off": True}, "allow"),
    ],
)
def test_a_coding_agent_needs_a_sandbox_or_a_person(place: Place, options: dict[str, bool], verdict: str) -> None:
    policy = ToolPolicy(place.root, Permissions(), **options)  # type: ignore[arg-type]

    judgement = policy("agent", {"argv": ["claude", "-p"], "model": "", "envelope": "0"})

    assert judgement.verdict == verdict
    assert verdict == "allow" or "claude could do all that you can" in judgement.reason
