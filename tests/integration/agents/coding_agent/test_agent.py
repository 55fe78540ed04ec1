"""A command-line coding agent as a persona: it gets the envelope, works in the workspace, and is found again."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.tools.test_execute import abandon, until
from tests.support.agents.phase import LANE, Phase, open_log

from holdfast.agents.build import build_agent
from holdfast.agents.image_blocks import to_content
from holdfast.agents.tools.rules import command_rules
from holdfast.agents.tools.shell import open_shell
from holdfast.enums import Backend
from holdfast.errors import AgentFailed, BackendUnavailable
from holdfast.images import ImageLabel
from holdfast.persona import AgentPersona

KEY = f"{LANE}/x0"


def persona(*argv: str, **fields: Any) -> AgentPersona:
    defaults = {"name": "tool", "version": 1, "backend": Backend.COMMAND, "capabilities": ["code_write"], "argv": argv}
    return AgentPersona.model_validate({**defaults, **fields})


def script(body: str) -> AgentPersona:
    return persona("/bin/sh", "-c", body, system_prompt="Be brief.")


async def invoke(phase: Phase, who: AgentPersona, text: Any = "Do it.", **services: Any) -> str:
    async with open_log(phase.store) as log:
        shell = services.pop("shell", None) or open_shell(phase.root, data_dir=phase.config.data_dir)
        journal = phase.middleware(log, rules=command_rules(shell.spool_dir), shell=shell, **services)
        agent = build_agent(who, phase.config, root_dir=phase.root, middleware=[journal])
        try:
            result = await agent.ainvoke({"messages": [{"role": "user", "content": text}]})
        finally:
            await journal.drain(0.1)
    return str(result["messages"][-1].content)


async def test_an_image_is_a_file_that_the_sandbox_can_read(phase: Phase) -> None:
    label = ImageLabel("a" * 64, "image/png", 3, "shot.png")

    async def read_image(digest: str) -> bytes:
        return b"PNG" if digest == label.digest else b""

    who = persona("sh", "-c", "cat > task.txt; cp \"$(sed -n 's/^- image .*: //p' task.txt)\" copy.png")
    await invoke(phase, who, to_content("Look at it.", [label]), read_image=read_image)

    assert "[image shot.png (PNG, 3 B)]" in (phase.root / "task.txt").read_text()
    assert (phase.root / "copy.png").read_bytes() == b"PNG"


async def test_the_envelope_comes_on_standard_input_and_the_workspace_is_the_folder(phase: Phase) -> None:
    said = await invoke(phase, script("cat > got.txt; pwd; echo done"))

    assert (phase.root / "got.txt").read_text() == "Be brief.\n\nDo it."
    assert said == f"{phase.root}\ndone\n"


async def test_the_envelope_as_a_file_lies_outside_the_workspace(phase: Phase) -> None:
    who = persona("/bin/sh", "-c", 'cat "$0"; echo "$1 $2"', "{envelope_file}", "{workspace}", "{model}", model="m-1")

    said = await invoke(phase, who)

    assert said == f"Do it.{phase.root} m-1\n"
    assert not [name for name in phase.files() if "envelope" in name]


async def test_a_second_time_it_is_replayed_not_run(phase: Phase) -> None:
    first = await invoke(phase, script("echo x >> log; cat log"))
    again = await invoke(phase, script("echo x >> log; cat log"))

    assert first == again == "x\n"
    assert [event.payload["caller"] for event in phase.events() if event.kind == "tool.started"] == ["engine"]
    assert (phase.root / "log").read_text() == "x\n"


async def test_its_output_is_told_while_it_runs(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.agents.coding_agent.output.EVERY_S", 0.02)
    task = asyncio.create_task(invoke(phase, script("echo first; while [ ! -e gate ]; do sleep 0.02; done; echo last")))
    await until(lambda: [e for e in phase.events() if e.kind == "text.delta"] if os.path.exists(phase.store) else [])
    (phase.root / "gate").touch()
    await task

    pieces = [event for event in phase.events() if event.kind == "text.delta"]
    assert "".join(event.payload["text"] for event in pieces) == "first\nlast\n"
    assert {event.payload["key"] for event in pieces} == {KEY}


async def test_one_that_outlived_its_engine_is_found_again(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.agents.coding_agent.output.EVERY_S", 0.02)
    body = "echo start >> log; echo first; touch begun; while [ ! -e gate ]; do sleep 0.02; done; echo last"
    task = asyncio.create_task(invoke(phase, script(body)))
    await until((phase.root / "begun").exists)
    await until(lambda: [e for e in phase.events() if e.kind == "text.delta"])
    await abandon(task)
    (phase.root / "gate").touch()

    said = await invoke(phase, script(body))

    assert said == "first\nlast\n"
    assert (phase.root / "log").read_text() == "start\n"
    text = "".join(event.payload["text"] for event in phase.events() if event.kind == "text.delta")
    assert text == "first\nlast\n", "what was told before is not told again"


async def test_a_bad_end_is_an_error_with_the_last_words(phase: Phase) -> None:
    with pytest.raises(AgentFailed, match="exit code 7; its last words: no account") as caught:
        await invoke(phase, script("echo working; echo 'no account'; exit 7"))

    assert caught.value.facts["output"] == "working\nno account\n"
    assert [event.kind for event in phase.events() if event.payload.get("key") == KEY][-1] == "tool.error"


async def test_it_gets_the_variable_that_the_persona_names_and_no_other(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_KEY", "planted-key-of-the-tool")
    monkeypatch.setenv("OTHER_KEY", "planted-key-of-another")
    who = persona("/bin/sh", "-c", "env > seen.txt; echo key: $TOOL_KEY", api_key_env="TOOL_KEY")

    said = await invoke(phase, who)

    seen = (phase.root / "seen.txt").read_text()
    assert "planted-key-of-the-tool" in seen
    assert "planted-key-of-another" not in seen
    assert "planted" not in said, "what it prints is scrubbed"
    assert "planted" not in str([event.payload for event in phase.events()])
    spool = b"".join(path.read_bytes() for path in (phase.config.data_dir / "spool").rglob("command.json"))
    assert b"planted" not in spool


def test_a_missing_command_or_key_is_said_before_anything_runs(phase: Phase) -> None:
    with pytest.raises(BackendUnavailable, match="not installed"):
        build_agent(persona("no-such-agent"), phase.config, root_dir=phase.root)
    with pytest.raises(BackendUnavailable, match="NO_SUCH_KEY"):
        build_agent(persona("/bin/sh", api_key_env="NO_SUCH_KEY"), phase.config, root_dir=Path(phase.root))
