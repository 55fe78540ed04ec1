"""The real coding agents against a fake of their provider: as shipped, killed in the middle, and continued.

`make agents-test` installs them and runs this in a network that has loopback alone.
"""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.agents.coding_agent.test_agent import invoke
from tests.integration.agents.coding_agent.test_continuation import command, kill, progress
from tests.integration.agents.tools.test_execute import abandon, until
from tests.support.agents.coding_agent_products import PRODUCTS, Product, read_version
from tests.support.agents.phase import Phase
from tests.support.provider_fakes import API_KEY, ProviderFake, Script

import holdfast.agents.tools.shell as shell_module
from holdfast.workspace import find_landlock

FOLDER = Path(os.environ["HOLDFAST_CODING_AGENTS"])
TWO = Script(["echo hello > a.txt; echo ran", "cat a.txt"], text="I wrote a.txt.")
HELD = Script(
    [
        "echo one >> log.txt",
        "touch started; while [ ! -e gate ]; do sleep 0.1; done; echo two >> log.txt",
        "echo three >> log.txt",
    ],
    text="I wrote log.txt.",
)
RESULTS = (b"tool_result", b"functionResponse", b"toolResult", b"function_call_output", b'"status":"completed"')
EDIT = Script(plain="I make it.\n\na.txt\n```\nhello\n```\n")


CONTINUED = [name for name in sorted(PRODUCTS) if PRODUCTS[name].can_continue]


@pytest.fixture
def product(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Product:
    found = PRODUCTS[request.param]
    program = found.find(FOLDER)
    if program is None:
        pytest.skip(f"{found.program} is not in {FOLDER}")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("holdfast.agents.coding_agent.output.EVERY_S", 0.2)
    print(f"{found.program} {read_version(program, home)}")
    return found


def open_fake(product: Product, script: Script, monkeypatch: pytest.MonkeyPatch) -> ProviderFake:
    fake = ProviderFake(script, key=API_KEY)
    for name, value in product.prepare(Path.home(), fake.url).items():
        monkeypatch.setenv(name, value)
    return fake


def is_stored(phase: Phase) -> bool:
    """Whether the agent has written down that its first command is done: some do so a moment later."""
    files = [path for path in phase.config.data_dir.glob("scratch/*/home-*/**/*") if path.is_file()]
    contents = [path.read_bytes() for path in files]
    stored = b"".join(content for content in contents if b"echo one" in content)
    return any(word in stored for word in RESULTS)


@pytest.mark.parametrize("product", sorted(PRODUCTS), indirect=True)
async def test_it_works_as_shipped(product: Product, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_fake(product, TWO if product.runs_commands else EDIT, monkeypatch):
        answer = await invoke(phase, product.to_persona(FOLDER), "Write a.txt.")

    assert (phase.root / "a.txt").read_text() == "hello\n"
    assert ("I wrote a.txt." if product.runs_commands else "I make it.") in answer
    assert sorted(phase.files()) == ["README.md", "a.txt", "rehearsal/add_greeting_command.md", "src/app.py"]
    [result] = [event.payload["result"] for event in phase.events() if event.kind == "tool.result"]
    if product.program != "cn":
        assert result["usage"]["input_tokens"] > 0
        assert result["usage"]["output_tokens"] > 0
        assert progress(phase, "tool")
    if product.can_continue:
        assert len(set(progress(phase, "session"))) == 1
    assert API_KEY not in str([event.payload for event in phase.events()])


@pytest.mark.parametrize("product", sorted(PRODUCTS), indirect=True)
async def test_it_works_where_there_is_landlock_alone(
    product: Product, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = find_landlock()
    if not probe.works:
        pytest.skip(probe.reason)
    monkeypatch.setattr(shell_module, "probe_once", lambda: probe)
    with open_fake(product, TWO if product.runs_commands else EDIT, monkeypatch):
        await invoke(phase, product.to_persona(FOLDER), "Write a.txt.")

    assert (phase.root / "a.txt").read_text() == "hello\n"


@pytest.mark.parametrize("victim", ["agent", "agent and engine"])
@pytest.mark.parametrize("product", CONTINUED, indirect=True)
async def test_it_is_continued_when_killed(
    product: Product, victim: str, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = product.to_persona(FOLDER)
    with open_fake(product, HELD, monkeypatch) as fake:
        task = asyncio.create_task(invoke(phase, who, "Write log.txt."))
        await until(lambda: (phase.root / "started").exists() or task.done())
        assert not task.done(), task.result()
        await until(lambda: progress(phase, "session"))
        await until(lambda: is_stored(phase))
        killed = command(phase)
        runner = []
        if victim == "agent and engine":
            await abandon(task)
            runner = [killed.runner.pid]
        kill(*runner, *killed.members)
        (phase.root / "gate").touch()
        answer = await (task if victim == "agent" else invoke(phase, who, "Write log.txt."))

    assert "I wrote log.txt." in answer
    lines = (phase.root / "log.txt").read_text().split()
    assert lines.count("one") == 1, "it did not begin anew"
    assert lines[-1] == "three"
    assert len(set(progress(phase, "session"))) == 1
    assert "Write log.txt." in str(fake.requests[-1][1]), "the model was sent the task of the session"
    [result] = [event.payload["result"] for event in phase.events() if event.kind == "tool.result"]
    assert "'continued': 1" in str(result)


@pytest.mark.parametrize("victim", ["agent", "agent and engine"])
@pytest.mark.parametrize("product", ["aider"], indirect=True)
async def test_one_without_commands_is_continued_when_killed_in_an_answer(
    product: Product, victim: str, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, gate = product.to_persona(FOLDER), threading.Event()
    with open_fake(product, replace(EDIT, holds=gate), monkeypatch) as fake:
        task = asyncio.create_task(invoke(phase, who, "Write a.txt."))
        await until(lambda: fake.requests or task.done())
        assert not task.done(), task.result()
        await until(lambda: progress(phase, "session"))
        history = "scratch/*/home-*/.aider/*.md"
        await until(lambda: any(b"Write a.txt." in path.read_bytes() for path in phase.config.data_dir.glob(history)))
        killed = command(phase)
        runner = []
        if victim == "agent and engine":
            await abandon(task)
            runner = [killed.runner.pid]
        kill(*runner, *killed.members)
        gate.set()
        answer = await (task if victim == "agent" else invoke(phase, who, "Write a.txt."))

    assert "I make it." in answer
    assert (phase.root / "a.txt").read_text() == "hello\n"
    assert len(set(progress(phase, "session"))) == 1
    assert "Write a.txt." in str(fake.requests[-1][1]), "the model was sent the task of the session"
    assert "You were interrupted" in str(fake.requests[-1][1])
    [result] = [event.payload["result"] for event in phase.events() if event.kind == "tool.result"]
    assert "'continued': 1" in str(result)
