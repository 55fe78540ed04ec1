"""The work under fire: workflows of real agents on a model server that counts, and flows, both with approvals.

Whatever is done leaves a line outside of the database: who did what in which process, and when. So what really happened
can be compared with what the journals say.
"""

import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.support.model_server import Asks, ModelServer, Says, Script, asks, own_persona

FLOWS = '''
import asyncio
import os
import socket
import time
from pathlib import Path

from holdfast import flow, step_key

EFFECTS = Path(__file__).with_name("effects")
WHO = os.environ.get("HOLDFAST_TEST_MACHINE") or socket.gethostname()


async def note(run, key):
    """Say what is done before it is done, in one write that no kill can cut."""
    line = f"{time.time()} {WHO}:{os.getpid()} {run} {key}\\n".encode()
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)
    await asyncio.sleep(0.15)
    return key


@flow("order")
async def order(ctx, run, steps=4):
    for number in range(steps):
        await ctx.step(f"collect {number}", note, run, f"collect {number}")
    await ctx.approval("go")
    await ctx.step.options(on_unknown="ask")("pay", note, run, "pay")
    await ctx.sleep(0.5)
    await ctx.gather(*(ctx.step(f"send {number}", note, run, f"send {number}") for number in range(2)))
    return steps


@flow("tick")
async def tick(ctx):
    await ctx.step("tick", note_tick)


async def note_tick():
    return await note(step_key().partition(":")[0], "tick")
'''
PAY = "pay"
_MODELS = """
models:
  chaos-model:
    backend: openai_compatible
    id: my-model
    checked: 2026-01-01
    context_tokens: 100000
    max_output_tokens: 1000
    prices: {input: 1000000, output: 10000000}
"""
CALL_MICROS = 300  # 100 tokens in, 20 out, as the model server counts
SHIP_MICROS = 250_000
_PHASE = """
  - key: {key}
    title: The {key} phase
    risk: {risk}
    role: {role}
    timeout_seconds: 600
    attempts: 1
    instructions: Do it.
    expected_artifact: {{path: {key}.json, schema: t/note@1}}
"""
_WORKFLOW = """
name: deliver
version: 1
requirements: optional
roles:
  - {id: author, required_capabilities: [code_write, shell]}
  - {id: shipper, required_capabilities: [doc_write]}
phases:
"""
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["note"],
    "properties": {"note": {"type": "string"}},
    "additionalProperties": False,
}
# It is told on its input which run it works for.
_SHIP = (
    "run=$(grep -oE '[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}' | head -n 1); "
    'echo "$run" >> {shipped}; sleep 0.4; echo \'{{"note": "shipped"}}\' > ship.json'
)
_SHIPPER = """
name: {name}
version: 1
backend: command
capabilities: [doc_write]
cost_per_run_usd: 0.25
on_lost: {on_lost}
sandbox: {{write: [{folder}]}}
argv: [sh, -c, {body}]
"""
_NOTE = json.dumps({"note": "done"})
_RUN_OF = re.compile(r"of run `([0-9a-f-]{36})`")


def script(holds: threading.Event | None = None) -> Script:
    """What the model says: in the first phase a command, a file and the artifact, in the last the artifact.

    Its first answer does not end before `holds` is set.
    """
    build = Asks((("execute", {"command": "echo built >> built.txt; sleep 0.3"}),), holds=holds)
    plan = asks(("write_file", {"file_path": "/plan.md", "content": "A plan.\n"}))
    hand_in = {key: asks(("write_file", {"file_path": f"/{key}.json", "content": _NOTE})) for key in ("build", "check")}
    return {
        "do phase `build`": [build, plan, hand_in["build"], Says("Built.", pause_s=0.05)],
        "do phase `check`": [hand_in["check"], Says("Checked.", pause_s=0.05)],
    }


def run_of(server: ModelServer, number: int) -> str:
    """The run that a request was made for."""
    found = _RUN_OF.search(json.dumps(server.received[number].body["messages"]))
    assert found is not None
    return found[1]


@dataclass(frozen=True)
class Workshop:
    """The folders of the work: definitions that all machines have, and what is done outside of the database."""

    folder: Path

    @property
    def flows(self) -> Path:
        return self.folder / "flows" / "orders.py"

    def read_effects(self) -> list[tuple[float, str, str, str]]:
        """When, by which process, for which run, which step."""
        path = self.flows.with_name("effects")
        lines = path.read_text().splitlines() if path.exists() else []
        words = [line.split(" ", 3) for line in lines]
        return [(float(at), who, run, key) for at, who, run, key in words]

    def read_shipped(self) -> list[str]:
        path = self.folder / "shipped" / "log"
        return path.read_text().split() if path.exists() else []


def make_workshop(folder: Path, model_address: str) -> Workshop:
    config, shipped = folder / "config", folder / "shipped"
    for name in ("personas", "workflows", "artifacts/t"):
        (config / name).mkdir(parents=True)
    shipped.mkdir()
    (config / "config.toml").touch()
    (config / "models.yaml").write_text(_MODELS)
    persona = own_persona(model_address, "code_write, shell").replace("my-model", "chaos-model")
    (config / "personas" / "mine.yaml").write_text(persona)
    body = json.dumps(_SHIP.format(shipped=shipped / "log"))
    for on_lost in ("ask", "rerun"):
        text = _SHIPPER.format(name=f"ships-{on_lost}", on_lost=on_lost, folder=shipped, body=body)
        (config / "personas" / f"{on_lost}.yaml").write_text(text)
    phases = (("build", "low", "author"), ("ship", "low", "shipper"), ("check", "high", "author"))
    text = _WORKFLOW + "".join(_PHASE.format(key=key, risk=risk, role=role) for key, risk, role in phases)
    (config / "workflows" / "deliver.yaml").write_text(text)
    (config / "artifacts" / "t" / "note@1.json").write_text(json.dumps(_SCHEMA))
    workshop = Workshop(folder)
    workshop.flows.parent.mkdir()
    workshop.flows.write_text(FLOWS)
    return workshop
