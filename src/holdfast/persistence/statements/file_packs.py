"""Writes of the tables of what any machine needs of a run: its schemas, images, report, and its files as git packs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.images import Image
from holdfast.persistence.statements.table import insert, now_text, to_params, update
from holdfast.runtime.checkpoint.base import Statement

PART_BYTES = 1024**2


@dataclass(frozen=True)
class NewTreePack:
    """A pack of a run's files; `number` orders those of one run, each thin against the ones before it."""

    run_id: str
    number: int
    kind: str
    objects: Sequence[str]
    refs: Mapping[str, str]
    pack: bytes


@dataclass(frozen=True)
class NewRunBase:
    """Where a run's files came from, and what stands for them elsewhere."""

    run_id: str
    origin: str
    commit_id: str = ""
    digest: str = ""
    prefix: str = ""
    is_private: bool = False


def pin_schemas(run_id: str, schemas: Mapping[str, Any]) -> list[Statement]:
    """Insert the schemas that a run's artifacts are checked by."""
    return [
        insert("run_schemas", {"run_id": run_id, "schema_id": schema_id, "document": document})
        for schema_id, document in schemas.items()
    ]


def insert_images(run_id: str, images: Sequence[Image]) -> list[Statement]:
    """Insert the images of a run; one that is there is the same."""
    return [
        insert(
            "run_images",
            {
                "run_id": run_id,
                "digest": image.label.digest,
                "media_type": image.label.media_type,
                "data": image.data,
            },
            or_ignore_on="run_id, digest",
        )
        for image in images
    ]


def put_report(run_id: str, report: Mapping[str, Any]) -> Statement:
    """Insert the report of a run, or replace it: one that was retried ends again."""
    sql = (
        "INSERT INTO run_reports (run_id, report) VALUES (:run_id, :report) "
        "ON CONFLICT (run_id) DO UPDATE SET report = excluded.report"
    )
    return Statement(sql, to_params({"run_id": run_id, "report": _without_nul(dict(report))}))


def _without_nul(value: Any) -> Any:
    """Return the data with NUL as its escape: Postgres holds none in a text."""
    if isinstance(value, str):
        return value.replace("\0", "\\u0000")
    if isinstance(value, dict):
        return {key: _without_nul(item) for key, item in value.items()}
    return [_without_nul(item) for item in value] if isinstance(value, list) else value


def put_base(base: NewRunBase) -> Statement:
    """Insert what stands for a run's base; what was known of it by its starter stays where nothing better is said."""
    values = {**vars(base), "place": ""}
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    sql = (
        f"INSERT INTO run_bases ({names}) VALUES ({marks}) ON CONFLICT (run_id) DO UPDATE SET "  # noqa: S608 - ours
        "commit_id = excluded.commit_id, prefix = excluded.prefix, is_private = excluded.is_private, "
        "digest = CASE WHEN excluded.digest = '' THEN run_bases.digest ELSE excluded.digest END"
    )
    return Statement(sql, to_params(values))


def set_place(run_id: str, place: str) -> Statement:
    """Note whose worktree the run works in from now on."""
    return update("run_bases", {"place": place}, {"run_id": run_id}, expect=None)


def insert_base_part(digest: str, part: int, data: bytes) -> Statement:
    """Insert a part of a base pack; one that is there is the same."""
    values = {"digest": digest, "part": part, "data": data, "used_at": now_text()}
    return insert("base_packs", values, or_ignore_on="digest, part")


def use_base(digest: str, parts: int) -> Statement:
    """Note that a base pack is used, so that no clean-up takes it; refused if it is not there whole."""
    return update("base_packs", {"used_at": now_text()}, {"digest": digest}, expect=parts)


def insert_tree_pack(pack: NewTreePack) -> Statement:
    return insert("tree_packs", {**vars(pack), "created_at": now_text()})


def measure_pack(statement: Statement) -> int | None:
    """Return the bytes of the pack that a statement inserts; `None` if it inserts none."""
    is_pack = statement.sql.startswith("INSERT INTO tree_packs")
    return len(statement.params["pack"]) if is_pack and "pack" in statement.params else None


def drop_step_packs(run_id: str, before: int) -> Statement:
    """Delete the packs of single steps before a number, whose place a phase's pack takes."""
    sql = "DELETE FROM tree_packs WHERE run_id = :run_id AND kind = 'step' AND number < :before"
    return Statement(sql, {"run_id": run_id, "before": before}, expect=None)


_COPIED = {
    "run_images": "digest, media_type, data",
    "run_schemas": "schema_id, document",
    "tree_packs": "number, kind, objects, refs, pack, created_at",
    "run_bases": "origin, place, commit_id, digest, prefix, is_private",
}


def copy_files(run_id: str, origin: str) -> list[Statement]:
    """Insert for a fork the schemas and files that the run it came from has; one that is there is the same."""
    return [
        Statement(
            f"INSERT INTO {table} (run_id, {columns}) "  # noqa: S608 - names of ours
            f"SELECT :run_id, {columns} FROM {table} WHERE run_id = :origin "
            "ON CONFLICT DO NOTHING",
            {"run_id": run_id, "origin": origin},
            expect=None,
        )
        for table, columns in _COPIED.items()
    ]


def drop_unused_bases(before: str) -> Statement:
    """Delete base packs that no run has any more and that nobody has begun to use since a time."""
    sql = (
        "DELETE FROM base_packs WHERE used_at < :before "
        "AND NOT EXISTS (SELECT 1 FROM run_bases AS r WHERE r.digest = base_packs.digest)"
    )
    return Statement(sql, {"before": before}, expect=None)
