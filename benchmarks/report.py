"""From readings to tables: the whole one in docs/benchmarks.md, a short one in the README.

Medians, spread, ratios of neighbours in the same round, and targets.
"""

import json
import os
import platform
import re
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import figures, plan
from benchmarks.server import Server

_START, _END = "<!-- bench:start -->", "<!-- bench:end -->"
_PEERS = ("dbos", "langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "purpose-agent")
_DETAILS = {
    "one_run": "1,000 steps in one run, SQLite",
    "one_run_postgres": "1,000 steps in one run, Postgres",
    "many_sqlite": "64 runs × 50 steps, SQLite",
    "many_postgres": "64 runs × 50 steps, Postgres",
}


def brief(found: dict[str, Any]) -> str:
    extra = ", ".join(f"{name} {value:.4g}" for name, value in found["extra"].items())
    wall_s, steps = found["wall_s"], found["steps"]
    return f"{wall_s:.4f} s, {steps / wall_s:,.0f}/s, {found['cpu_s'] / steps * 1e6:.0f} µs CPU {extra}"


def machine(server: Server | str) -> dict[str, Any]:
    """What the numbers depend on; nothing that tells whose machine it is."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    facts: dict[str, Any] = {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgres": "not available" if isinstance(server, str) else server.ask("SHOW server_version"),
    }
    for name in _PEERS:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not available"
    return facts


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def publish(found: dict[str, Any], root: Path, *, is_whole: bool) -> None:
    """Print the table; a whole bench also goes into docs/benchmarks.md, README.md and benchmarks/results."""
    table = render(found)
    print(f"\n{table}\ntook {found['took_s']} s")
    raw = json.dumps(found, indent=1, default=str) + "\n"
    if not is_whole:
        target = root / "var" / "bench-quick.json"
        target.write_text(raw)
        print("A part only, or quick: the pages are as they were; raw results are in var/bench-quick.json.")
        return
    results = root / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.json").write_text(raw)
    for page, text in ((root / "docs" / "benchmarks.md", table), (root / "README.md", render_short(found))):
        page.write_text(insert(page.read_text(), text))


def insert(page: str, table: str) -> str:
    """Return a page with the table between its two marks."""
    before, rest = page.split(_START, 1)
    return f"{before}{_START}\n{table}\n{_END}{rest.split(_END, 1)[1]}"


# -- the text ---------------------------------------------------------------------------------------------------------


def render(found: dict[str, Any]) -> str:
    facts = found["machine"]
    python, sqlite, postgres = (facts[name] for name in ("python", "sqlite", "postgres"))
    anchors = sorted(rate for rows in found["jobs"].values() for row in rows for rate in row["anchors"]) or [0.0]
    low, high = anchors[len(anchors) // 10], anchors[len(anchors) * 9 // 10]
    rounds = plan.QUICK_ROUNDS if found["is_quick"] else plan.ROUNDS
    lines = [
        f"`make bench` on {facts['cores']} cores of {facts['cpu']}; Python {python}, SQLite {sqlite}, "
        f"PostgreSQL {postgres} with `fsync` on, all on one disk. {rounds} rounds, order shuffled, every "
        "measurement in a process of its own; medians [lowest–highest]; a ratio is the median of the ratios within "
        "rounds; raw commits are made by turns with holdfast's steps. Synced 200-byte appends around the measurements: "
        f"{median(anchors):,.0f}/s (80 % within {low:,.0f}–{high:,.0f}).",
        "",
        "| figure | holdfast | compared with | | target | |",
        "| --- | --- | --- | --- | --- | --- |",
        *("| " + " | ".join(row) + " |" for row in figures.rows(found)),
        "",
        *_details(found),
        *_notes(found),
    ]
    return "\n".join(lines).rstrip()


def render_short(found: dict[str, Any]) -> str:
    """Return the table that a first look needs: holdfast, the disk's raw limit and the peers side by side."""
    lines = [
        "| steps per second, each one synced | holdfast | raw commits | LangGraph, `sync` | DBOS |",
        "| --- | --- | --- | --- | --- |",
        *("| " + " | ".join(row) + " |" for row in figures.short_rows(found)),
    ]
    return "\n".join(lines)


def _details(found: dict[str, Any]) -> list[str]:
    lines = ["| what | steps/s | CPU per step | syncs per step | n |", "| --- | --- | --- | --- | --- |"]
    for block, title in _DETAILS.items():
        lines.append(f"| *{title}* | | | | |")
        for job in plan.BLOCKS[block]:
            rows = found["jobs"].get(f"{block}/{job.work}", [])
            if not rows:
                lines.append(f"| {job.label} | not available | | | |")
                continue
            cpu = median(row["cpu_s"] / row["steps"] for row in rows) * 1e6
            synced = _synced(found, job.work.replace("paired", "ours_flow")) if block.startswith("one") else ""
            lines.append(f"| {job.label} | {figures.rate(rows)} | {cpu:,.0f} µs | {synced} | {len(rows)} |")
            if "raw_rate" in rows[0]["extra"]:
                cpu = median(row["extra"]["raw_cpu_s"] for row in rows) * 1e6
                synced = _synced(found, "raw.sqlite_commits") if block == "one_run" else ""
                lines.append(
                    f"| {plan.RAW[block]} | {figures.raw_rate(rows)} | {cpu:,.0f} µs | {synced} | {len(rows)} |"
                )
    return [*lines, ""]


def _synced(found: dict[str, Any], work: str) -> str:
    counted = found["syncs_per_step"].get(work, "")
    return f"{counted:.1f}" if isinstance(counted, float) else str(counted)


def _notes(found: dict[str, Any]) -> list[str]:
    facts = found["machine"]
    peers = ", ".join(f"{name} {facts[name]}" for name in _PEERS)
    return [
        "¹ LangGraph's default: steps run ahead of what is kept, so a crash takes several of them. For information.",
        "",
        f"Peers as they come, warm-up left out: {peers}. Steps return 120 bytes. holdfast's time includes opening the "
        "store, claiming, starting and ending each run, and every step is synced, fenced and chained by hash. Raw is "
        "one insert of as many bytes per synced commit. Syncs are counted with strace (on Postgres by the server), at "
        "200 steps minus at 100. CPU is the client's. Raw numbers: `benchmarks/results/latest.json`.",
    ]
