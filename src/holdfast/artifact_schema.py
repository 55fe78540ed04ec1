"""The JSON Schemas that artifacts must satisfy, found by id in several folders, and readable findings.

`dev/spec@1` is the file `dev/spec@1.json` of the first folder that has it. Nothing is ever fetched: a `$ref` stays
inside its document or names another id of the registry.
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    from holdfast.definitions.files import is_below, is_plain_file, read_file
    from holdfast.definitions.findings import Finding, to_findings
    from holdfast.definitions.patterns import PatternRefused, compile_pattern
    from holdfast.definitions.schema_validator import (
        HOLDS_DATA,
        BoundedValidator,
        TooMuchWork,
        Work,
        find_errors,
        without_dialect,
    )

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*@[0-9]+(\.[0-9]+)*")
# Inside the documents ids carry a scheme, so that a reference means the same in whichever document it stands.
_SCHEME = "holdfast:"
_REFERENCES = ("$ref", "$dynamicRef")
# A schema may be a stranger's. Within these bounds it is read in a second at most; the ones people write by hand have
# a few hundred values. An artifact has 16 MB at most, so nothing can have more items than that.
MAX_SCHEMA_BYTES = 300_000
MAX_SCHEMA_VALUES = 10_000
MAX_SCHEMA_DEPTH = 60
MAX_REFERENCED = 50
_MAX_LEAST = 1_000_000
# Where these two meet, the library matches the patterns itself, with Python's own engine.
_NOT_TOGETHER = ("patternProperties", "unevaluatedProperties")
_LEAST = ("minLength", "minItems", "minProperties", "minContains")

FORMATS = FormatChecker(["uuid", "date", "time", "email", "ipv4", "ipv6"])


@FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(instance: object) -> bool:
    return not isinstance(instance, str) or datetime.fromisoformat(instance).tzinfo is not None


@FORMATS.checks("regex", raises=PatternRefused)
def _is_regex(instance: object) -> bool:
    return not isinstance(instance, str) or compile_pattern(instance) is not None


@dataclass(frozen=True, slots=True)
class _Loaded:
    stamp: tuple[int, int, int]
    schema: dict[str, Any]
    checked: dict[str, Any]
    """The schema as it is checked by: without the name of its dialect."""


class ArtifactSchemaRegistry:
    """Schemas by id over several folders; the first folder that has an id wins. A changed file is read again."""

    def __init__(self, roots: Sequence[str | Path]) -> None:
        self.roots = tuple(Path(root) for root in roots)
        self._loaded: dict[Path, _Loaded] = {}
        self._pinned: dict[str, _Loaded] = {}

    def with_pinned(self, schemas: Mapping[str, dict[str, Any]]) -> "ArtifactSchemaRegistry":
        """Return a registry in which these documents count, whatever the folders have under their ids.

        Raises `SchemaInvalid` for a document that cannot be used.
        """
        registry = ArtifactSchemaRegistry(self.roots)
        registry._loaded = self._loaded
        for schema_id, schema in schemas.items():
            _check_schema(schema, f"The stored schema {schema_id}")
            registry._pinned[schema_id] = _Loaded((0, 0, 0), schema, without_dialect(schema))
        return registry

    def collect(self, schema_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return these schemas and all that they lead to, by id. Raises as `get_schema` does."""
        named = {one for schema_id in schema_ids for one in self._check(schema_id)}
        return {one: copy.deepcopy(self._read(one).schema) for one in sorted(named)}

    def find_path(self, schema_id: str) -> Path | None:
        """Find the file of that id; `None` if there is none. Raises `SchemaInvalid` for text that is no id."""
        if not _ID.fullmatch(schema_id):
            message = f"{schema_id!r} is not a schema id."
            raise SchemaInvalid(message, hint="An id looks like dev/spec@1.", schema_id=schema_id)
        for root in self.roots:
            path = root / f"{schema_id}.json"
            if is_plain_file(path):
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
        self._check(schema_id)
        return copy.deepcopy(self._read(schema_id).schema)

    def get_referenced(self, schema_id: str) -> dict[str, dict[str, Any]]:
        """Return the other documents a schema leads to, by the name in references. Raises as `get_schema` does."""
        seen = self._check(schema_id)
        named = {_named(reference) for one in seen for reference in _references(self._read(one).schema)} - {""}
        return {f"{_SCHEME}{one}": copy.deepcopy(self._read(one).schema) for one in sorted(named)}

    def validate(self, schema_id: str, instance: object) -> list[Finding]:
        """Return what is wrong with JSON data by that schema, `[]` if it is valid. Raises as `get_schema` does."""
        self._check(schema_id)
        registry = self._references_registry()
        validator = BoundedValidator(self._read(schema_id).checked, registry=registry, format_checker=FORMATS)
        try:
            return to_findings(find_errors(validator, instance, Work()))
        except RecursionError:
            return [Finding("$", "is nested too deeply", "depth")]
        except TooMuchWork:
            return [Finding("$", "takes too much work to be checked by this schema", "work")]

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
        return DRAFT202012.create_resource(self._read(uri.removeprefix(_SCHEME)).checked)

    def _read(self, schema_id: str) -> _Loaded:
        if (pinned := self._pinned.get(schema_id)) is not None:
            return pinned
        path = self.find_path(schema_id)
        if path is None:
            raise SchemaNotFound(f"There is no schema {schema_id}.", schema_id=schema_id)
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        loaded = self._loaded.get(path)
        if loaded is None or loaded.stamp != stamp:
            schema = _load_schema(path)
            loaded = self._loaded[path] = _Loaded(stamp, schema, without_dialect(schema))
        return loaded

    def _check(self, schema_id: str) -> set[str]:
        """Return the id and those it leads to. Raises `SchemaInvalid` if they cannot be used together."""
        seen: set[str] = set()
        self._check_references(schema_id, seen)
        schemas = [self._read(one).checked for one in seen]
        if all(any(_holds(schema, keyword) for schema in schemas) for keyword in _NOT_TOGETHER):
            message = f"Schema {schema_id}: {' and '.join(_NOT_TOGETHER)} do not go together here."
            raise SchemaInvalid(message, hint="Use additionalProperties.", schema_id=schema_id)
        return seen

    def _check_references(self, schema_id: str, seen: set[str]) -> None:
        if schema_id in seen:
            return
        seen.add(schema_id)
        if len(seen) > MAX_REFERENCED:
            raise SchemaInvalid(f"Schema {schema_id} leads to more than {MAX_REFERENCED} others.", schema_id=schema_id)
        schema = self._read(schema_id).checked
        resolver = self._references_registry().resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            named = _named(reference)
            if named and (named in self._pinned or self.find_path(named)):
                self._check_references(named, seen)
            try:
                resolver.lookup(reference)
            except Unresolvable as error:
                place = schema_id if schema_id in self._pinned else self.find_path(schema_id)
                message = f"{place}: $ref {reference.removeprefix(_SCHEME)} points at nothing."
                raise SchemaInvalid(message, schema_id=schema_id) from error


def _inside(root: Path, path: Path, schema_id: str) -> Path:
    if is_below(path, root):
        return path
    raise SchemaInvalid(f"{path} is a link that leads out of {root}.", hint="Copy the file.", schema_id=schema_id)


def _load_schema(path: Path) -> dict[str, Any]:
    try:
        content = read_file(path, MAX_SCHEMA_BYTES)
        schema = json.loads(content, object_pairs_hook=_refuse_doubles, parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise SchemaInvalid(f"{path} cannot be read as JSON: {error}.", file=str(path)) from error
    _check_schema(schema, str(path))
    _qualify_references(schema, str(path))
    return dict(schema)


def _check_schema(schema: Any, origin: str) -> None:
    """Raise `SchemaInvalid` unless the data is a schema that can be used; `origin` says where it stands."""
    if not isinstance(schema, dict):
        raise SchemaInvalid(f"{origin} should hold one JSON object.", file=origin)
    if schema.get("$schema", DIALECT) != DIALECT:
        raise SchemaInvalid(f"{origin} is not of draft 2020-12: its $schema is {schema['$schema']!r}.", file=origin)
    if reason := _find_excess(schema):
        raise SchemaInvalid(f"{origin} is too much for a schema: {reason}.", file=origin)
    digest = hashlib.sha256(json.dumps(schema).encode()).digest()
    if digest in _USABLE:
        return
    try:
        # Without formats: whether a pattern can be used is looked at below, by the engine that will use it.
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker([]))
    except SchemaError as error:
        reason = f"{error.json_path}: {error.message[:300]}"
        raise SchemaInvalid(f"{origin} is not a JSON Schema: {reason}.", file=origin) from error
    _check_patterns(schema, origin)
    if len(_USABLE) >= _MOST_USABLE:
        _USABLE.clear()
    _USABLE.add(digest)


_USABLE: set[bytes] = set()
"""Digests of the schemas that were found usable: each run reads the same few, and the check takes 20 ms."""
_MOST_USABLE = 1000


def _find_excess(schema: object) -> str:
    """Say what is too much of a schema, or nothing."""
    waiting: list[tuple[object, int]] = [(schema, 1)]
    seen = 0
    while waiting:
        node, depth = waiting.pop()
        seen += 1
        if seen > MAX_SCHEMA_VALUES:
            return f"it has more than {MAX_SCHEMA_VALUES} values"
        if depth > MAX_SCHEMA_DEPTH:
            return f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep"
        if isinstance(node, dict):
            for key in _LEAST:
                if isinstance(node.get(key), int | float) and node[key] > _MAX_LEAST:
                    return f"no artifact can satisfy its {key}"
            waiting.extend((value, depth + 1) for value in node.values())
        elif isinstance(node, list):
            waiting.extend((value, depth + 1) for value in node)
    return ""


def _check_patterns(schema: dict[str, Any], origin: str) -> None:
    for node in _subschemas(schema):
        by_name = node.get("patternProperties")
        patterns = [node.get("pattern"), *(by_name if isinstance(by_name, dict) else ())]
        for pattern in (one for one in patterns if isinstance(one, str)):
            try:
                compile_pattern(pattern)
            except PatternRefused as refused:
                message = f"{origin}: the pattern {pattern[:80]!r} cannot be used: {refused}."
                raise SchemaInvalid(message, hint="Patterns are matched by RE2.", file=origin) from refused


def _holds(schema: dict[str, Any], keyword: str) -> bool:
    return any(keyword in node for node in _subschemas(schema))


def _subschemas(node: object) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema that can hold a reference; what is data in a schema is left out."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting.extend(value for key, value in current.items() if key not in HOLDS_DATA)
        elif isinstance(current, list):
            waiting.extend(current)


def _references(schema: Mapping[str, Any]) -> list[str]:
    return sorted({node[key] for node in _subschemas(schema) for key in _REFERENCES if isinstance(node.get(key), str)})


def _named(reference: str) -> str:
    """Return the id of the document that a reference leads to; "" if it stays in its own."""
    return reference.partition("#")[0].removeprefix(_SCHEME)


def _qualify_references(schema: dict[str, Any], origin: str) -> None:
    for node in _subschemas(schema):
        for key in _REFERENCES:
            reference = node.get(key)
            if isinstance(reference, str) and not reference.startswith("#"):
                node[key] = _qualify(reference, origin)


def _qualify(reference: str, origin: str) -> str:
    named, hash_sign, fragment = reference.removeprefix(_SCHEME).partition("#")
    if not _ID.fullmatch(named):
        message = f"{origin}: $ref {reference} is neither inside the document (#…) nor a schema id."
        raise SchemaInvalid(message, file=origin)
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
