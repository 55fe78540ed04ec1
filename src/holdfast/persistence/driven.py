"""Which runs a living process drives, found out without disturbing it: a claim would."""

import os
from collections.abc import Collection
from pathlib import Path

from holdfast.config import Config, load_config
from holdfast.persistence.plain import query

_LIVING = "SELECT run_id, owner FROM journal_runs WHERE owner IS NOT NULL AND lease_until > clock_timestamp()"


def find_driven(run_ids: Collection[str], *, config: Config | None = None) -> set[str]:
    """Those of these runs that somebody drives now; one of which that cannot be known counts as driven."""
    config = config or load_config()
    if not run_ids:
        return set()
    if config.database_path is None:
        from holdfast.runtime.checkpoint import owners

        rows = {str(row["run_id"]): owners.from_text(row["owner"]) for row in query(_LIVING, config=config)}
        return {run_id for run_id, owner in rows.items() if owner is None or not owners.is_dead(owner)} & set(run_ids)
    from holdfast.runtime.checkpoint.locks import is_held

    folder = Path(f"{os.path.realpath(config.database_path)}-locks")
    return {run_id for run_id in run_ids if is_held(folder, run_id)}
