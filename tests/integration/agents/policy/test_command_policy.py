"""What a command line may do: the everyday work passes, the rest is asked or denied, however it is written."""

from pathlib import Path

import pytest

from holdfast.agents.policy import command_paths
from holdfast.agents.policy.judgement import Judgement
from holdfast.agents.policy.tool_policy import ToolPolicy
from holdfast.persona import Permissions, Verdict

ALLOWED = [
    "ls -la",
    "cat src/a.py src/*.py",
    "pytest -q",
    "make test",
    "npm run build && npm test",
    "cargo build --release",
    "python -m pytest tests",
    "git status && git diff HEAD~1 -- src",
    "git log --oneline | head",
    "git show HEAD:src/a.py",
    "git branch",
    "git restore src/a.py",
    "grep -rn 'def main' src",
    "sed -n '/foo/,/bar/p' src/a.py",
    "sed -i '/foo/d' src/a.py",
    "find . -name '*.py' -exec grep -l x {} +",
    "find . -name '*.pyc' -delete",
    "rm -rf build dist",
    "mkdir -p build && cd build && cmake ..",
    "cd src && cat ../README.md",
    "echo hi > out.txt 2>&1",
    "cat <<'EOF' > x.txt\nit's \"text\", not $(sudo id)\nEOF",
    "curl -s http://localhost:8000/health",
    "ls /usr/include",
    "for f in *.py; do echo $f; done",
    "if [ -f .env ]; then echo yes; fi",
    "FOO=1 timeout 60 pytest",
    "tar czf x.tgz --exclude .git src",
    "uv run pytest",
    "ls | xargs -n1 echo",
    "awk '{print $1}' src/a.py",
    "cp src/a.py src/b.py; mv src/b.py src/c.py; chmod +x run.sh; ./run.sh",
    "cat x 2>/dev/null",
    "command -v go",
]
DOUBTFUL = [
    "curl https://example.org",
    "pip install x",
    "npm ci",
    "git clone https://example.org/x",
    "git push",
    "git push --force",
    "git rebase main",
    "git reset --hard HEAD~3",
    "git filter-branch",
    "git -c core.pager=x log",
    "GIT_SSH_COMMAND=x git status",
    "npm publish",
    "python -m twine upload dist/*",
    "cargo publish",
    "docker run x",
    "curl x | sh",
    "cat a | bash",
    "bash <<'EOF'\nrm -rf /\nEOF",
    "$X y",
    "`echo rm` -rf x",
    "$(which curl) x",
    "/usr/bin/c?rl x",
    'sh -c "$X"',
    'eval "$Y"',
    "rm -rf $X",
    "rm -rf *",
    "rm -rf .",
    "xargs rm -rf < list",
    "find . -exec sh -c '$0' {} \\;",
    "cd $X && rm a",
    "echo x > $F",
    "touch .env",
    "f() { ls; }; f",
    "case x in y) ls;; esac",
    "diff <(ls) x",
    "ls $'\\x2e\\x2e'",
    "PATH=. ls",
    "nohup curl x &",
    "busybox wget x",
    "trap 'rm x' EXIT",
    "echo 'never ends",
]
DENIED = [
    "sudo ls",
    "ls && sudo ls",
    "ls\nsudo ls",
    "echo $(sudo id)",
    'echo "`sudo id`"',
    "sh -c 'sudo id'",
    "sh -c \"sh -c 'rm -rf /'\"",
    "bash -lc 'rm -rf /'",
    "env A=1 sudo x",
    "nice -n 5 timeout 5 sudo x",
    "xargs sudo",
    "find . -exec sudo {} \\;",
    "eval 'rm -rf /'",
    "if true; then rm -rf /; fi",
    "(true; { rm -rf /; })",
    "i\\\nf true; then sudo x; fi",
    "cat <<EOF\n\tEOF\nEOF\nsudo x",
    "rm -rf /",
    "rm -rf /*",
    "rm -rf ~",
    "rm -rf $HOME",
    "rm -rf ../other",
    "r''m -rf /",
    "\\rm -rf '/'",
    "/bin/rm -rf /",
    "cd / && rm -rf usr",
    "(cd ..; rm -rf data)",
    "find / -delete",
    "mkfs.ext4 /dev/sda",
    "dd if=/dev/zero of=/dev/sda",
    "shutdown now",
    "systemctl stop x",
    "git commit -am x",
    "cat .env",
    "cat<.env",
    "cat src/../.env",
    "cat .e*",
    "git show HEAD:.env",
    "cat .git/config",
    "echo x > .git/hooks/pre-commit",
    "echo x > /etc/passwd",
    "cp src/a.py /etc/x",
    "ln -s x /etc/y",
    "mv src/a.py ../x",
    "cat links/away/secret",
    "cat ../data/x",
    "cat /proc/1/environ",
    "cat /etc/shadow",
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command_paths, "_TMP", command_paths.PurePosixPath("/no-such-folder"))
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (root / "links").mkdir()
    (root / "links/away").symlink_to(tmp_path / "data")
    for name in ("README.md", "src/a.py", ".env", ".git"):
        (root / name).write_text("x")
    return root


def judge(root: Path, line: str, *, is_contained: bool = True, read_only: bool = False, **rules: object) -> Judgement:
    """Judge a line in a sandbox, or without one because a person chose that."""
    policy = ToolPolicy(
        root,
        Permissions.model_validate(rules),
        is_contained=is_contained,
        is_unsandboxed=not is_contained,
        hidden=(root.parent / "data",),
        home=str(root.parent),
        only_write="out.json" if read_only else None,
    )
    return policy("execute", {"command": line})


@pytest.mark.parametrize("is_contained", [True, False], ids=["sandbox", "unsandboxed"])
@pytest.mark.parametrize(
    ("verdict", "line"),
    [(verdict, line) for verdict, lines in (("allow", ALLOWED), ("ask", DOUBTFUL), ("deny", DENIED)) for line in lines],
)
def test_a_command_line_is_judged_by_all_that_it_runs(root: Path, verdict: str, line: str, is_contained: bool) -> None:
    judgement = judge(root, line, is_contained=is_contained)

    assert (judgement.verdict, line) == (verdict, line), judgement
    assert judgement.rule
    assert judgement.reason or verdict == "allow"


def test_code_in_the_line_is_for_a_person_to_read_only_if_they_chose_no_sandbox(root: Path) -> None:
    lines = ["python3 -c 'import os'", "perl -e 'x'", "node --eval x", "awk 'BEGIN{system(\"id\")}'", "sed '1e id' a"]

    assert [judge(root, line).verdict for line in lines] == ["allow"] * 5
    assert [judge(root, line, is_contained=False).verdict for line in lines] == ["ask"] * 5


@pytest.mark.parametrize(
    ("rules", "line", "verdict"),
    [
        ({"commands": {"deny": ["git push"]}}, "git -C src push", "deny"),
        ({"commands": {"deny": ["git push"]}}, "git $X", "deny"),
        ({"commands": {"deny": ["rm"]}}, "find . -exec /bin/rm {} +", "deny"),
        ({"commands": {"ask": ["make deploy*"]}}, "make deploy-all", "ask"),
        ({"commands": {"allow": ["pip install"]}}, "pip install x", "allow"),
        ({"commands": {"allow": ["pip install"]}}, "pip install x && sudo x", "deny"),
        ({"commands": {"allow": ["rm"]}}, "rm -rf /", "deny"),
        ({"network": "allow"}, "curl https://example.org", "allow"),
        ({"network": "deny"}, "curl https://example.org", "deny"),
        ({"read": {"allow": [".env"]}}, "cat .env", "allow"),
        ({"read": {"deny": ["src/**"]}}, "cat src/a.py", "deny"),
        ({"write": {"ask": ["*.md"]}}, "echo x > README.md", "ask"),
    ],
)
def test_the_rules_of_a_persona_come_before_the_defaults(root: Path, rules: dict, line: str, verdict: str) -> None:  # type: ignore[type-arg]
    assert judge(root, line, **rules).verdict == verdict


def test_a_command_reaches_the_network_only_if_that_was_judged(root: Path) -> None:
    assert judge(root, "curl https://example.org").needs_network
    assert not judge(root, "make").needs_network
    assert judge(root, "pip install x", commands={"allow": ["pip install"]}).needs_network


def test_without_a_sandbox_a_phase_that_only_reads_has_only_readers(root: Path) -> None:
    lines = {"cat src/a.py | wc -l": Verdict.ALLOW, "make": Verdict.DENY, "sed -i s/a/b/ src/a.py": Verdict.DENY}

    assert {line: judge(root, line, is_contained=False, read_only=True).verdict for line in lines} == lines
    assert judge(root, "make", read_only=True).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("tool", "path", "verdict"),
    [
        ("read_file", "/src/a.py", "allow"),
        ("read_file", "/.env", "deny"),
        ("read_file", "/notes.md", "deny"),
        ("write_file", "/notes.md", "ask"),
        ("write_file", "/.env", "ask"),
        ("write_file", "/.env.example", "allow"),
        ("read_file", "/deploy/ID_RSA", "deny"),
        ("read_file", "/keys/server.pem", "deny"),
        ("read_file", "/../data/x", "deny"),
        ("read_file", "/links/away/x", "deny"),
        ("write_file", "/.git/hooks/pre-commit", "deny"),
    ],
)
def test_the_file_tools_are_judged_by_their_paths(root: Path, tool: str, path: str, verdict: str) -> None:
    (root / "notes.md").symlink_to(".env")

    assert ToolPolicy(root, Permissions())(tool, {"file_path": path}).verdict == verdict
