"""What the journal costs an agent: a turn with it and without, a replay, and the bytes it stores.

    python -m benchmarks.agent_turn [turns]

A turn is one model call and one tool call. The model is a script in this process, so that nothing but the framework and
the journal is measured; all sides take turns in one run, since machines differ from minute to minute. The bare agent is
measured twice: as it comes, and without the threads in which the framework's tracer looks for something to trace, which
an agent of ours does without.
"""

import asyncio
import contextlib
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import langsmith
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from holdfast.agents.build import build_agent
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.calls.services import TurnServices
from holdfast.agents.calls.stall_detector import Limits
from holdfast.agents.tools.rules import file_tool_rules
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
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


class Played(NamedTuple):
    """A conversation, and what it took: wall clock, CPU, commits."""

    messages: list[Any]
    took_s: float
    cpu_s: float
    commits: int


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

    async def bare(self, turns: int, *, has_tracer: bool = True) -> Played:
        agent = create_deep_agent(
            Talker(turns=turns), backend=FilesystemBackend(root_dir=self.root, virtual_mode=True), system_prompt=""
        )
        if has_tracer:
            langsmith.set_runtime_overrides()
        return await self._play(agent)

    async def journaled(self, turns: int, name: str) -> Played:
        async with open_journal(str(self._folder / f"{name}.db")) as journal:
            claim = await journal.claim("run")
            began, began_cpu = time.perf_counter(), time.process_time()
            log = RunLog(journal, claim, Records(await journal.read("run")))
            read_s, read_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
            middleware = JournalMiddleware(log, "p/1", TurnServices(rules=file_tool_rules(self.root), limits=LIMITS))
            agent = build_agent(
                self._persona, self._config, root_dir=self.root, middleware=[middleware], model=Talker(turns=turns)
            )
            played = await self._play(agent)
            await middleware.drain()
            return played._replace(took_s=read_s + played.took_s, cpu_s=read_cpu_s + played.cpu_s)

    async def _play(self, agent: Any) -> Played:
        gc.collect()
        with counting_commits() as commits:
            began, began_cpu = time.perf_counter(), time.process_time()
            result = await agent.ainvoke({"messages": [{"role": "user", "content": "Go."}]})
            took_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        return Played(result["messages"], took_s, cpu_s, len(commits))

    async def stored_bytes(self, name: str) -> int:
        async with open_journal(str(self._folder / f"{name}.db")) as journal:
            return sum(len(json.dumps(event.to_dict()).encode()) for event in await journal.read("run"))


@contextlib.contextmanager
def counting_commits() -> Iterator[list[None]]:
    commits: list[None] = []
    append = SQLiteCheckpointer.append

    def counted(*args: Any, **kwargs: Any) -> Any:
        commits.append(None)
        return append(*args, **kwargs)

    SQLiteCheckpointer.append = counted  # type: ignore[method-assign]  # put back below
    try:
        yield commits
    finally:
        SQLiteCheckpointer.append = append  # type: ignore[method-assign]


async def measure(turns: int) -> dict[str, float]:
    """Wall clock and, beside it, CPU: on a busy disk the wall clock of a synced journal is mostly the disk's."""
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place))
        await bench.bare(3)
        await bench.journaled(3, "warm")
        bare, untraced, live = [], [], []
        for number in range(ROUNDS):
            bare.append(await bench.bare(turns))
            live.append(await bench.journaled(turns, f"live{number}"))
            untraced.append(await bench.bare(turns, has_tracer=False))
        await bench.journaled(REPLAYED_TURNS, "replayed")
        replayed = await bench.journaled(REPLAYED_TURNS, "replayed")
        stored = await bench.journaled(STORED_MESSAGES // 2, "stored")
        plain = sum(len(message.model_dump_json().encode()) for message in stored.messages)
        return {
            "bare turn, ms": _median(bare, "took_s") / turns * 1e3,
            "journaled turn, ms": _median(live, "took_s") / turns * 1e3,
            "journal's share, %": _share(live, bare, "took_s"),
            "journal's share of CPU, %": _share(live, bare, "cpu_s"),
            "the same over a bare agent without its tracer, %": _share(live, untraced, "took_s"),
            "of CPU, %": _share(live, untraced, "cpu_s"),
            "commits a turn": live[0].commits / turns,
            f"replay of {REPLAYED_TURNS} turns, s": replayed.took_s,
            f"replay of {REPLAYED_TURNS} turns, s of CPU": replayed.cpu_s,
            f"stored for {len(stored.messages)} messages, × their bytes": await bench.stored_bytes("stored") / plain,
            "stored in the database, × their bytes": (Path(place) / "stored.db").stat().st_size / plain,
        }


def _median(played: list[Played], figure: str) -> float:
    return statistics.median(getattr(one, figure) for one in played)


def _share(ours: list[Played], theirs: list[Played], figure: str) -> float:
    return 100 * (_median(ours, figure) / _median(theirs, figure) - 1)


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, value in asyncio.run(measure(turns)).items():
        print(f"{name:50} {value:10.2f}")


if __name__ == "__main__":
    main()
