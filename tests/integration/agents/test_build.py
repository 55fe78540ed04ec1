"""What `build_agent` gives: only known tools, guarded everywhere, and a clear refusal otherwise."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from tests.support.agents.phase import LANE, Phase, essence, open_log
from tests.support.agents.scripted_model import ScriptedModel, asks, says, tool

from holdfast.agents.build import _subagents_of, _tools_of, build_agent
from holdfast.agents.calls.provider_errors import classify_error
from holdfast.agents.simulated.model import open_simulated_model
from holdfast.enums import Backend, Capability
from holdfast.errors import ConfigInvalid, PersonaInvalid
from holdfast.persona import AgentPersona, Permissions, Subagent
from holdfast.runtime.run_fold.todo_log import TodoLog

LIGHT = [
    "holdfast.agents",
    "holdfast.agents.build",
    "holdfast.agents.envelope",
    "holdfast.agents.framework",
    *(f"holdfast.agents.calls.{name}" for name in ("gate", "in_flight", "lane_keys", "rate_limits", "retries")),
    "holdfast.agents.calls.stall_detector",
    *(f"holdfast.agents.coding_agent.{name}" for name in ("output", "sandbox", "usage")),
    *(f"holdfast.agents.simulated.{name}" for name in ("conversation", "faults", "products", "turns", "script")),
    "holdfast.agents.models.factory",
    "holdfast.agents.redaction",
    "holdfast.agents.policy.command_policy",
    "holdfast.agents.policy.file_policy",
    "holdfast.agents.tools.shell",
    "holdfast.agents.policy.tool_policy",
    "holdfast.agents.tools.rules",
    "holdfast.persona",
    "holdfast.binding",
    "holdfast.workflow",
    "holdfast.catalog",
]


def test_the_light_modules_do_not_import_the_framework() -> None:
    code = f"import sys, {', '.join(LIGHT)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    heavy = ("langchain", "langchain_core", "langgraph", "deepagents", "langsmith")
    assert [name for name in loaded if name.partition(".")[0] in heavy] == []


FILES = {"ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep"}


async def test_the_agent_has_the_file_tools_and_one_guarded_subagent(phase: Phase) -> None:
    async with open_log(phase.store) as log:
        agent = phase.agent(phase.middleware(log))

    helpers = _subagents_of(agent)
    assert set(_tools_of(agent)) == {*FILES, "execute", "task"}
    own = {name: set(_tools_of(helper.graph)) for name, helper in helpers.items()}
    assert own == {"general-purpose": {*FILES, "execute"}}


async def test_a_persona_without_a_shell_has_no_commands(phase: Phase) -> None:
    persona = phase.persona.model_copy(update={"capabilities": (Capability.CODE_WRITE,)})

    agent = build_agent(persona, phase.config, root_dir=phase.root)

    assert set(_tools_of(agent)) == {*FILES, "task"}


async def test_a_persona_brings_its_own_subagents_with_no_more_tools_than_it_has(phase: Phase) -> None:
    own = [
        Subagent(name="searcher", description="Finds code.", system_prompt="Search.", tools=("grep", "execute")),
        Subagent(name="writer", description="Writes.", model="rehearsal-2"),
    ]
    persona = phase.persona.model_copy(update={"subagents": tuple(own), "capabilities": (Capability.CODE_WRITE,)})
    async with open_log(phase.store) as log:
        agent = build_agent(persona, phase.config, root_dir=phase.root, middleware=[phase.middleware(log)])

    helpers = _subagents_of(agent)
    assert {name: set(_tools_of(helper.graph)) for name, helper in helpers.items()} == {
        "general-purpose": FILES,
        "searcher": {"grep", "read_file"},
        "writer": FILES,
    }


async def test_a_subagent_works_with_its_own_instructions_in_a_lane_of_its_own(phase: Phase) -> None:
    class Delegating(ScriptedModel):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            if "You are the searcher." in str(messages[0].content):
                return ChatResult(generations=[ChatGeneration(message=says("found"))])
            return super()._generate(messages)

    class PhaseWithSearcher(Phase):
        @property
        def persona(self) -> AgentPersona:
            helper = Subagent(name="searcher", description="Finds code.", system_prompt="You are the searcher.")
            return super().persona.model_copy(update={"subagents": (helper,)})

    own = PhaseWithSearcher(phase.folder)
    task = {"description": "Find it.", "subagent_type": "searcher"}

    messages = await own.play(build={"model": Delegating(script=[asks(("task", task)), says("done")])})
    again = await own.play(build={"model": Delegating(script=[])})

    assert [message.content for message in messages[-2:]] == ["found", "done"]
    assert [message.content for message in again[-2:]] == ["found", "done"]
    assert {event.lane_id for event in phase.events()} == {LANE, f"{LANE}/m0.t0"}


async def test_a_to_do_list_is_a_tool_call_that_people_can_read_from_the_journal(phase: Phase) -> None:
    class PhaseWithTodos(Phase):
        @property
        def persona(self) -> AgentPersona:
            permissions = Permissions(tools=("read_file", "write_todos"))
            return super().persona.model_copy(update={"permissions": permissions})

    own = PhaseWithTodos(phase.folder)
    todos = [{"content": "Read", "status": "completed"}, {"content": "Write", "status": "in_progress"}]
    script = [
        asks(("write_todos", {"todos": todos})),
        asks(("write_todos", {"todos": [{"status": "no"}]})),
        says("done"),
    ]

    messages = await own.play(build={"model": ScriptedModel(script=script)})
    again = await own.play(build={"model": ScriptedModel(script=[])})

    assert messages[2].content == "The list is written: 1 of 2 done."
    assert messages[4].status == "error"
    assert essence(again) == essence(messages)
    log = TodoLog()
    for event in phase.events():
        log.add(event)
    assert log.summarize("implement") == "to-do: 1 of 2 done, now: Write"  # a list that was refused is none


async def test_a_tool_nobody_asked_for_is_not_let_in(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.agents.build._own_parts", lambda *_: [])  # the framework's own set

    persona = phase.persona.model_copy(update={"capabilities": (Capability.CODE_WRITE,)})

    with pytest.raises(AssertionError, match="execute"):
        build_agent(persona, phase.config, root_dir=phase.root)


async def test_a_persona_gets_no_more_tools_than_it_is_permitted(phase: Phase) -> None:
    allowed = phase.persona.permissions.model_copy(update={"tools": ("ls",)})
    persona = phase.persona.model_copy(update={"permissions": allowed})

    agent = build_agent(persona, phase.config, root_dir=phase.root)

    assert set(_tools_of(agent)) == {"ls", "read_file", "task"}


async def test_a_long_result_is_kept_outside_the_workspace(phase: Phase) -> None:
    async def shout(word: str) -> str:
        return word * 100_000

    model = ScriptedModel(script=[asks(("shout", {"word": "hey "})), says("done")])
    before = phase.files()

    messages = await phase.play(build={"model": model, "tools": [tool("shout", shout)]})

    assert len(messages[2].content) < 50_000
    assert phase.files() == before


def test_a_simulated_model_is_told_how_to_misbehave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SIMULATE_DELAY_S", "0.5")
    model = open_simulated_model("rehearsal-1:loop")

    assert (model.model, model.priced_as, model.misbehave, model.delay_s) == (
        "rehearsal-1:loop",
        "rehearsal-1",
        "loop",
        0.5,
    )
    monkeypatch.setenv("HOLDFAST_SIMULATE_MISBEHAVE", "refuse")
    assert open_simulated_model("rehearsal-1").misbehave == "refuse"
    with pytest.raises(PersonaInvalid, match="cannot misbehave"):
        open_simulated_model("rehearsal-1:dance")
    monkeypatch.setenv("HOLDFAST_SIMULATE_DELAY_S", "soon")
    with pytest.raises(ConfigInvalid):
        open_simulated_model("rehearsal-1")


async def test_a_simulated_model_sends_and_fails_as_a_server_would() -> None:
    model = open_simulated_model("rehearsal-1:giant-output+stream+rate-limited+server-error+cut-off")
    whole, met = "", []
    for _ in range(4):
        try:
            pieces = [piece.text async for piece in model.astream("Hello.")]
            whole = "".join(pieces)
            assert len(pieces) > 1
        except Exception as error:
            met.append(classify_error(error, now_s=0.0).code)

    assert met == ["rate_limited", "server_error", "cut_short"]
    assert whole == (await open_simulated_model("rehearsal-1:giant-output").ainvoke("Hello.")).text
    with pytest.raises(PersonaInvalid, match="loop\\+refuse"):
        open_simulated_model("rehearsal-1:loop+stream+refuse")


async def test_the_simulated_model_costs_play_money(phase: Phase) -> None:
    from holdfast.agents.calls.gate import ModelCall, Usage
    from holdfast.catalog.model_table import load_model_table
    from holdfast.runtime.step import SameCommit

    spent: list[tuple[int, int]] = []

    class Till:
        def before(self, call: ModelCall) -> SameCommit:
            return SameCommit()

        def after(self, call: ModelCall, usage: Usage | None) -> SameCommit:
            card = load_model_table().find_model(Backend.SIMULATED, call.model)
            assert card is not None
            assert usage is not None
            assert call.max_output_tokens == card.max_output_tokens
            most = card.cost_micros(input_tokens=call.max_input_tokens, output_tokens=card.max_output_tokens)
            spent.append((card.cost_micros(**usage.to_dict()), most))
            return SameCommit()

        def failed(self, call: ModelCall, error: Exception) -> SameCommit:
            return SameCommit()

    await phase.play(gate=Till())

    assert len(spent) == 5
    assert all(0 < cost <= most for cost, most in spent)


async def test_two_workspaces_with_the_same_content_see_the_same_calls(tmp_path: Path) -> None:
    here, there = Phase(tmp_path / "here").prepare(), Phase(tmp_path / "a" / "longer" / "place").prepare()

    calls = [[message.tool_calls for message in await place.play() if message.type == "ai"] for place in (here, there)]

    assert calls[0] == calls[1]
