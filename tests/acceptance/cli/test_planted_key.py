"""A model server that tells everyone the key it was given: no command shows it, and no file of ours holds it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.model_server import WITH_KEY, ModelServer, Refuses, Reply, Says, asks, own_persona
from tests.support.terminal import shell

KEY = "own-key-73ba21cc90"
ARTIFACT = {
    "runId": "00000000-0000-4000-8000-000000000000",
    "requirements": "Numbers are added.",
    "acceptance_criteria": ["1 + 1 is 2"],
    "approach": "Change the sign in calc.py.",
    "risks": [],
}


def write(phase: str) -> Reply:
    content = json.dumps(ARTIFACT | {"phaseKey": phase, "risks": [f"The key {KEY} is known."]})
    return asks(
        ("write_file", {"file_path": f"/.holdfast/results/{phase}.json", "content": content}),
        ("grep", {"pattern": KEY, "path": "/"}),
        text=f"I was given {KEY}, and write that down.",
    )


@contextmanager
def telling(environment: dict[str, str], first: Reply) -> Iterator[ModelServer]:
    """A server that does this first, then works and says its key all the while."""
    draft = [[first, write("draft")], Says(f"Done with {KEY}.", reasoning=f"{KEY} it is.", piece_chars=5)]
    with ModelServer({"You do phase `draft`": draft, "": [write("final"), Says(f"Done. {KEY}")]}) as server:
        personas = Path(environment["XDG_CONFIG_HOME"]) / "holdfast" / "personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(own_persona(server.address, "spec_write", WITH_KEY))
        yield server


def run(repo: Path, environment: dict[str, str], flag: str) -> subprocess.CompletedProcess[str]:
    words = (flag, "run", "small", "--repo", str(repo), "--persona", "author=mine", "--requirements", "Add", "--yes")
    return shell(*words, env={**environment, "MY_MODEL_KEY": KEY})


def assert_nowhere(environment: dict[str, str], done: subprocess.CompletedProcess[str]) -> None:
    texts = {"standard output": done.stdout, "standard error": done.stderr}
    (listed,) = json.loads(shell("runs", "list", "--json", env=environment).stdout)
    for words in (
        ("runs", "show"),
        ("runs", "events"),
        ("runs", "events", "--json"),
        ("runs", "logs"),
        ("runs", "diff"),
    ):
        result = shell(*words, listed["run_id"], env=environment)
        assert result.returncode == 0
        texts[" ".join(words)] = result.stdout + result.stderr
    deltas = [json.loads(line) for line in texts["runs events --json"].splitlines()]
    texts["the live text"] = "".join(str(event["payload"].get("text", "")) for event in deltas)
    for name, text in texts.items():
        assert KEY not in text, name
    for path in Path(environment["HOLDFAST_DATA_DIR"]).rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("flag", ["--verbose", "--log-json"])
def test_a_model_that_says_the_key_is_not_quoted(repo: Path, environment: dict[str, str], flag: str) -> None:
    busy = Refuses(429, {"retry-after": "0"}, message=f"the key {KEY} is busy", code=KEY)
    with telling(environment, busy) as server:
        done = run(repo, environment, flag)

    assert done.returncode == 0, done.stderr
    assert "chat/completions" in done.stderr  # the log is there
    assert [received.headers["authorization"] for received in server.received] == [f"Bearer {KEY}"] * 5
    assert len(list(Path(environment["HOLDFAST_DATA_DIR"]).glob("reports/*/final-report.*"))) == 2
    assert_nowhere(environment, done)


@pytest.mark.parametrize("flag", ["--verbose", "--log-json"])
def test_an_error_that_quotes_the_key_is_told_without_it(repo: Path, environment: dict[str, str], flag: str) -> None:
    with telling(environment, Refuses(401, message=f"wrong key: {KEY}", code=KEY)):
        done = run(repo, environment, flag)

    assert done.returncode == 3
    assert "wrong key" in done.stdout + done.stderr
    assert_nowhere(environment, done)
