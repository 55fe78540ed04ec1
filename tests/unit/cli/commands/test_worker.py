"""Workers as `holdfast workers` lists them."""

from typing import Any

from holdfast.cli.commands.worker import to_table
from holdfast.persistence.due.still_runs import ListedWorker

SINCE = 1_795_000_000.0  # 2026-11-18 11:06 UTC


def worker(**changes: Any) -> ListedWorker:
    facts: dict[str, Any] = {
        "name": "build-1-48213",
        "machine": "build-1",
        "version": "0.1.0",
        "since": SINCE,
        "slots": 16,
        "driven": 12,
        "silent_s": 0.7,
        "is_draining": False,
        "queues": ["runs", "default"],
        "flows": [],
    }
    return ListedWorker(**(facts | changes))


def test_each_worker_says_since_when_it_is_there_and_when_it_last_said_so() -> None:
    lines = to_table([worker(), worker(name="build-2", silent_s=93.4), worker(is_draining=True)]).splitlines()
    headings, *cells = ([cell.strip() for cell in line.split("  ") if cell] for line in lines)

    assert headings == ["NAME", "MACHINE", "VERSION", "RUNS", "QUEUES", "FLOWS", "SINCE (UTC)", "SEEN", "STATE"]
    assert [each[-3:] for each in cells] == [
        ["11-18 11:06", "1 s ago", "working"],
        ["11-18 11:06", "93 s ago", "silent"],
        ["11-18 11:06", "1 s ago", "draining"],
    ]
    assert max(map(len, lines)) <= 100
