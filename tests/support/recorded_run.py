"""Runs that earlier versions recorded, as files in tests/journals: unpacked into a folder of the test's own."""

import sqlite3
import tarfile
from pathlib import Path

from holdfast.runtime.checkpoint.hash_chain import genesis, link

JOURNALS = Path(__file__).parents[1] / "journals"
RECORDED_FOLDER = "/recorded"
"""Stands in the files of a recorded run for the folder that held them."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a recorded run, and put the folder's own path wherever the recorded one stands."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    move_paths(folder, RECORDED_FOLDER, str(folder))


def move_paths(folder: Path, before: str, after: str) -> None:
    """Rewrite a path in the small files and the database of a run; the journal is chained anew, its bodies stay."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".db" and before.encode() in (content := path.read_bytes()):
            path.write_bytes(content.replace(before.encode(), after.encode()))
    connection = sqlite3.connect(folder / "holdfast.db")
    with connection:
        connection.execute(
            "UPDATE runs SET repo_path = replace(repo_path, ?, ?), worktree_root = replace(worktree_root, ?, ?)",
            (before, after, before, after),
        )
        for (run_id,) in connection.execute("SELECT run_id FROM journal_runs").fetchall():
            _chain_anew(connection, run_id, before, after)
    connection.close()


def _chain_anew(connection: sqlite3.Connection, run_id: str, before: str, after: str) -> None:
    last = genesis(run_id)
    rows = connection.execute("SELECT seq, body FROM events WHERE run_id = ? ORDER BY seq", (run_id,)).fetchall()
    for seq, body in rows:
        moved = body.replace(before, after)
        last = link(last, seq, moved.encode())
        connection.execute(
            "UPDATE events SET body = ?, hash = ? WHERE run_id = ? AND seq = ?", (moved, last, run_id, seq)
        )
    connection.execute(
        "UPDATE journal_runs AS r SET head_hash = (SELECT hash FROM events WHERE run_id = r.run_id AND seq = r.head) "
        "WHERE run_id = ?",
        (run_id,),
    )
