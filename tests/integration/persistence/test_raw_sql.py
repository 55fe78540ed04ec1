"""Whether a process drives a run is known to others, and asking does not disturb it."""

from pathlib import Path

from holdfast.config import Config
from holdfast.persistence.db import Database
from holdfast.persistence.raw_sql import find_driven
from holdfast.runtime.stores import open_store


async def test_a_run_is_driven_from_its_claim_to_its_release(database_url: str, tmp_path: Path) -> None:
    db = Database(database_url)
    await db.init_schema()
    await db.dispose()
    config = Config(database_url=database_url, data_dir=tmp_path, workspace_root=tmp_path, config_dir=tmp_path)
    store = open_store(database_url)
    try:
        before = find_driven(["one", "two"], config=config)
        claim = store.claim("one")
        during = find_driven(["one", "two"], config=config)
        store.release(claim)
        after = find_driven(["one", "two"], config=config)
    finally:
        store.close()

    assert (before, during, after) == (set(), {"one"}, set())
