"""One phase played by a real deep agent on the simulated model and a real journal, in this process or in a child."""

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast.agents.build import build_agent
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.calls.services import TurnServices
from holdfast.agents.envelope import Envelope, ExpectedFile, to_block
from holdfast.agents.policy.file_policy import FilePolicy
from holdfast.agents.tools.rules import file_tool_rules
from holdfast.config import Config
from holdfast.persona import AgentPersona, load_persona_file
from holdfast.runtime.events import Event
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.stores import open_journal

CATALOG = Path(holdfast.__file__).parent / "catalog"
RUN_ID = "7f3c1a52-9d0e-4c5b-8a41-2b6d0f9e1c33"
LANE = "implement/1"
SCHEMA = json.loads((CATALOG / "artifacts/dev/change@1.json").read_text())
ARTIFACT = ".holdfast/results/change.json"
REQUIREMENTS = "Add a greeting command.\n\nIt greets a person by name. It is tested."


@dataclass
class Phase:
    """A workspace, a store, and what is to be done there."""

    folder: Path
    model: str = "rehearsal-1"
    phase_key: str = "implement"
    read_only: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "work"

    @property
    def store(self) -> str:
        return str(self.folder / "run.db")

    @property
    def config(self) -> Config:
        data = self.folder / "data"
        return Config(data_dir=data, database_url="", workspace_root=self.folder, config_dir=self.folder)

    @property
    def persona(self) -> AgentPersona:
        persona = load_persona_file(CATALOG / "personas/simulated-stand-in.yaml")
        return persona.model_copy(update={"model": self.model})

    @property
    def envelope(self) -> Envelope:
        return Envelope(
            run_id=RUN_ID,
            phase_key=self.phase_key,
            artifact=ExpectedFile(ARTIFACT, "dev/change@1", SCHEMA),
            title="Implement the plan",
            read_only=self.read_only,
            requirements=REQUIREMENTS,
        )

    def prepare(self) -> "Phase":
        (self.root / "src").mkdir(parents=True)
        (self.root / "README.md").write_text("# Sample\n\nA greeting program.\n")
        (self.root / "src/app.py").write_text("def main() -> None:\n    print('hello')\n")
        (self.root / "rehearsal").mkdir()
        (self.root / "rehearsal/add_greeting_command.md").write_text("# Notes\n\n<!-- end of notes -->\n")
        return self

    def middleware(self, log: RunLog, **more: Any) -> JournalMiddleware:
        policy = FilePolicy(self.root, only_write=ARTIFACT if self.read_only else None)
        options = {"rules": file_tool_rules(self.root), "policy": policy, **self.options, **more}
        own = {name: options.pop(name) for name in ("after_mutation", "accept_drift") if name in options}
        return JournalMiddleware(log, LANE, TurnServices(**options), **own)

    def agent(self, journal: JournalMiddleware, **more: Any) -> Any:
        return build_agent(self.persona, self.config, root_dir=self.root, middleware=[journal], **more)

    async def play(
        self,
        *,
        build: dict[str, Any] | None = None,
        text: str | None = None,
        drain_s: float | None = None,
        **more: Any,
    ) -> list[Any]:
        """Run the phase to its end, from the journal as far as that goes, and return the agent's messages."""
        envelope = f"Do it.\n\n{to_block(self.envelope)}" if text is None else text
        async with open_log(self.store) as log:
            journal = self.middleware(log, **more)
            try:
                result = await self.agent(journal, **(build or {})).ainvoke(
                    {"messages": [{"role": "user", "content": envelope}]}
                )
            finally:
                await journal.drain(drain_s)
        return list(result["messages"])

    def files(self) -> dict[str, str]:
        paths = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_text() for path in paths}

    def events(self) -> list[Event]:
        from holdfast.runtime.checkpoint import SQLiteCheckpointer

        store = SQLiteCheckpointer(self.store)
        try:
            return store.list_events(RUN_ID)
        finally:
            store.close()


@contextlib.asynccontextmanager
async def open_log(store: str) -> AsyncIterator[RunLog]:
    async with open_journal(store) as journal:
        claim = await journal.claim(RUN_ID)
        try:
            yield RunLog(journal, claim, Records(await journal.read(RUN_ID)))
        finally:
            await journal.release(claim)


def essence(messages: Sequence[Any]) -> list[Any]:
    """What two conversations must have in common: all but ids that differ each time."""
    return [(m.type, m.content, getattr(m, "tool_calls", None), getattr(m, "tool_call_id", None)) for m in messages]


def outcomes(events: Sequence[Event]) -> dict[str, Any]:
    """The result of each step, by key; a second one for a step is an error."""
    found: dict[str, Any] = {}
    for event in events:
        if event.kind in ("model.response", "tool.result"):
            assert event.payload["key"] not in found, f"{event.payload['key']} has two results"
            found[event.payload["key"]] = event.payload["result"]["value"]
    return found


def digest(files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def is_sleeping(argument: str) -> bool:
    """Whether a `sleep ARGUMENT` runs on this machine; processes that end while it looks are no trouble."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", argument.encode()]:
                return True
    return False
