"""A persona whose key only workers have: named on the machine that leaves a run to them, on Postgres."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.postgres_server import fresh_schema

KEY = "KEY_OF_WORKERS"
PERSONA = f"""
name: worker-writer
version: 1
backend: openai_compatible
model: any
base_url: http://127.0.0.1:9/v1
api_key_env: {KEY}
capabilities: [spec_write]
"""
NAMED = ("--persona", "author=worker-writer")


@pytest.fixture
def shared(holdfast: Command, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    personas = tmp_path / "config" / "holdfast" / "personas"
    personas.mkdir(parents=True)
    (personas / "worker-writer.yaml").write_text(PERSONA)
    for name in (KEY, "OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with fresh_schema(postgres_url) as url:
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
        yield


@pytest.mark.usefixtures("shared")
def test_a_persona_that_is_named_needs_no_key_where_a_run_is_left_to_workers(holdfast: Command, repo: Path) -> None:
    words = ("run", "small", "--repo", str(repo), "--requirements", "Add numbers")

    unnamed = holdfast(*words, "--detach")
    assert (unnamed.code, "persona_ineligible: Nobody is ready" in unnamed.err) == (1, True)
    assert "Or name a persona for workers that have its key: --persona author=NAME." in unnamed.err
    here = holdfast(*words, *NAMED)
    assert (here.code, f"{KEY} is not set" in here.err, "for workers" in here.err) == (1, True, False)

    made = holdfast(*words, *NAMED, "--detach", "--json")
    assert made.code == 0, made.err
    run_id = made.json["run_id"]
    forked = holdfast("fork", run_id, "draft", *NAMED, "--detach", "--json")
    assert forked.code == 0, forked.err
    scheduled = holdfast(
        *("schedule", "add", "nightly", "small", "--cron", "30 2 * * *", "--repo", str(repo)),
        *("--requirements", "Add numbers", *NAMED),
    )
    assert scheduled.code == 0, scheduled.err
    assert holdfast("schedule", "run", "nightly").code == 0


def test_on_one_machine_a_key_that_is_missing_is_missing_for_whoever_drives(
    holdfast: Command, repo: Path, tmp_path: Path
) -> None:
    personas = tmp_path / "config" / "holdfast" / "personas"
    personas.mkdir(parents=True)
    (personas / "worker-writer.yaml").write_text(PERSONA)

    done = holdfast("run", "small", "--repo", str(repo), "--requirements", "x", *NAMED, "--detach")

    assert (done.code, f"{KEY} is not set" in done.err, "for workers" in done.err) == (1, True, False)
