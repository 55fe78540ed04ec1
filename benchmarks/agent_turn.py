"""What the journal costs an agent: a turn with it and without, a replay, and the bytes it stores.

    python -m benchmarks.agent_turn [turns]

A turn is one model call and one tool call. The model is a script in this process, so that nothing but the framework and
the journal is measured; both sides take turns in one run, since machines differ from minute to minute.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from holdfast.agents.build import build_agent
from holdfast.agents.governor import Limits
from holdfast.agents.journaling import JournalMiddleware
from holdfast.agents.tool_rules import file_tool_rules
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.runtime.durable import RunLog
from holdfast.runtime.records import Records
from holdfast.runtime.stores import open_journal

ROUNDS = 3
REPLAYED_TURNS = 300
STORED_MESSAGES = 1000
FILE = "".join(f"Line {number} of a file that is read again and again.\n" for number in range(12))
LIMITS = Limits(max_turns=10**6, nudge_after=10**6, fallback_after=10**6, stop_after=10**6)


class Talker(BaseChatModel):
    """Reads a file so many times, then ends."""

    turns: int
    model: str = "talker"

    @property
    def _llm_type(self) -> str:
        return "talker"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        turn = sum(type(message) is AIMessage for message in messages)
        call = {"name": "read_file", "args": {"file_path": "/notes.md"}, "id": f"call_{turn}", "type": "tool_call"}
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        text = f"Turn {turn}: I read the notes once more to be sure of what they say about it."
        calls = [call] if turn < self.turns else []
        message = AIMessage(content=text, tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


class Bench:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = folder / "work"
        self.root.mkdir()
        (self.root / "notes.md").write_text(FILE)
        self._config = Config(data_dir=folder, database_url="", workspace_root=folder, config_dir=folder)
        self._persona = AgentPersona(
            name="bench", version=1, backend=Backend.SIMULATED, model="talker", capabilities=("research",)
        )

    async def bare(self, turns: int) -> float:
        agent = create_deep_agent(
            Talker(turns=turns), backend=FilesystemBackend(root_dir=self.root, virtual_mode=True), system_prompt=""
        )
        return (await self._timed(agent))[0]

    async def journaled(self, turns: int, name: str) -> tuple[float, list[Any]]:
        async with open_journal(str(self._folder / f"{name}.db")) as journal:
            claim = await journal.claim("run")
            began = time.perf_counter()
            log = RunLog(journal, claim, Records(await journal.read("run")))
            read_s = time.perf_counter() - began
            middleware = JournalMiddleware(log, "p/1", rules=file_tool_rules(self.root), limits=LIMITS)
            agent = build_agent(
                self._persona, self._config, root_dir=self.root, middleware=[middleware], model=Talker(turns=turns)
            )
            took_s, messages = await self._timed(agent)
            await middleware.drain()
            return read_s + took_s, messages

    async def _timed(self, agent: Any) -> tuple[float, list[Any]]:
        began = time.perf_counter()
        result = await agent.ainvoke({"messages": [{"role": "user", "content": "Go."}]})
        return time.perf_counter() - began, result["messages"]

    async def stored_bytes(self, name: str) -> int:
        async with open_journal(str(self._folder / f"{name}.db")) as journal:
            return sum(len(json.dumps(event.to_dict()).encode()) for event in await journal.read("run"))


async def measure(turns: int) -> dict[str, float]:
    """Wall clock and, beside it, CPU: on a busy disk the wall clock of a synced journal is mostly the disk's."""
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place))
        await bench.bare(3)
        bare, live, cpu = [], [], []
        for number in range(ROUNDS):
            began = time.process_time()
            bare.append(await bench.bare(turns) / turns)
            between = time.process_time()
            live.append((await bench.journaled(turns, f"live{number}"))[0] / turns)
            cpu.append((time.process_time() - between) / (between - began))
        await bench.journaled(REPLAYED_TURNS, "replayed")
        began = time.process_time()
        replay_s, _ = await bench.journaled(REPLAYED_TURNS, "replayed")
        replay_cpu_s = time.process_time() - began
        _, messages = await bench.journaled(STORED_MESSAGES // 2, "stored")
        plain = sum(len(message.model_dump_json().encode()) for message in messages)
        bare_s, live_s = statistics.median(bare), statistics.median(live)
        return {
            "bare turn, ms": bare_s * 1e3,
            "journaled turn, ms": live_s * 1e3,
            "journal's share, %": 100 * (live_s / bare_s - 1),
            "journal's share of CPU, %": 100 * (statistics.median(cpu) - 1),
            f"replay of {REPLAYED_TURNS} turns, s": replay_s,
            f"replay of {REPLAYED_TURNS} turns, s of CPU": replay_cpu_s,
            f"stored for {len(messages)} messages, × their bytes": await bench.stored_bytes("stored") / plain,
            "stored in the database, × their bytes": (Path(place) / "stored.db").stat().st_size / plain,
        }


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, value in asyncio.run(measure(turns)).items():
        print(f"{name:50} {value:10.2f}")


if __name__ == "__main__":
    main()
