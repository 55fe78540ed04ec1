"""The tables: made by many processes at once, after a kill, and never by an older version over a newer one."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError
from tests.support.crash.points import SEED
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World
from tests.support.postgres_server import fresh_schema

from holdfast import Context, run_flow
from holdfast.errors import HoldfastError
from holdfast.persistence import schema
from holdfast.persistence.db import Database
from holdfast.persistence.models import Base, RunPhaseRow, RunRow, WorkflowTemplateRow
from holdfast.runtime.checkpoint.postgres import schema as journal_schema

EIGHT = 8
LATER = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0099", "{schema.HEAD}", None, None


def upgrade() -> None:
    op.add_column("runs", sa.Column("added", sa.Text))
"""


async def up_to_date(url: str) -> Database:
    db = Database(url)
    await db.init_schema()
    return db


async def read(db: Database, sql: str) -> list[Any]:
    async with db.session() as session:
        return list(await session.execute(text(sql)))


async def test_eight_processes_make_the_tables_at_the_same_time(
    database_url: str, tmp_path: Path, zygote: Zygote
) -> None:
    world = World(database_url, tmp_path)

    children = [zygote.start(world, "init_schema") for _ in range(EIGHT)]

    assert [child.wait() for child in children] == [{"result": None}] * EIGHT
    assert await read(world.db, "SELECT version_num FROM alembic_version") == [(schema.HEAD,)]
    await world.close()


async def test_a_kill_in_the_middle_leaves_nothing_half_done(database_url: str, tmp_path: Path, zygote: Zygote) -> None:
    world = World(database_url, tmp_path)
    chance = random.Random(SEED)

    for _ in range(4):
        child = zygote.start(world, "init_schema_and_die", chance.randrange(1, 40))
        assert child.wait() in (None, {"result": None})  # killed at a statement, or done before

    await world.db.init_schema()
    assert await read(world.db, "SELECT version_num FROM alembic_version") == [(schema.HEAD,)]
    assert await read(world.db, "SELECT COUNT(*) FROM runs") == [(0,)]
    await world.close()


async def test_it_may_be_done_again_and_inserts_no_rows(database_url: str) -> None:
    db = await up_to_date(database_url)
    await db.init_schema()

    for table in Base.metadata.tables:
        assert await read(db, f"SELECT COUNT(*) FROM {table}") == [(0,)]
    await db.dispose()
    await db.init_schema()  # it can be used again after `dispose`
    await db.dispose()


async def test_two_databases_are_made_side_by_side_in_one_process(tmp_path: Path) -> None:
    databases = [Database(f"sqlite+aiosqlite:///{tmp_path}/{name}/holdfast.db") for name in ("a", "b", "c")]

    await asyncio.gather(*(db.init_schema() for db in databases))

    for db in databases:
        assert await read(db, "SELECT version_num FROM alembic_version") == [(schema.HEAD,)]
        await db.dispose()


async def test_on_a_server_older_versions_go_on_after_an_upgrade_that_only_adds(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_schema(postgres_url) as url:
        db = await up_to_date(url)
        await read(db, "SELECT 1")  # a worker of this version that is connected
        with monkeypatch.context() as newer:
            _make_newer(newer, tmp_path / "migrations")
            await _upgrade_elsewhere(url)

        assert await run_flow(count, run_id="connected", store=db.store) == 1
        await db.dispose()
        await db.init_schema()  # as a worker that connects again
        assert await run_flow(count, run_id="again", store=db.store) == 1
        later = journal_schema.VERSION + 1
        assert await read(db, "SELECT version_num, version FROM alembic_version, holdfast_version") == [("0099", later)]
        assert await read(db, "SELECT runs.added, events.added FROM runs, events WHERE FALSE") == []

        for changes in (f"oldest = {later}", "oldest_rows = '0099', oldest = 2"):  # as upgrades that do more than add
            async with db.session() as session:
                await session.execute(text(f"UPDATE holdfast_version SET {changes}"))
                await session.commit()
            await db.dispose()
            with pytest.raises(HoldfastError) as error:
                await db.init_schema()
            assert error.value.code == "store_newer"
        await db.dispose()


async def count(ctx: Context) -> int:
    return await ctx.step("one", lambda: 1)


def _make_newer(newer: pytest.MonkeyPatch, folder: Path) -> None:
    """Make this process one of a later version, whose upgrades only add."""
    shutil.copytree(schema._MIGRATIONS, folder)
    (folder / "versions" / "0099_later.py").write_text(LATER)
    newer.setattr(schema, "_MIGRATIONS", folder)
    newer.setattr(schema, "HEAD", "0099")
    newer.setattr(journal_schema, "UPGRADES", (*journal_schema.UPGRADES, ("ALTER TABLE events ADD COLUMN added text",)))
    newer.setattr(journal_schema, "VERSION", journal_schema.VERSION + 1)


async def _upgrade_elsewhere(url: str) -> None:
    db = await up_to_date(url)
    await db.dispose()


async def test_a_newer_database_is_left_alone(database_url: str) -> None:
    db = await up_to_date(database_url)
    async with db.session() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        if db.path is None:
            await session.execute(text("UPDATE holdfast_version SET oldest_rows = '9999'"))
        await session.commit()

    with pytest.raises(HoldfastError) as error:
        await db.init_schema()

    assert error.value.code == "store_newer"
    assert await read(db, "SELECT version_num FROM alembic_version") == [("9999",)]
    await db.dispose()


def test_the_newest_migration_is_the_one_that_the_code_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema._MIGRATIONS))

    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]


async def test_the_models_are_what_the_migrations_make(database_url: str) -> None:
    db = await up_to_date(database_url)
    engine = create_engine(db._engine_url(is_async=False))

    with engine.connect() as connection:
        differences = compare_metadata(_context(connection), Base.metadata)
        names = set(inspect(connection).get_table_names())

    engine.dispose()
    await db.dispose()
    assert differences == []
    assert set(Base.metadata.tables) <= names


def _context(connection: Connection) -> MigrationContext:
    owners_tables = {"events"}  # the runtime's own, mapped here to be read

    def is_ours(item: Any, name: str | None, kind: str, is_reflected: bool, _other: Any) -> bool:
        if kind == "table":
            return name in Base.metadata.tables and name not in owners_tables
        return True

    return MigrationContext.configure(
        connection, opts={"include_object": is_ours, "compare_type": True, "compare_server_default": False}
    )


async def test_rows_have_defaults_and_foreign_keys(database_url: str) -> None:
    db = await up_to_date(database_url)
    async with db.session() as session:
        session.add(WorkflowTemplateRow(id="t", name="n", version="1", hash="h", definition={}, created_at="now"))
        await session.flush()
        session.add(RunRow(id="r", template_id="t", template_hash="h", state="running", repo_path="/x"))
        await session.flush()
        session.add(RunPhaseRow(run_id="r", phase_key="spec", state="pending"))
        await session.commit()
        run = await session.get(RunRow, "r")
        assert run is not None
        assert (run.base_branch, run.title, run.budget_micros, run.is_simulated) == ("main", "", None, 0)

    for row in (
        RunRow(id="s", template_id="no such template"),
        RunPhaseRow(run_id="no such run", phase_key="spec"),
        WorkflowTemplateRow(id="u", hash="h"),
    ):
        async with db.session() as session:
            session.add(row)
            with pytest.raises(IntegrityError):
                await session.commit()
    async with db.session() as session:
        session.add(WorkflowTemplateRow(id="v", name="n", version="1", hash="other"))  # unique by hash only
        await session.commit()
    await db.dispose()


@pytest.mark.parametrize("url", ["mysql://host/name", "holdfast.db", ""])
def test_another_kind_of_address_is_refused(url: str) -> None:
    with pytest.raises(HoldfastError) as error:
        Database(url)

    assert error.value.code == "config_invalid"


async def test_a_driver_in_the_address_is_accepted(postgres_url: str) -> None:
    from tests.support.postgres_server import fresh_schema

    with fresh_schema(postgres_url) as url:
        db = await up_to_date(url.replace("postgresql://", "postgresql+psycopg://"))
        assert await read(db, "SELECT COUNT(*) FROM runs") == [(0,)]
        await db.dispose()
