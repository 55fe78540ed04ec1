"""A server that cannot open its database says so in one line."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_damaged_database_is_named_and_nothing_is_announced(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"SQLite format 3\0" + b"\xa5" * 8000)
    env = {**os.environ, "HOLDFAST_DATA_DIR": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "serve", "--port", "0"], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert "store_unreadable" in done.stderr
    assert "Traceback" not in done.stderr
