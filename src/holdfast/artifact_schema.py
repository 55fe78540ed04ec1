"""The JSON Schemas that artifacts must satisfy, found by id in several folders, and readable findings.

`dev/spec@1` is the file `dev/spec@1.json` of the first folder that has it. Nothing is ever fetched: a `$ref` stays
inside its document or names another id of the registry.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.errors import SchemaInvalid, SchemaNotFound
from holdfast.extras import name_missing_extra

with name_missing_extra(__name__):
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    from holdfast.definitions.findings import Finding, to_findings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*@[0-9]+(\.[0-9]+)*")
# Inside the documents ids carry a scheme, so that a reference means the same in whichever document it stands.
_SCHEME = "holdfast:"
_REFERENCES = ("$ref", "$dynamicRef")
_HOLDS_DATA = frozenset({"const", "enum", "default", "examples"})

FORMATS = FormatChecker(["uuid", "date", "time", "email", "ipv4", "ipv6", "regex"])


@FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(instance: object) -> bool:
    return not isinstance(instance, str) or datetime.fromisoformat(instance).tzinfo is not None


@dataclass(frozen=True, slots=True)
class _Loaded:
    stamp: tuple[int, int, int]
    schema: dict[str, Any]


class ArtifactSchemaRegistry:
    """Schemas by id over several folders; the first folder that has an id wins. A changed file is read again."""

    def __init__(self, roots: Sequence[str | Path]) -> None:
        self.roots = tuple(Path(root) for root in roots)
        self._loaded: dict[Path, _Loaded] = {}

    def find_path(self, schema_id: str) -> Path | None:
        """Find the file of that id; `None` if there is none. Raises `SchemaInvalid` for text that is no id."""
        if not _ID.fullmatch(schema_id):
            message = f"{schema_id!r} is not a schema id."
            raise SchemaInvalid(message, hint="An id looks like dev/spec@1.", schema_id=schema_id)
        for root in self.roots:
            path = root / f"{schema_id}.json"
            if path.is_file():
                return _inside(root, path, schema_id)
        return None

    def list_ids(self) -> list[str]:
        """List every id of every folder, sorted."""
        names = {
            path.relative_to(root).as_posix().removesuffix(".json")
            for root in self.roots
            for path in root.rglob("*.json")
        }
        return sorted(name for name in names if _ID.fullmatch(name))

    def get_schema(self, schema_id: str) -> dict[str, Any]:
        """Return the schema, as it is written but for references to other ids, which begin with `holdfast:`.

        Raises `SchemaNotFound`, or `SchemaInvalid` with the file if it, or one it refers to, cannot be used.
        """
        self._check_references(schema_id, seen=set())
        return copy.deepcopy(self._read(schema_id))

    def get_referenced(self, schema_id: str) -> dict[str, dict[str, Any]]:
        """Return the other documents a schema leads to, by the name in references. Raises as `get_schema` does."""
        seen: set[str] = set()
        self._check_references(schema_id, seen)
        named = {_named(reference) for one in seen for reference in _references(self._read(one))} - {""}
        return {f"{_SCHEME}{one}": copy.deepcopy(self._read(one)) for one in sorted(named)}

    def validate(self, schema_id: str, instance: object) -> list[Finding]:
        """Return what is wrong with JSON data by that schema, `[]` if it is valid. Raises as `get_schema` does."""
        self._check_references(schema_id, seen=set())
        registry = self._references_registry()
        validator = Draft202012Validator(self._read(schema_id), registry=registry, format_checker=FORMATS)
        try:
            return to_findings(validator.iter_errors(instance))
        except RecursionError:
            return [Finding("$", "is nested too deeply", "depth")]

    def validate_text(self, schema_id: str, text: str | bytes) -> tuple[Any, list[Finding]]:
        """Parse an artifact as it was written and check it: the data (`None` if it is not JSON) and the findings."""
        try:
            decoded = text.decode("utf-8") if isinstance(text, bytes) else text
            instance = json.loads(decoded, object_pairs_hook=_refuse_doubles, parse_constant=_refuse_constant)
        except RecursionError:
            return None, [Finding("$", "is nested too deeply", "depth")]
        except ValueError as error:
            return None, [Finding("$", f"is not JSON: {error}", "json")]
        return instance, self.validate(schema_id, instance)

    def _references_registry(self) -> Registry[Any]:
        return Registry(retrieve=self._retrieve)  # type: ignore[call-arg]  # mypy does not see attrs' alias

    def _retrieve(self, uri: str) -> Resource[Any]:
        return DRAFT202012.create_resource(self._read(uri.removeprefix(_SCHEME)))

    def _read(self, schema_id: str) -> dict[str, Any]:
        path = self.find_path(schema_id)
        if path is None:
            raise SchemaNotFound(f"There is no schema {schema_id}.", schema_id=schema_id)
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        loaded = self._loaded.get(path)
        if loaded is None or loaded.stamp != stamp:
            loaded = self._loaded[path] = _Loaded(stamp, _load_schema(path))
        return loaded.schema

    def _check_references(self, schema_id: str, seen: set[str]) -> None:
        if schema_id in seen:
            return
        seen.add(schema_id)
        schema = self._read(schema_id)
        resolver = self._references_registry().resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            named = _named(reference)
            if named and self.find_path(named):
                self._check_references(named, seen)
            try:
                resolver.lookup(reference)
            except Unresolvable as error:
                message = f"{self.find_path(schema_id)}: $ref {reference.removeprefix(_SCHEME)} points at nothing."
                raise SchemaInvalid(message, schema_id=schema_id) from error


def _inside(root: Path, path: Path, schema_id: str) -> Path:
    if path.resolve().is_relative_to(root.resolve()):
        return path
    raise SchemaInvalid(f"{path} is a link that leads out of {root}.", hint="Copy the file.", schema_id=schema_id)


def _load_schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(path.read_bytes(), object_pairs_hook=_refuse_doubles)
    except (OSError, ValueError, RecursionError) as error:
        raise SchemaInvalid(f"{path} cannot be read as JSON: {error}.", file=str(path)) from error
    if not isinstance(schema, dict):
        raise SchemaInvalid(f"{path} should hold one JSON object.", file=str(path))
    if schema.get("$schema", DIALECT) != DIALECT:
        raise SchemaInvalid(f"{path} is not of draft 2020-12: its $schema is {schema['$schema']!r}.", file=str(path))
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        reason = f"{error.json_path}: {error.message[:300]}" if isinstance(error, SchemaError) else "nested too deeply"
        raise SchemaInvalid(f"{path} is not a JSON Schema: {reason}.", file=str(path)) from error
    _qualify_references(schema, path)
    return schema


def _subschemas(node: object) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema that can hold a reference; what is data in a schema is left out."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting.extend(value for key, value in current.items() if key not in _HOLDS_DATA)
        elif isinstance(current, list):
            waiting.extend(current)


def _references(schema: Mapping[str, Any]) -> list[str]:
    return sorted({node[key] for node in _subschemas(schema) for key in _REFERENCES if isinstance(node.get(key), str)})


def _named(reference: str) -> str:
    """Return the id of the document that a reference leads to; "" if it stays in its own."""
    return reference.partition("#")[0].removeprefix(_SCHEME)


def _qualify_references(schema: dict[str, Any], path: Path) -> None:
    for node in _subschemas(schema):
        for key in _REFERENCES:
            reference = node.get(key)
            if isinstance(reference, str) and not reference.startswith("#"):
                node[key] = _qualify(reference, path)


def _qualify(reference: str, path: Path) -> str:
    named, hash_sign, fragment = reference.removeprefix(_SCHEME).partition("#")
    if not _ID.fullmatch(named):
        message = f"{path}: $ref {reference} is neither inside the document (#…) nor a schema id."
        raise SchemaInvalid(message, file=str(path))
    return f"{_SCHEME}{named}{hash_sign}{fragment}"


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {doubled!r} is given twice in one object")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
