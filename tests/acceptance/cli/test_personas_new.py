"""personas new: a coding agent of one's own is tried on a small task before its persona is written."""

from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command

from holdfast.persona import load_persona_file

WORKS = """#!/bin/sh
cat > /dev/null
mkdir -p .holdfast/results
echo '{"greeting": "hello"}' > .holdfast/results/hello.json
echo "$MY_VARIABLE"
"""
FORGETS = "#!/bin/sh\ncat > /dev/null\necho I did something else\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration folder."""
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config" / "holdfast.toml"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "holdfast.toml").touch()
    return tmp_path / "config"


def program(folder: Path, body: str, name: str = "my-agent") -> str:
    path = folder / name
    path.write_text(body)
    path.chmod(0o755)
    return str(path)


def test_one_that_does_the_task_is_written(holdfast: Command, folder: Path, tmp_path: Path) -> None:
    command = program(tmp_path, WORKS)
    made = holdfast("personas", "new", "mine", "--command", command, "--env", "MY_VARIABLE", "--json")

    file = folder / "personas" / "mine.yaml"
    assert made.code == 0, made.err
    assert made.json["is_written"]
    assert made.json["trial"]["is_passed"]
    persona = load_persona_file(file)
    assert (persona.argv, persona.env, persona.adapter) == ((command,), ("MY_VARIABLE",), None)
    again = holdfast("personas", "new", "mine", "--command", command)
    assert "is there already" in again.err


def test_one_that_does_not_is_not_written_and_says_why(holdfast: Command, folder: Path, tmp_path: Path) -> None:
    tried = holdfast("personas", "new", "mine", "--command", program(tmp_path, FORGETS))

    assert tried.code == 1
    assert "It did not do the task" in tried.out
    assert "I did something else" in tried.out
    assert not (folder / "personas").exists()


def test_a_known_program_gets_its_adapter(holdfast: Command, folder: Path, repo: Path) -> None:
    made = holdfast(
        *("personas", "new", "ours", "--command", "/opt/bin/claude --model opus", "--repo", str(repo), "--no-try")
    )
    plain = holdfast("personas", "new", "plain", "--command", "claude -p", "--adapter", "none", "--no-try")

    assert (made.code, plain.code) == (0, 0), made.err
    assert load_persona_file(repo / ".holdfast/personas/ours.yaml").adapter == "claude-code"
    assert load_persona_file(folder / "personas/plain.yaml").adapter is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("a/b", ["--command", "x"]),
        ("mine", ["--command", ""]),
        ("mine", ["--command", "x 'y"]),
        ("mine", ["--command", "x", "--adapter", "nobody"]),
        ("mine", ["--command", "x", "--env", "sk-ant-12345"]),
        ("mine", ["--command", "x", "--write", "relative"]),
        ("mine", ["--command", "x {nothing}"]),
    ],
)
def test_what_makes_no_persona_is_wrong_usage(holdfast: Command, folder: Path, name: str, arguments: list[str]) -> None:
    refused = holdfast("personas", "new", name, *arguments)

    assert refused.code == 2
    assert not (folder / "personas").exists()
