"""Alembic's entry: migrations run on the connection, and in the transaction, that `schema.upgrade_rows` has opened."""

from typing import Any

from alembic import context

from holdfast.persistence.migrations import fleet_models  # noqa: F401 - its tables belong to the rows' metadata
from holdfast.persistence.models import Base


def _is_ours(item: Any, _name: str | None, type_: str, _reflected: bool, _compare_to: Any) -> bool:
    return type_ != "table" or item.info.get("owner") != "runtime"


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    include_object=_is_ours,
    render_as_batch=True,
)
context.run_migrations()
