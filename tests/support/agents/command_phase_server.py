"""As `phase_server`, with commands: those of a deep agent's `execute`, and a command persona as a whole.

Of the two command personas one is a program of which nothing is known, the other a known coding agent that dies once.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.support.agents.phase import Phase, essence, open_log, outcomes
from tests.support.agents.phase_server import Points, main
from tests.support.agents.scripted_model import ScriptedModel, asks, says
from tests.support.agents.stand_in_agent import make_agent

import holdfast.workspace.commands.spool as spool
from holdfast.agents.build import build_agent
from holdfast.agents.coding_agent import agent as agent_module
from holdfast.agents.policy.tool_policy import ToolPolicy
from holdfast.agents.tools.rules import command_rules, file_tool_rules
from holdfast.agents.tools.shell import open_shell
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer

SLOW = "echo {0}1 >> {0}.log; sleep 0.3; echo {0}2 >> {0}.log; cat {0}.log"
SCRIPT = [
    asks(("execute", {"command": SLOW.format("a")}), ("execute", {"command": SLOW.format("b")}), ids=["x", "x"]),
    asks(("task", {"description": "Do more.", "subagent_type": "general-purpose"})),
    asks(("write_file", {"file_path": "/new.txt", "content": "new"})),
    asks(("execute", {"command": "sudo id"}), ("execute", {"command": "cat new.txt >> c.log; cat a.log b.log c.log"})),
    says("done"),
]
AGENT = "cat > got.md; echo begun >> agent.log; sleep 0.3; echo ended >> agent.log; echo all done"

KNOWN_AGENT = "begin; echo half >> agent.log; use m1 make; [ -n \"$resumed\" ] || kill -9 $$; finish 'all done'\n"


class WithSubagent(ScriptedModel):
    """Its subagent runs a command too."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if any("Do more." in str(message.content) for message in messages if message.type == "human"):
            inner = ScriptedModel(script=[asks(("execute", {"command": SLOW.format("s")})), says("did more")])
            return inner._generate(messages)
        return super()._generate(messages)


def play(folder: Path, kind: str, dies_at: int | None) -> dict[str, Any]:
    points = Points(dies_at)
    points.around(SQLiteCheckpointer, "append")
    points.around(spool, "_launch")
    points.around(agent_module, "write_session")
    points.around(agent_module, "remove_spooled")
    phase = Phase(folder)
    messages = asyncio.run(_play(phase, kind))
    return {
        "points": points.names,
        "files": phase.files(),
        "messages": essence(messages),
        "steps": sorted(outcomes(phase.events())),
    }


async def _play(phase: Phase, kind: str) -> list[Any]:
    shell = open_shell(phase.root, data_dir=phase.config.data_dir)
    persona = _find_persona(phase, kind)
    policy = ToolPolicy(phase.root, persona.permissions, is_contained=shell.sandbox is not None)
    async with open_log(phase.store) as log:
        journal = phase.middleware(
            log, rules={**file_tool_rules(phase.root), **command_rules(shell.spool_dir)}, shell=shell, policy=policy
        )
        model = WithSubagent(script=SCRIPT) if kind == "execute" else None
        agent = build_agent(persona, phase.config, root_dir=phase.root, middleware=[journal], model=model)
        try:
            result = await agent.ainvoke({"messages": [{"role": "user", "content": "Do it."}]})
        finally:
            await journal.drain()
    return [message for message in result["messages"] if not isinstance(message, dict)]


def _find_persona(phase: Phase, kind: str) -> AgentPersona:
    if kind == "execute":
        return phase.persona
    if kind == "coding agent":
        os.environ["HOME"] = str(phase.folder / "home")
        (phase.folder / "home").mkdir(exist_ok=True)
        return make_agent(phase.folder, KNOWN_AGENT)
    return _command_persona()


def _command_persona() -> AgentPersona:
    fields = {"name": "tool", "version": 1, "backend": Backend.COMMAND, "capabilities": ["code_write"]}
    return AgentPersona.model_validate({**fields, "argv": ["/bin/sh", "-c", AGENT]})


if __name__ == "__main__":
    main(play)
