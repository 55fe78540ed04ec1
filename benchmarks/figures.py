"""The figures with a target: what holdfast measured, against whom, and whether that is enough."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from benchmarks import many_processes, plan
from benchmarks.measure import MESSAGE

Found = dict[str, Any]
Rows = list[dict[str, Any]]
_ABSENT = "not available"


def rows(found: Found) -> Iterator[tuple[str, ...]]:
    """Cells: figure, holdfast, compared with, measured, target, verdict."""
    yield from _speed(
        found, "one_run", "1,000 steps in one run, SQLite", {"raw": 0.9, "peer_langgraph": 4, "peer_dbos": 8}
    )
    yield from _speed(found, "many_sqlite", "64 runs × 50 steps, SQLite", {"raw": 6, "paired": 0.9, "peer": 40})
    yield from _speed(found, "many_postgres", "64 runs × 50 steps, Postgres", {"raw": 4, "peer": 40})
    yield from _syncs(found)
    yield from _replay(found)
    yield from _list(found)
    yield from _append(found)
    yield from _size(found)
    yield from _many_phases(found)
    yield from _many_processes(found)
    yield from _fleet(found)
    yield from _carried(found)
    yield from _warm_run(found)
    yield from _import(found)
    yield from _new_process(found)
    yield from _parked(found)


_HEADLINES = {
    "one_run": ("one run, SQLite", "peer_langgraph.one_run_sqlite", "peer_dbos.one_run_sqlite"),
    "many_sqlite": ("64 runs at once, SQLite", "peer_langgraph.many_runs_sqlite", "peer_dbos.many_runs_sqlite"),
    "many_postgres": ("64 runs at once, Postgres", "peer_langgraph.many_runs_postgres", "peer_dbos.many_runs_postgres"),
}


def short_rows(found: Found) -> Iterator[tuple[str, ...]]:
    """Yield medians without their spread: what, holdfast, raw commits, then each peer."""
    for block, (title, *peers) in _HEADLINES.items():
        jobs = plan.BLOCKS[block]
        ours = found["jobs"].get(f"{block}/{jobs[0].work}", [])
        raw = f"{median(row['extra']['raw_rate'] for row in ours):,.0f}" if ours else _ABSENT
        theirs = (_median_rate(found["jobs"].get(f"{block}/{peer}", [])) for peer in peers)
        yield (title, _median_rate(ours), raw, *theirs)


def _median_rate(found: Rows) -> str:
    return f"{median(row['steps'] / row['wall_s'] for row in found):,.0f}" if found else _ABSENT


def rate(found: Rows) -> str:
    return _spread([row["steps"] / row["wall_s"] for row in found], lambda value: f"{value:,.0f}")


def raw_rate(found: Rows) -> str:
    return _spread([row["extra"]["raw_rate"] for row in found], lambda value: f"{value:,.0f}")


def _spread(values: list[float], show: Callable[[float], str]) -> str:
    middle = show(median(values))
    return middle if len(values) == 1 else f"{middle} [{show(min(values))}–{show(max(values))}]"


def _ms(values: list[float]) -> str:
    return _spread(values, lambda value: f"{value * 1000:,.4g}") + " ms"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _ratio(ours: Rows, theirs: Rows) -> float:
    """The median of the ratios within rounds: neighbours share the disk's moods."""
    rates = {row["round"]: row["steps"] / row["wall_s"] for row in theirs}
    pairs = [row["steps"] / row["wall_s"] / rates[row["round"]] for row in ours if row["round"] in rates]
    return median(pairs)


def _speed(found: Found, block: str, title: str, targets: dict[str, float]) -> Iterator[tuple[str, ...]]:
    jobs = plan.BLOCKS[block]
    ours = found["jobs"].get(f"{block}/{jobs[0].work}", [])
    if not ours:
        yield (title, _ABSENT, "", "", "", "")
        return
    holdfast = f"{rate(ours)} steps/s"
    ratios = [row["steps"] / row["wall_s"] / row["extra"]["raw_rate"] for row in ours]
    spread = _spread(ratios, lambda value: f"{value:.2f}") + " ×"
    target = targets["raw"]
    yield (
        title,
        holdfast,
        f"{plan.RAW[block]}: {raw_rate(ours)}",
        spread,
        f"≥ {target:g} ×",
        _verdict(median(ratios) >= target),
    )
    best = _best_peer(found, block, ours)
    for job in jobs[1:]:
        theirs = found["jobs"].get(f"{block}/{job.work}", [])
        kind = job.work.split(".")[0]
        minimum = targets.get(kind) or (targets.get("peer", 0) if job.work == best else 0)
        condition = f"≥ {minimum:g} ×" if minimum else ""
        if not theirs:
            yield ("", "", job.label, _ABSENT, condition, "")
        else:
            ratio = _ratio(ours, theirs)
            verdict = _verdict(ratio >= minimum) if minimum else ""
            yield ("", "", f"{job.label}: {rate(theirs)}", f"{ratio:,.3g} ×", condition, verdict)


def _best_peer(found: Found, block: str, ours: Rows) -> str:
    """The fastest peer that keeps every step before the next one starts."""
    peers = [job.work for job in plan.BLOCKS[block] if job.work.startswith("peer") and not job.work.endswith("_async")]
    known = {work: rows for work in peers if (rows := found["jobs"].get(f"{block}/{work}"))}
    return min(known, key=lambda work: _ratio(ours, known[work]), default="")


def _syncs(found: Found) -> Iterator[tuple[str, ...]]:
    for work, store in (("ours_flow.one_run_sqlite", "SQLite"), ("ours_flow.one_run_postgres", "Postgres")):
        counted = found["syncs_per_step"].get(work, "not counted")
        if isinstance(counted, str):
            yield (f"syncs per acknowledged step, {store}", counted, "", "", "≥ 1", "")
        else:
            yield (f"syncs per acknowledged step, {store}", f"{counted:.2f}", "", "", "≥ 1", _verdict(counted >= 1))


def _replay(found: Found) -> Iterator[tuple[str, ...]]:
    ours = found["jobs"].get("replay/ours_flow.replay", [])
    theirs = found["jobs"].get("replay/peer_dbos.replay", [])
    if not ours:
        yield ("replay of 10,000 steps", _ABSENT, "", "", "", "")
        return
    times = [row["wall_s"] for row in ours]
    against, ratio = f"DBOS: {_ABSENT}", ""
    if theirs:
        scaled = median(row["wall_s"] / row["steps"] for row in theirs) * 10_000
        against = f"DBOS: {scaled:,.1f} s, scaled from {theirs[0]['steps']:,} steps"
        ratio = f"{scaled / median(times):,.0f} ×"
    yield ("replay of 10,000 steps", _ms(times), against, ratio, "≤ 150 ms", _verdict(median(times) <= 0.15))
    typed = found["jobs"].get("replay/ours_flow.typed_replay", [])
    if typed:
        cpu = median(row["cpu_s"] for row in typed) / median(row["cpu_s"] for row in ours)
        title, times = "the same with results of a dataclass", [row["wall_s"] for row in typed]
        yield (title, _ms(times), "JSON data, by CPU time", f"{cpu:.2f} ×", "≤ 1.2 ×", _verdict(cpu <= 1.2))


def _list(found: Found) -> Iterator[tuple[str, ...]]:
    ours = found["jobs"].get("list/ours_store.list_all", [])
    theirs = found["jobs"].get("list/peer_purpose.list_all", [])
    if not ours:
        yield ("`list_events` of 100,000", _ABSENT, "", "", "", "")
        return
    against, ratio = f"purpose-agent: {_ABSENT}", ""
    if theirs:
        scaled = median(row["wall_s"] / row["steps"] for row in theirs) * 100_000
        against = f"purpose-agent, SQLite: {scaled:,.2f} s"
        ratio = f"{scaled / median(row['wall_s'] for row in ours):,.1f} ×"
    times = [row["wall_s"] for row in ours]
    yield ("`list_events` of 100,000", _ms(times), against, ratio, "≤ 500 ms", _verdict(median(times) <= 0.5))
    times = [row["extra"]["last_ten_s"] for row in ours]
    yield ("the last ten of them", _ms(times), "", "", "≤ 2 ms", _verdict(median(times) <= 0.002))


def _append(found: Found) -> Iterator[tuple[str, ...]]:
    ours = found["jobs"].get("append/ours_store.append_to_both", [])
    if not ours:
        return
    events = ours[0]["steps"]
    big, small = ([row["extra"][name] for row in ours] for name in ("big_s", "small_s"))
    ratio = median(row["extra"]["big_s"] / row["extra"]["small_s"] for row in ours)
    verdict = _verdict(ratio <= 1.3)
    yield (
        f"one append at {events:,} events",
        _ms(big),
        f"at 1,000: {_ms(small)}",
        f"{ratio:.2f} ×",
        "≤ 1.3 ×",
        verdict,
    )


def _many_phases(found: Found) -> Iterator[tuple[str, ...]]:
    ours = found["jobs"].get("many_phases/many_phases.resume_and_list", [])
    titles = {"resume": "a run resumed", "list": "20 runs listed", "due": "runs that are due listed"}
    for question, title in titles.items() if ours else ():
        big, small = ([row["extra"][f"{question}_{name}_s"] for row in ours] for name in ("big", "small"))
        ratio = median(one / other for one, other in zip(big, small, strict=True))
        verdict = _verdict(ratio <= 1.3)
        title = f"{title} among {ours[0]['steps']:,} phases"
        yield (title, _ms(big), f"among 100: {_ms(small)}", f"{ratio:.2f} ×", "≤ 1.3 ×", verdict)


def _many_processes(found: Found) -> Iterator[tuple[str, ...]]:
    """Several processes on one Postgres: commits side by side, news of them, and the look for what is due."""

    def rows_of(name: str) -> Rows:
        return found["jobs"].get(f"many_processes/many_processes.{name}", [])  # type: ignore[no-any-return]

    def take(rows: Rows, name: str) -> list[float]:
        return [row["extra"][name] for row in rows]

    # On a fast disk the cores are the limit, as raw commits show; on an ordinary one it is the disk.
    for work, disk in (
        ("steps_by_processes", "Postgres"),
        ("steps_on_slow_disk", f"Postgres, {many_processes.SYNC_S * 1000:g} ms a sync"),
    ):
        if not (steps := rows_of(work)):
            continue
        ours = _spread(take(steps, "eight_rate"), lambda value: f"{value:,.0f}") + " steps/s"
        title = f"one run in each of 8 processes, {disk}"
        raw = median(take(steps, "raw_eight_to_one"))
        for against, rate_of, ratio_of, target in (
            ("one process", "one_rate", "eight_to_one", 2.0),
            ("the same without notices", "silent_rate", "eight_to_silent", 0.9),
        ):
            ratio = median(take(steps, ratio_of))
            other = f"{against}: {median(take(steps, rate_of)):,.0f}"
            yield (title, ours, other, f"{ratio:.2f} ×", f"≥ {target:g} ×", _verdict(ratio >= target))
        other = f"raw commits, 8 processes: {median(take(steps, 'raw_eight_rate')):,.0f}, one: "
        other += f"{median(take(steps, 'raw_one_rate')):,.0f}, that is {raw:.2f} ×"
        yield (title, ours, other, f"{median(take(steps, 'eight_to_one')) / raw:.2f} × of raw's", "", "")
    if seen := rows_of("time_until_seen"):
        times = take(seen, "p99_s")
        title = "an event seen in another process, 4 writers, p99"
        against = f"p50: {_ms(take(seen, 'p50_s'))}"
        yield (title, _ms(times), against, "", "≤ 100 ms", _verdict(median(times) <= 0.1))
    if looks := rows_of("look_for_due"):
        ratio = median(row["extra"]["big_s"] / row["extra"]["small_s"] for row in looks)
        title = "a worker's look among 40,000 runs and flows that wait and 100,000 ended, Postgres"
        against = f"among 400 and 1,000: {_ms(take(looks, 'small_s'))}"
        yield (title, _ms(take(looks, "big_s")), against, f"{ratio:.2f} ×", "≤ 1.3 ×", _verdict(ratio <= 1.3))


def _fleet(found: Found) -> Iterator[tuple[str, ...]]:
    """Workers on one Postgres: how soon they begin, how much they end, and how soon they take over."""

    def take(work: str, name: str) -> list[float]:
        return [row["extra"][name] for row in found["jobs"].get(work, [])]

    ours, theirs = (f"fleet_begin/{who}.due_until_begun" for who in ("fleet", "peer_dbos_queue"))
    for title, name, most_s in (("p50", "p50_s", 0.05), ("p99", "p99_s", 0.25)) if take(ours, "p50_s") else ():
        times, others = take(ours, name), take(theirs, name)
        against = f"DBOS queue, its defaults: {_ms(others)}" if others else f"DBOS: {_ABSENT}"
        ratio = f"{median(others) / median(times):.3g} ×" if others else ""
        is_met = median(times) <= most_s and (name != "p50_s" or not others or median(others) >= 5 * median(times))
        target = f"≤ {most_s * 1000:g} ms" + (", ≥ 5 ×" if name == "p50_s" else "")
        yield (f"due until begun, idle worker, {title}", _ms(times), against, ratio, target, _verdict(is_met))
    ended, others_ended = (
        found["jobs"].get(f"fleet_flows/{who}.begun_and_ended", []) for who in ("fleet", "peer_dbos_queue")
    )
    if ended:
        cells = ("DBOS", _ABSENT, "≥ 3 ×", "")
        if others_ended:
            ratio_of = _ratio(ended, others_ended)
            against = f"DBOS queue, its defaults: {rate(others_ended)}"
            cells = (against, f"{ratio_of:.2f} ×", "≥ 3 ×", _verdict(ratio_of >= 3))
        yield ("flows of one step begun and ended, 2 workers", f"{rate(ended)} flows/s", *cells)
    if deaths := take("fleet_death/fleet.killed_until_elsewhere", "median_s"):
        worst = max(take("fleet_death/fleet.killed_until_elsewhere", "worst_s"))
        title, ours_s = "killed until begun elsewhere, median · worst", median(deaths)
        is_met = ours_s <= 8 and worst <= 10
        yield (title, f"{ours_s:.1f} s · {worst:.1f} s", "DBOS: never", "", "≤ 8 s · ≤ 10 s", _verdict(is_met))


def _carried(found: Found) -> Iterator[tuple[str, ...]]:
    """Files that travel with the journal, in a repository of 5,000."""
    ours = found["jobs"].get("carried/carried_files.change_and_restore", [])
    if not ours:
        return
    carried, other, restores = ([row["extra"][f"{name}_s"] for row in ours] for name in ("carried", "other", "restore"))
    ratio = median(one / two for one, two in zip(carried, other, strict=True))
    title = "a change among 5,000 files, carried with its run"
    yield (title, _ms(carried), f"not carried: {_ms(other)}", f"{ratio:.2f} ×", "≤ 1.5 ×", _verdict(ratio <= 1.5))
    title = f"5,000 files and {ours[0]['steps']} trees restored on another machine"
    yield (title, _ms(restores), "", "", "≤ 5 s", _verdict(median(restores) <= 5))


def _warm_run(found: Found) -> Iterator[tuple[str, ...]]:
    ours = [row["extra"] for row in found["jobs"].get("warm_run/warm_run.runs_in_warm_server", [])]
    if not ours:
        return
    against, ratio, verdict = "before the fleet: not available", "", ""
    if all("before_cpu_ms" in extra for extra in ours):
        middle = median(extra["now_cpu_ms"] / extra["before_cpu_ms"] for extra in ours)
        against = f"before the fleet: {median(extra['before_cpu_ms'] for extra in ours):.0f} ms"
        ratio, verdict = f"{middle:.2f} ×", _verdict(middle <= 0.5)
    cpu = _spread([extra["now_cpu_ms"] for extra in ours], lambda value: f"{value:.0f}") + " ms"
    yield ("CPU of a simulated `spec-and-review` in a warm server", cpu, against, ratio, "≤ 0.5 ×", verdict)
    count = median(extra["now_git_processes"] for extra in ours)
    yield ("git processes of that run", f"{count:g}", "", "", "≤ 12", _verdict(count <= 12))


def _size(found: Found) -> Iterator[tuple[str, ...]]:
    ours = found["jobs"].get("size/ours_flow.messages", [])
    theirs = found["jobs"].get("size/peer_langgraph.messages", [])
    if not ours:
        return
    messages = ours[0]["steps"]
    content = messages * len(MESSAGE)
    factor = ours[0]["extra"]["bytes"] / content
    against = f"LangGraph: {theirs[0]['extra']['bytes'] / content:,.0f} ×" if theirs else f"LangGraph: {_ABSENT}"
    title = f"bytes stored for {messages:,} messages of {len(MESSAGE)} bytes"
    yield (title, f"{factor:.1f} × the messages", against, "", "≤ 3 ×", _verdict(factor <= 3))


def _import(found: Found) -> Iterator[tuple[str, ...]]:
    ours = found["jobs"].get("import/imports.start", [])
    if not ours:
        return
    extras = [row["extra"] for row in ours]
    added = [extra["import_s"] - extra["bare_s"] for extra in extras]
    flow = median(extra["flow_s"] - extra["bare_s"] for extra in extras) * 1000
    bare = f"bare Python: {median(extra['bare_s'] for extra in extras) * 1000:.0f} ms"
    title = f"`import holdfast` adds (`run_flow` with it: {flow:.0f} ms)"
    yield (title, _ms(added), bare, "", "≤ 60 ms", _verdict(median(added) <= 0.06))


def _new_process(found: Found) -> Iterator[tuple[str, ...]]:
    first = [row["wall_s"] for row in found["jobs"].get("new_process/new_process.first_run", [])]
    if first:
        title = "imports of the first `run_flow`, over `import holdfast`, by CPU time"
        yield (title, _ms(first), "", "", "≤ 60 ms", _verdict(median(first) <= 0.06))
    replays = found["jobs"].get("new_process/new_process.replay", [])
    if replays:
        limits = [row["extra"]["bulk_s"] + row["extra"]["imports_s"] for row in replays]
        ratio = median(row["wall_s"] / limit for row, limit in zip(replays, limits, strict=True))
        times, against = (
            [row["wall_s"] for row in replays],
            f"one bulk read and imports: {_ms(limits)}, all by CPU time",
        )
        title = "replay of 10,000 steps in a new process"
        yield (title, _ms(times), against, f"{ratio:.2f} ×", "≤ 2.5 ×", _verdict(ratio <= 2.5))


def _parked(found: Found) -> Iterator[tuple[str, ...]]:
    for row in found["jobs"].get("parked/parked_flows.rest", []):
        extra = row["extra"]
        title = f"{row['steps']:,} sleeping flows in one process"
        said = f"{extra['peak_mb']:.0f} MB at most, {extra['cpu_share']:.1%} of a core"
        is_met = extra["peak_mb"] <= 200 and extra["cpu_share"] <= 0.01
        yield (title, said, "", "", "≤ 200 MB, ≤ 1 %", _verdict(is_met))
