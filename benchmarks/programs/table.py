"""From results of the programs to one table, in docs/benchmarks.md and benchmarks/results/programs.json."""

import json
import os
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.programs import plan

_START, _END = "<!-- programs:start -->", "<!-- programs:end -->"
_SECTION = "# == "
OURS = "**holdfast**"


def count_lines(module: str) -> dict[str, int]:
    """Lines of code of each program in a module, and of what it needs around them: no comments, no blank lines."""
    counts: dict[str, int] = {}
    section = "set-up"
    for line in (Path(__file__).parent / f"{module}.py").read_text().splitlines():
        if line.startswith(_SECTION):
            section = line.removeprefix(_SECTION)
        elif line.strip() and not line.lstrip().startswith(("#", '"""')):
            counts[section] = counts.get(section, 0) + 1
    return counts


def render(found: dict[str, Any]) -> str:
    systems, results = found["systems"], found["results"]
    lines = {title: count_lines(facts["module"]) for title, facts in systems.items()}
    versions = ", ".join(f"{title.strip('*')} {facts['version']}" for title, facts in systems.items())
    rows = [
        f"`make bench only=programs` on {os.cpu_count()} cores; {versions}. Every cell is one "
        "measurement, those of a program by turns in shuffled order; other work may have run on the machine, so read "
        "the ratios (`×`, holdfast is 1).",
        "",
        "| program | system | lines | steps/s | × | goes on after kill -9 | done twice | peak memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for program in plan.PROGRAMS:
        title = program.title
        for system in systems:
            cells = _cells(found, program.name, system)
            rows.append(f"| {title} | {system} | {lines[system].get(program.name, '—')} | {' | '.join(cells)} |")
            title = ""
    title = "*all ten, with set-up*"
    for system, facts in systems.items():
        mine = {key.split("/")[0]: row for key, row in results.items() if key.endswith(f"/{system}")}
        if mine:
            ratios = [_ratio(found, name, system) for name in mine if f"{name}/{OURS}" in results]
            cells = [
                "",
                f"{median(ratios):.2g}" if ratios else "",
                f"{median(row['continue_s'] for row in mine.values()):.1f} s",
                str(sum(row["repeated"] for row in mine.values())),
                f"{max(row['peak_mb'] for row in mine.values()):.0f} MB"
                + (f" + server {facts['server_mb']:.0f} MB" if facts["server_mb"] else ""),
            ]
            rows.append(f"| {title} | {system} | {sum(lines[system].values())} | {' | '.join(cells)} |")
            title = ""
    absent = [f"Not available: {key}: {reason}." for key, reason in found["not_available"].items()]
    return "\n".join([*rows, "", *absent]).rstrip()


def _rate(row: dict[str, Any]) -> float:
    return float(row["steps"] / row["wall_s"])


def _ratio(found: dict[str, Any], program: str, system: str) -> float:
    return _rate(found["results"][f"{program}/{system}"]) / _rate(found["results"][f"{program}/{OURS}"])


def _cells(found: dict[str, Any], program: str, system: str) -> list[str]:
    row = found["results"].get(f"{program}/{system}")
    if row is None:
        return ["not available", "", "", "", ""]
    ratio = f"{_ratio(found, program, system):.2g}" if f"{program}/{OURS}" in found["results"] else ""
    twice = f"{row['repeated']}" + (f", and {row['extra']} that the old code had not" if row["extra"] else "")
    return [f"{_rate(row):,.0f}", ratio, f"{row['continue_s']:.1f} s", twice, f"{row['peak_mb']:.0f} MB"]


def publish(found: dict[str, Any], root: Path, *, is_whole: bool) -> None:
    """Print the table and write it into its page; a part takes the place of the same programs in the last results."""
    results = root / "benchmarks" / "results" / "programs.json"
    if not is_whole and results.exists():
        found = merge(json.loads(results.read_text()), found)
    table = render(found)
    print(f"\n{table}\ntook {found['took_s']} s")
    results.write_text(json.dumps(found, indent=1) + "\n")
    page = root / "docs" / "benchmarks.md"
    before, rest = page.read_text().split(_START, 1)
    page.write_text(f"{before}{_START}\n{table}\n{_END}{rest.split(_END, 1)[1]}")


def merge(last: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return the last results with these programs measured anew: what is compared was measured together."""
    anew = {key.split("/")[0] for key in (*part["results"], *part["not_available"])}

    def old(rows: dict[str, Any]) -> dict[str, Any]:
        return {key: row for key, row in rows.items() if key.split("/")[0] not in anew}

    return {
        "systems": {**last["systems"], **part["systems"]},
        "results": {**old(last["results"]), **part["results"]},
        "not_available": {**old(last["not_available"]), **part["not_available"]},
        "took_s": last["took_s"] + part["took_s"],
    }
