"""How fast the command starts: `holdfast --help` and `holdfast runs list` on 10,000 runs, against a bare click group.

`python -m benchmarks.cold_start`, interleaved, by processor time, since the wall clock of a busy machine says little.
The best of each counts. The help of peers is measured beside it, where they are installed: `--install` puts them into
an environment of their own, `.bench-venv/cli`, since their needs do not go together with those of the other benches.
"""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 10_000
ROUNDS = int(os.environ.get("ROUNDS", "15"))
ROOT = Path(__file__).parents[1]
PEERS = {"langgraph": "langgraph-cli==0.4.40", "dbos": "dbos==3.3.0", "prefect": "prefect==3.8.8"}
PEER_FOLDER = ROOT / ".bench-venv" / "cli"
TARGETS = {"holdfast --help": 1.5, "holdfast runs list": 3.0}
BARE = """
import click
@click.group()
def cli():
    "A bare group."
@cli.command()
def hello():
    "Say hello."
cli()
"""


def fill(folder: Path) -> None:
    """A database with many runs, each with phases and some money."""
    import sqlite3

    from holdfast.persistence.db import Database

    path = folder / "holdfast.db"

    async def make() -> None:
        database = Database(f"sqlite+aiosqlite:///{path}")
        await database.init_schema()
        await database.dispose()

    asyncio.run(make())
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO workflow_templates (id, name, hash) VALUES ('t', 'feature-delivery', 'h')")
        times = [f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.000Z" for n in range(RUNS)]
        connection.executemany(
            "INSERT INTO runs (id, template_id, state, workflow, created_at) "
            "VALUES (?, 't', 'completed', 'feature-delivery', ?)",
            [(f"{number:08x}", time) for number, time in enumerate(times)],
        )
        connection.executemany(
            "INSERT INTO ledger (id, run_id, amount_micros) VALUES (?, ?, 1000)",
            [(f"{number:08x}", f"{number:08x}") for number in range(RUNS)],
        )
    connection.close()


def measure(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def install_peers() -> None:
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    if not PEER_FOLDER.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(PEER_FOLDER)], check=True)
    python = str(PEER_FOLDER / "bin" / "python")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *PEERS.values()], check=True)


def main() -> int:
    holdfast = str(Path(sys.executable).parent / "holdfast")
    commands = {
        "bare click group": [sys.executable, "-c", BARE, "--help"],
        "holdfast --help": [holdfast, "--help"],
        "holdfast runs list": [holdfast, "runs", "list"],
    }
    if "--install" in sys.argv:
        install_peers()
    for peer in PEERS:
        program = PEER_FOLDER / "bin" / peer
        if program.exists():
            commands[f"{peer} --help"] = [str(program), "--help"]
        else:
            print(f"{peer} is not installed: python -m benchmarks.cold_start --install")
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        environment = {**os.environ, "HOLDFAST_DATA_DIR": folder}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(measure(command, environment))
    bare = min(times["bare click group"])
    ours = min(times["holdfast --help"])
    is_met = True
    for name, taken in times.items():
        ratio, target = min(taken) / bare, TARGETS.get(name)
        is_met &= target is None or ratio <= target
        print(f"{name:<20} {min(taken) * 1000:6.0f} ms  {ratio:5.2f} ×" + _remark(name, target, min(taken) / ours))
    return 0 if is_met else 1


def _remark(name: str, target: float | None, to_ours: float) -> str:
    if target is not None:
        return f"  (at most {target} ×)"
    return f"  ({to_ours:.1f} × holdfast --help)" if name.split()[0] in PEERS else ""


if __name__ == "__main__":
    sys.exit(main())
