"""A run leaves as one file, and whatever happened to the file or the run is found."""

import sqlite3
import zipfile
from pathlib import Path

from tests.acceptance.cli.conftest import Command


def test_a_run_is_exported_and_verified(start: Command, holdfast: Command, tmp_path: Path) -> None:
    run_id = start("--yes").json["run_id"]
    file = tmp_path / "run.zip"

    exported = holdfast("export", run_id[:8], "--output", str(file), "--json").json
    again = holdfast("export", run_id, "-o", str(file))
    verified = holdfast("verify", str(file), "--json").json

    assert (exported["run_id"], exported["state"], exported["bytes"]) == (run_id, "completed", file.stat().st_size)
    assert {"run.json", "changes.diff", "artifacts/final/1.1.json", "report/final-report.json"} <= set(
        exported["files"]
    )
    assert (again.code, again.err.count("\n"), "is there already" in again.err) == (1, 1, True)
    assert (verified["ok"], verified["digest"]) == (True, exported["digest"])
    assert holdfast("verify", run_id).code == 0

    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("more.txt", "")
    changed = holdfast("verify", str(file))
    assert (changed.code, changed.err.startswith("holdfast: journal_corrupt: ")) == (1, True)
    assert "more.txt" in changed.err

    with sqlite3.connect(tmp_path / "data" / "holdfast.db") as database:
        database.execute("UPDATE events SET body = replace(body, 'Add numbers', 'Add letters') WHERE seq = 1")
    database.close()
    damaged = holdfast("verify", run_id, "--json")
    assert (damaged.code, damaged.json["ok"], len(damaged.json["problems"])) == (1, False, 1)


def test_what_is_not_there_is_refused(holdfast: Command, tmp_path: Path) -> None:
    assert "store_unreadable" in holdfast("verify", str(tmp_path / "missing.zip")).err
    assert "run_not_found" in holdfast("verify", "12345678").err
    assert "run_not_found" in holdfast("export", "12345678").err
