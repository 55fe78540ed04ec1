"""Reading what a run brings along to any machine: its schemas, its report, its files as git packs."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, select

from holdfast.persistence.db import Database
from holdfast.persistence.models import (
    BasePackRow,
    RunBaseRow,
    RunImageRow,
    RunReportRow,
    RunSchemaRow,
    TreePackRow,
)

_PACKS_AT_ONCE = 64
_BYTES_AT_ONCE = 32 * 1024**2


_SCHEMAS = select(RunSchemaRow).where(RunSchemaRow.run_id == bindparam("run_id"))  # made once, it is asked for often


@dataclass(frozen=True)
class PackLabel:
    """What a pack of a run's files holds, without its bytes."""

    number: int
    kind: str
    objects: tuple[str, ...]
    refs: dict[str, str]


async def read_schemas(db: Database, run_id: str) -> dict[str, dict[str, Any]]:
    """Read the schemas that were pinned with a run; none for a run that an earlier version made."""
    async with db.session() as session:
        rows = await session.scalars(_SCHEMAS, {"run_id": run_id})
        return {row.schema_id: row.document for row in rows if isinstance(row.document, dict)}


async def find_image(db: Database, run_id: str, digest: str) -> RunImageRow | None:
    """Find an image of a run by the hash of its bytes."""
    async with db.session() as session:
        return await session.get(RunImageRow, (run_id, digest))


async def find_report(db: Database, run_id: str) -> dict[str, Any] | None:
    """Find the final report of a run."""
    async with db.session() as session:
        row = await session.get(RunReportRow, run_id)
        return row.report if row is not None and isinstance(row.report, dict) else None


async def find_base(db: Database, run_id: str) -> RunBaseRow | None:
    """Find where a run's files came from; `None` for a run that an earlier version made."""
    async with db.session() as session:
        return await session.get(RunBaseRow, run_id)


async def list_packs(db: Database, run_id: str) -> list[PackLabel]:
    """List the packs of a run's files in the order in which they build on each other."""
    query = select(TreePackRow.number, TreePackRow.kind, TreePackRow.objects, TreePackRow.refs)
    async with db.session() as session:
        rows = await session.execute(query.where(TreePackRow.run_id == run_id).order_by(TreePackRow.number))
        return [PackLabel(number, kind, tuple(objects), dict(refs)) for number, kind, objects, refs in rows]


async def read_packs(db: Database, run_id: str) -> AsyncIterator[list[TreePackRow]]:
    """Yield the packs of a run's files in the order in which they build on each other, some at a time: as many as their
    bytes allow, and one that is bigger alone. The list that was yielded is emptied before the next ones are read.

    If a phase ends meanwhile, its pack comes after those of its steps that were read before.
    """
    last = -1
    while True:
        later = select(TreePackRow).where(TreePackRow.run_id == run_id, TreePackRow.number > last)
        sizes = later.with_only_columns(TreePackRow.number, func.length(TreePackRow.pack))
        async with db.session() as session:
            found = list(await session.execute(sizes.order_by(TreePackRow.number).limit(_PACKS_AT_ONCE)))
            if not found:
                return
            last = _find_last(found)
            rows = list(await session.scalars(later.where(TreePackRow.number <= last).order_by(TreePackRow.number)))
        yield rows
        rows.clear()


def _find_last(sizes: Sequence[Any]) -> int:
    """Return the number of the last pack that is read together with the first one."""
    last, total = sizes[0]
    for number, size in sizes[1:]:
        total += size
        if total > _BYTES_AT_ONCE:
            break
        last = number
    return int(last)


async def count_base_parts(db: Database, digest: str) -> int:
    async with db.session() as session:
        query = select(func.count()).select_from(BasePackRow).where(BasePackRow.digest == digest)
        return int(await session.scalar(query) or 0)


async def read_base_parts(db: Database, digest: str) -> AsyncIterator[bytes]:
    """Yield the parts of a base pack in order, one at a time."""
    for part in range(await count_base_parts(db, digest)):
        async with db.session() as session:
            row = await session.get(BasePackRow, (digest, part))
        if row is not None:
            yield row.data
