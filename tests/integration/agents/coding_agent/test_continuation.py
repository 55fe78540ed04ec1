"""A known coding agent that is killed is continued in its session, whoever killed it and whoever died with it."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.coding_agent.test_agent import KEY, invoke
from tests.integration.agents.tools.test_execute import abandon
from tests.support.agents.phase import RUN_ID, Phase
from tests.support.agents.stand_in_agent import make_agent
from tests.support.progress_limit import until

from holdfast.agents.coding_agent import agent as agent_module
from holdfast.errors import AgentFailed
from holdfast.runtime.step import Stopped, Suspended, idempotency_key
from holdfast.workspace import remove_spooled, spool_folder, stop_spooled
from holdfast.workspace.commands.spool_watch import Spooled, read_spooled

HANGS_AT_FIRST = """
begin; use m1 make
if [ -z "$resumed" ]; then trap '' TERM; touch begun; while :; do sleep 0.02; done; fi
finish 'all done'
"""
DIES_AT_FIRST = "begin; use m1 make; [ -n \"$resumed\" ] || kill -9 $$; use m2 test; finish 'all done'\n"
SPOOL_KEY = idempotency_key(RUN_ID, KEY)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr("holdfast.agents.coding_agent.output.EVERY_S", 0.02)
    return folder


def starts(phase: Phase) -> list[str]:
    return (phase.root / "starts.txt").read_text().splitlines()


def command(phase: Phase) -> Spooled:
    found = read_spooled(spool_folder(phase.config.data_dir / "spool", SPOOL_KEY))
    assert found is not None
    return found


def result(phase: Phase) -> dict[str, Any]:
    [found] = [event.payload["result"] for event in phase.events() if event.kind == "tool.result"]
    return dict(found)


def progress(phase: Phase, field: str) -> list[Any]:
    found = [event.payload for event in phase.events() if event.kind == "agent.progress"]
    return [payload[field] for payload in found if field in payload]


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("adapter", ["claude-code", "codex"])
async def test_one_that_dies_is_continued_on_the_files_as_they_are(phase: Phase, tmp_path: Path, adapter: str) -> None:
    body = DIES_AT_FIRST.replace("use m1 make; ", "echo half > half.txt; ").replace("use m2 test; ", "cat half.txt; ")
    answer = await invoke(phase, make_agent(tmp_path, body, adapter=adapter), "Build it.")

    assert answer == "all done"
    assert starts(phase) == ["start", "start again"]
    assert (phase.root / "task.txt").read_text() == "Build it."
    assert "You were interrupted" in (phase.root / "task1.txt").read_text()
    assert "'continued': 1" in str(result(phase))
    assert len(set(progress(phase, "session"))) == 1


async def test_what_both_parts_used_is_counted(phase: Phase, tmp_path: Path) -> None:
    await invoke(phase, make_agent(tmp_path, DIES_AT_FIRST))

    assert result(phase)["usage"] == {"input_tokens": 400, "output_tokens": 80, "cost_micros": 500_000}


async def test_one_that_is_killed_while_it_ignores_signals_is_continued(phase: Phase, tmp_path: Path) -> None:
    task = asyncio.create_task(invoke(phase, make_agent(tmp_path, HANGS_AT_FIRST)))
    await until((phase.root / "begun").exists)
    kill(*command(phase).members)

    assert await task == "all done"
    assert starts(phase) == ["start", "start again"]


async def test_when_everything_was_killed_nobody_is_asked(phase: Phase, tmp_path: Path) -> None:
    who = make_agent(tmp_path, HANGS_AT_FIRST)
    task = asyncio.create_task(invoke(phase, who))
    await until((phase.root / "begun").exists)
    killed = command(phase)
    await abandon(task)
    kill(killed.runner.pid, *killed.members)

    assert await invoke(phase, who) == "all done"
    assert starts(phase) == ["start", "start again"]
    text = "".join(event.payload["text"] for event in phase.events() if event.kind == "text.delta")
    assert text.count("▸ Bash make") == 2, "once for each part: nothing is lost, nothing is said again"


async def test_one_whose_command_was_forgotten_goes_on_in_the_session_that_it_has(phase: Phase, tmp_path: Path) -> None:
    body = HANGS_AT_FIRST.replace('[ -z "$resumed" ]', "[ ! -e begun ]")
    who = make_agent(tmp_path, body, on_lost="rerun")
    task = asyncio.create_task(invoke(phase, who))
    await until((phase.root / "begun").exists)
    await abandon(task)
    await stop_spooled(SPOOL_KEY, spool_dir=phase.config.data_dir / "spool", grace_s=0)
    remove_spooled(SPOOL_KEY, spool_dir=phase.config.data_dir / "spool")

    assert await invoke(phase, who) == "all done"
    assert starts(phase) == ["start", "start again"]
    assert len(set(progress(phase, "session"))) == 1


async def test_without_a_stored_session_a_person_is_asked(phase: Phase, tmp_path: Path) -> None:
    who = make_agent(tmp_path, HANGS_AT_FIRST.replace("begin;", ""))
    task = asyncio.create_task(invoke(phase, who))
    await until((phase.root / "begun").exists)
    killed = command(phase)
    await abandon(task)
    kill(killed.runner.pid, *killed.members)

    with pytest.raises(Suspended):
        await invoke(phase, who)
    assert starts(phase) == ["start"]


async def test_without_a_stored_session_one_that_dies_has_failed(phase: Phase, tmp_path: Path) -> None:
    with pytest.raises(AgentFailed, match="exit code 137"):
        await invoke(phase, make_agent(tmp_path, "kill -9 $$", adapter="codex"))

    assert starts(phase) == ["start"]


async def test_one_that_dies_each_time_is_given_up(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "MAX_PARTS", 2)
    with pytest.raises(AgentFailed, match="exit code 137"):
        await invoke(phase, make_agent(tmp_path, "begin; kill -9 $$"))

    assert starts(phase) == ["start", "start again", "start again"]


async def test_a_process_that_dies_between_two_parts_counts_nothing_twice(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Stopped(RuntimeError())

    who = make_agent(tmp_path, DIES_AT_FIRST)
    with monkeypatch.context() as dying:
        dying.setattr(agent_module, "remove_spooled", die)
        with pytest.raises(Stopped):
            await invoke(phase, who)
    assert starts(phase) == ["start"]

    assert await invoke(phase, who) == "all done"
    assert starts(phase) == ["start", "start again"]
    assert result(phase)["usage"]["input_tokens"] == 400


async def test_one_that_is_stopped_is_not_continued(phase: Phase, tmp_path: Path) -> None:
    task = asyncio.create_task(invoke(phase, make_agent(tmp_path, HANGS_AT_FIRST)))
    await until((phase.root / "begun").exists)
    await stop_spooled(SPOOL_KEY, spool_dir=phase.config.data_dir / "spool")

    with pytest.raises(AgentFailed, match="was stopped"):
        await task
    assert starts(phase) == ["start"]
