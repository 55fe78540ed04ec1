"""Cleans up after runs, in a process that dies at a given point: at a commit, at any git, at any file that goes."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.crash.workflow_child import Points

from holdfast.config import load_config
from holdfast.engine.retention.cleanup import Cleanup, clean_up, remove_runs
from holdfast.engine.retention.selection import Selection
from holdfast.persistence.db import Database
from holdfast.workspace.git import Git


async def clean(url: str, folder: Path, verb: str, run_ids: list[str], dies_at: int | None) -> dict[str, Any]:
    points = Points(dies_at)
    db = Database(url)
    config = load_config(data_dir=folder / "data", database_url=url)
    _watch(points, db)
    now = datetime.now(UTC)
    if verb == "gc":
        done: Cleanup = await clean_up(db, config, Selection(), now=now)
    else:
        done = await remove_runs(db, config, run_ids, now=now)
    names = list(points.names)
    await db.dispose()
    skipped = [item.reason for item in done.skipped]
    return {"points": names, "deleted": done.deleted_runs, "skipped": skipped}


def _watch(points: Points, db: Database) -> None:
    points.around(db.store, "delete_run", lambda *_args, **_options: "delete_run")
    points.around(db.store, "append", lambda *_args: "append")
    points.around(db.store, "claim_many", lambda *_args: "claim")
    points.around(Git, "_run_once", lambda _git, args, _stdin: f"git {args[0]}")
    points.around(Path, "rename", lambda *_args: "rename")
    for name in ("unlink", "rmdir"):
        points.around(os, name, lambda *_args, **_options: "file")
