"""The packs of a run are read some at a time, as many as their bytes allow."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from holdfast.persistence import carried_files
from holdfast.persistence.carried_files import read_packs
from holdfast.persistence.db import Database
from holdfast.persistence.statements import NewTreePack, insert_tree_pack
from holdfast.runtime.journal import Journal


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    db = Database(database_url)
    await db.init_schema()
    yield db
    await db.dispose()


async def write_packs(db: Database, sizes: list[int]) -> None:
    journal = Journal(db.store)
    packs = [NewTreePack("r", number, "step", [], {}, bytes(size)) for number, size in enumerate(sizes)]
    await journal.append("r", [], rows=[insert_tree_pack(pack) for pack in packs])
    await journal.close()


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([4, 4, 4, 4], [[0, 1], [2, 3]]),
        ([1, 30, 1, 1], [[0], [1], [2, 3]]),
        ([30, 30], [[0], [1]]),
        ([0] * 7, [[0, 1, 2, 3, 4], [5, 6]]),
    ],
    ids=["none", "full", "one-too-big", "all-too-big", "many"],
)
async def test_packs_are_read_by_their_bytes(
    db: Database, monkeypatch: pytest.MonkeyPatch, sizes: list[int], batches: list[list[int]]
) -> None:
    monkeypatch.setattr(carried_files, "_BYTES_AT_ONCE", 8)
    monkeypatch.setattr(carried_files, "_PACKS_AT_ONCE", 5)
    await write_packs(db, sizes)

    found = [([row.number for row in rows], [len(row.pack) for row in rows]) async for rows in read_packs(db, "r")]

    assert [numbers for numbers, _ in found] == batches
    assert [size for _, some in found for size in some] == sizes


async def test_packs_are_let_go_of_before_the_next_are_read(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_files, "_BYTES_AT_ONCE", 8)
    await write_packs(db, [8, 8])
    held: list[list[Any]] = []

    async for rows in read_packs(db, "r"):
        assert not any(held), "those before are still in memory"
        held.append(rows)

    assert len(held) == 2


async def test_packs_that_a_phase_has_replaced_meanwhile_are_passed_over(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried_files, "_BYTES_AT_ONCE", 8)
    await write_packs(db, [8, 8, 8])
    numbers = []

    async for rows in read_packs(db, "r"):
        numbers += [row.number for row in rows]
        async with db.session() as session:
            await session.execute(text("DELETE FROM tree_packs WHERE number = 1"))
            await session.commit()

    assert numbers == [0, 2]
