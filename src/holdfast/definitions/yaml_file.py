"""Loads definitions from YAML files so that every fault is reported with file, line and field.

The YAML is read node by node first: the nodes know their lines, show keys written twice, and reveal aliases that
would expand without end, none of which can be seen in the data they become.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.extras import name_missing_extra

with name_missing_extra(__name__):
    import yaml
    from pydantic import ValidationError

    from holdfast.definitions.base import Definition, Loc
    from holdfast.definitions.files import TooLarge, is_below, read_file

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# A file within these bounds loads in about a second at worst; a small file of aliases can stand for gigabytes.
MAX_FILE_BYTES = 1_000_000
MAX_NODES = 20_000
MAX_DEPTH = 30
MAX_FILES = 500
# A file that is wrong all over is told so in its first problems; the rest helps nobody and takes seconds.
MAX_PROBLEMS = 100
_MAX_SUGGESTIONS = 20
_MAX_NUMBER_CHARS = 100
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MAX_CACHED_CHARS = 32_000


class Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int | str: ...


DefinitionT = TypeVar("DefinitionT", bound=Definition)
NamedT = TypeVar("NamedT", bound=Named)


FindFaults = Callable[[DefinitionT | Mapping[str, Any]], Iterable[tuple[Loc, str]]]


@dataclass(frozen=True, slots=True)
class DefinitionProblem:
    """One thing that is wrong in a file: on which line, in which field, and what."""

    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.message}" if self.field else f"line {self.line}: {self.message}"


class _Unusable(Exception):
    def __init__(self, *problems: DefinitionProblem) -> None:
        self.problems = problems


def load_definition(path: Path, model: type[DefinitionT], fault: type[HoldfastError]) -> DefinitionT:
    """Read one definition from a YAML file.

    Raises `fault` with the facts `file` and `problems`: all of a file's problems at once, each a `DefinitionProblem`.
    """
    try:
        text = _read_text(path)
        return (_parse_once if len(text) <= _MAX_CACHED_CHARS else _parse)(text, model)
    except _Unusable as unusable:
        first = "; ".join(map(str, unusable.problems[:5]))
        more = f"; and {len(unusable.problems) - 5} more" if len(unusable.problems) > 5 else ""
        raise fault(f"{path}: {first}{more}.", file=str(path), problems=list(unusable.problems)) from unusable


def check_definition_file(
    path: Path,
    model: type[DefinitionT],
    find_faults: FindFaults[DefinitionT],
) -> tuple[DefinitionT | None, list[DefinitionProblem]]:
    """Return a file's definition and everything that is wrong with it, as `check_definition` does."""
    try:
        text = _read_text(path)
    except _Unusable as unusable:
        return None, list(unusable.problems)
    return check_definition(text, model, find_faults)


def check_definition(
    source: str | Mapping[str, object],
    model: type[DefinitionT],
    find_faults: FindFaults[DefinitionT],
) -> tuple[DefinitionT | None, list[DefinitionProblem]]:
    """Return a definition that is in no file, and everything that is wrong with it, in the order of the lines.

    `find_faults` gets the definition, or its plain data where a field is wrong: then it finds what it can. What is no
    text has no lines: its problems are all on line 1.
    """
    line_of: dict[Loc, int] = {}
    try:
        content: object = source
        if isinstance(source, str):
            content, line_of = _read_yaml(source)
    except _Unusable as unusable:
        return None, list(unusable.problems)
    definition: DefinitionT | None = None
    problems: list[DefinitionProblem] = []
    try:
        definition = _validate(content, line_of, model)
    except _Unusable as unusable:
        problems += unusable.problems
    if definition is not None or isinstance(content, dict):
        faults = find_faults(definition if definition is not None else content)  # type: ignore[arg-type]  # a dict
        problems += [DefinitionProblem(_find_line(loc, line_of), _field(loc), message) for loc, message in faults]
    return definition, sorted(dict.fromkeys(problems), key=lambda problem: problem.line)


def _parse(text: str, model: type[DefinitionT]) -> DefinitionT:
    return _validate(*_read_yaml(text), model)


# By the text itself: a changed file is never taken for what it was. Definitions are frozen, so all may share one.
_parse_once = functools.lru_cache(maxsize=256)(_parse)


def load_definitions_from_dir(
    folder: Path, load_file: Callable[[Path], NamedT], fault: type[HoldfastError], *, bounds: Path | None = None
) -> dict[Path, NamedT]:
    """Load every `*.yaml` and `*.yml` file of a folder, in the order of their names; folders inside are not read.

    Raises `fault` for a folder that cannot be read, for a name and version that stands in two files, for more files
    than anybody writes, and for a link that leads out of `bounds`: what a stranger's link leads to is never opened.
    """
    try:
        files = sorted(entry for entry in folder.iterdir() if _is_definition_file(entry))
    except OSError as error:
        raise fault(f"The folder {folder} cannot be read: {error.strerror}.", file=str(folder), problems=[]) from error
    if len(files) > MAX_FILES:
        raise fault(f"The folder {folder} holds more than {MAX_FILES} files.", file=str(folder), problems=[])
    for file in files:
        if bounds is not None and not is_below(file, bounds):
            message = f"{file} is a link that leads out of {bounds}."
            raise fault(message, hint="Copy the file.", file=str(file), problems=[])
    loaded: dict[tuple[str, str], Path] = {}
    definitions: dict[Path, NamedT] = {}
    for file in files:
        definition = load_file(file)
        identity = (definition.name, str(definition.version))
        if identity in loaded:
            message = f"{file}: {definition.name} version {definition.version} is also in {loaded[identity]}."
            raise fault(message, hint="Give one of them another name or version.", file=str(file), problems=[])
        loaded[identity] = file
        definitions[file] = definition
    return definitions


def _is_definition_file(entry: Path) -> bool:
    return entry.suffix in (".yaml", ".yml") and not entry.name.startswith(".") and entry.is_file()


def _read_yaml(text: str) -> tuple[object, dict[Loc, int]]:
    try:
        _check_events(text)
        loader = _Loader(text)
        root = loader.get_single_node()
        line_of = dict(_walk(root)) if root is not None else {}
        return (loader.construct_document(root) if root is not None else None), line_of
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "not readable"
        raise _Unusable(DefinitionProblem(mark.line + 1 if mark else 1, "", f"this is not YAML: {reason}")) from error
    except (yaml.YAMLError, ValueError) as error:
        raise _Unusable(DefinitionProblem(1, "", f"this is not YAML: {error}")) from error
    except _NOT_CONSTRUCTED as error:
        # The library trusts a tag: `!!bool x` or `!!timestamp x` fails inside it, each in a way of its own.
        raise _Unusable(DefinitionProblem(1, "", "this is not YAML: a value is not what its tag says")) from error
    except RecursionError as error:
        raise _Unusable(DefinitionProblem(1, "", "it is nested too deeply")) from error


# The one in C reads two hundred kilobytes in a tenth of a second, the other in six.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_events(text: str) -> None:
    """Refuse what is too much or too deep while it is read, before anything is built from it."""
    depth = seen = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        seen += isinstance(event, yaml.NodeEvent)
        line = event.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise _Unusable(DefinitionProblem(line, "", "it is nested too deeply"))
        if seen > 2 * MAX_NODES:  # keys count here as well
            raise _Unusable(DefinitionProblem(line, "", f"it has more than {MAX_NODES} values"))


_NOT_CONSTRUCTED = (KeyError, IndexError, AttributeError, TypeError, OverflowError)


def _read_text(path: Path) -> str:
    try:
        return read_file(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except TooLarge as error:
        raise _Unusable(DefinitionProblem(1, "", str(error))) from error
    except OSError as error:
        raise _Unusable(DefinitionProblem(1, "", f"it cannot be read: {error.strerror}")) from error
    except UnicodeDecodeError as error:
        raise _Unusable(DefinitionProblem(1, "", f"it is not UTF-8: {error.reason} at byte {error.start}")) from error


def _walk(root: yaml.Node) -> Iterator[tuple[Loc, int]]:
    """Yield every field of the document with its line; what an alias stands for counts each time it is used."""
    waiting: list[tuple[Loc, yaml.Node]] = [((), root)]
    seen = 0
    while waiting:
        loc, node = waiting.pop()
        seen += 1
        if seen > MAX_NODES:
            raise _Unusable(DefinitionProblem(1, "", f"it has more than {MAX_NODES} values"))
        if len(loc) > MAX_DEPTH:
            raise _Unusable(
                DefinitionProblem(node.start_mark.line + 1, "", "it is nested too deeply (an alias may hold itself)")
            )
        yield loc, node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _MAX_NUMBER_CHARS:
            raise _Unusable(DefinitionProblem(node.start_mark.line + 1, _field(loc), "this number is too long"))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(((*loc, index), item) for index, item in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            waiting.extend(_entries(loc, node))


def _entries(loc: Loc, node: yaml.MappingNode) -> Iterator[tuple[Loc, yaml.Node]]:
    first_line: dict[tuple[str, str], int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _Unusable(DefinitionProblem(line, _field(loc), "a key should be a plain word"))
        if (key.tag, key.value) in first_line:
            first = first_line[key.tag, key.value]
            raise _Unusable(
                DefinitionProblem(line, _field((*loc, key.value)), f"this key is already given on line {first}")
            )
        first_line[key.tag, key.value] = line
        yield (*loc, key.value), _at_line_of(key, value)


def _at_line_of(key: yaml.Node, value: yaml.Node) -> yaml.Node:
    # A block value starts on a later line than its key, and the key is where a person looks; an alias is elsewhere.
    if value.start_mark.line == key.start_mark.line:
        return value
    return type(value)(value.tag, value.value, key.start_mark, value.end_mark)


def _validate(content: object, line_of: dict[Loc, int], model: type[DefinitionT]) -> DefinitionT:
    if not isinstance(content, dict):
        raise _Unusable(DefinitionProblem(1, "", "it should be a mapping with the fields of one definition"))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        faults.sort(key=lambda details: _find_line(details["loc"], line_of))
        problems = [
            DefinitionProblem(
                _find_line(details["loc"], line_of),
                _field(details["loc"]),
                _readable(details) + (_suggest(details, model) if number < _MAX_SUGGESTIONS else ""),
            )
            for number, details in enumerate(faults[:MAX_PROBLEMS])
        ]
        raise _Unusable(*problems) from error


def _find_line(loc: Loc, line_of: dict[Loc, int]) -> int:
    """Find the line of the field, or of the nearest thing around it where the field itself is not written."""
    while loc and loc not in line_of:
        loc = loc[:-1]
    return line_of.get(loc, 1)


def _field(loc: Loc) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


_WORDS = {
    "missing": "this field is required",
    "extra_forbidden": "there is no such field",
    "tuple_type": "should be a list",
    "model_type": "should be a mapping",
    "string_type": "should be a string",
}


def _readable(details: "ErrorDetails") -> str:
    text = _WORDS.get(details["type"]) or details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return text[:1].lower() + text[1:]


def _suggest(details: "ErrorDetails", model: type[Definition]) -> str:
    """Return the field or value that was probably meant, as a sentence, or nothing."""
    if details["type"] == "extra_forbidden":
        return _as_clause(did_you_mean(str(details["loc"][-1]), _list_fields(model, details["loc"][:-1])))
    if details["type"] in ("enum", "literal_error"):
        allowed = re.findall(r"'([^']*)'", str(details.get("ctx", {}).get("expected", "")))
        return _as_clause(did_you_mean(str(details["input"]), allowed))
    return ""


def _as_clause(sentence: str) -> str:
    return f".{sentence}" if sentence else ""


def _list_fields(model: type[Definition], loc: Loc) -> list[str]:
    """Return the names of the fields that a mapping at this place may have."""
    schema = _json_schema(model)
    nodes: list[dict[str, Any]] = [schema]
    for part in loc:
        inner = (_step_into(node, part) for node in _resolve(nodes, schema))
        nodes = [node for node in inner if node is not None]
    return [name for node in _resolve(nodes, schema) for name in node.get("properties", {})]


@functools.lru_cache(maxsize=16)
def _json_schema(model: type[Definition]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _step_into(node: dict[str, Any], part: int | str) -> dict[str, Any] | None:
    inner = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
    return inner if isinstance(inner, dict) else None


def _resolve(nodes: Iterable[dict[str, Any]], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes themselves: behind references, and each alternative of those that have several."""
    for node in nodes:
        if reference := node.get("$ref"):
            yield from _resolve([schema["$defs"][reference.rpartition("/")[2]]], schema)
        elif alternatives := node.get("anyOf"):
            yield from _resolve(alternatives, schema)
        else:
            yield node
