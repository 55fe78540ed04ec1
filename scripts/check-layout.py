#!/usr/bin/env python3
"""Checks the layout of the package: sizes of folders and files, names, and what may stand only in its own room.

Prints each finding as `file:line: what` and fails if there is one. The rules are those of docs/decisions/0017;
tests/unit/test_layout_rules.py has an example of what each of them finds.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
MOST_MODULES = 21
MOST_BY_FOLDER = {"cli/commands": 26}  # one for each command: the commands decide how many
MOST_LINES, LEAST_LINES = 400, 25
LONG_BY_INTENTION = {"errors.py"}
GERUND_EXCEPTIONS = {"testing", "binding", "coding", "string"}  # nouns of the field: a role's binding, a coding agent
PARTICIPLES = {"told", "given", "asked", "wanted", "shown", "kept"}
# Columns, fields of answers and keys of payloads: they have this name outside. Here are the modules that make them;
# whoever reads them or passes them on has no choice.
STORED = {
    "asked": (),  # a key of the event run.paused, and of an error's details
    "shown": ("api/schemas.py", "engine/scope.py", "persistence/models.py"),
    "told": ("api/preview/cost.py", "api/workflow_statistics.py", "presentation/timeline.py"),
}
# The words of a script: read from another object (`row.told`), a key (`told: label`), or a name of its own. Comments,
# strings and regular expressions have none; a template's text has none either, but the code in it has.
SCRIPT_TOKENS = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
    r"|(?<=[(,=:!&|?\[{\s])/(?![\s/*])(?:\\.|\[(?:\\.|[^]\\])*]|[^/\\\[\n])+/\w*"
    r"|\.\.\.|\.(?P<read>\w+)(?!\w|\s*=[^=])|(?P<key>\w+)(?=\s*:)|(?P<name>\w+)|(?P<mark>[`{}])",
    re.DOTALL,
)
TEMPLATE_TEXT = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(`|\$\{|\Z)", re.DOTALL)
# Modules of one name. A new pair is of the first kind, or it needs another name.
SHARED_MODULES = {
    # about one thing, each on its own layer: route, command, rows, engine, words
    *("approvals", "artifacts", "budget", "catalog", "cleanup", "conversation", "cost", "db", "deletion", "diff"),
    *("doctor", "engine", "events", "fleet", "flows", "fork", "list", "merge", "messages", "metrics", "middleware"),
    *("persona", "personas", "phase", "preview", "progress", "questions", "report", "restore", "run", "runs"),
    *("sandbox", "serve", "server", "show", "statistics", "worker"),
    *("limits", "schedules", "timeline", "trust", "workflow", "workflows", "workspace"),
    # the same part of several packages
    *("app", "append", "base", "driver", "schema", "store", "transaction"),
    # told apart by their folder alone
    *("calls", "commands", "files", "inbox", "journal", "models", "output", "prompt", "results", "shell"),
    *("snapshot", "start"),
}
SHARED_CLASSES = {"RunOptions"}  # what was typed after `holdfast run`, and what the engine makes of it
# Functions that users call: their keyword options are the API.
PUBLIC_FUNCTIONS = {
    "agents/build.py": {"build_agent"},
    "engine/workflow_engine.py": {"run", "change", "fork", "create_fork", "decide"},
    "flows/answers.py": {"decide"},
    "flows/service/flow_registry.py": {"flow"},
}
PUBLIC_ROOMS = ("cli/app.py", "cli/commands/", "api/routes/")
LONG_CONSTRUCTORS = {("runtime/events.py", "_Unfrozen")}  # an event's ten fields, without a dataclass's cost
STATES = {"running", "paused", "completed", "failed", "cancelled", "awaiting_approval"}  # others have a `pending` too
SQL_ROOMS = ("persistence", "runtime")
SQL_DRIVERS = {"aiosqlite", "alembic", "psycopg", "sqlalchemy", "sqlite3"}
SQL_DRIVER_EXCEPTIONS = {"cli/commands/db.py"}  # `db backup` is sqlite3's own copy, without a statement
SQL = re.compile(
    r"^\s*(WITH|PRAGMA|VACUUM|BEGIN IMMEDIATE)\b|\bSELECT\b.+\bFROM\b|\bINSERT (OR \w+ )?INTO\b|\bUPDATE \w+ SET\b"
    r"|\bDELETE FROM\b|\b(CREATE|ALTER|DROP) (TABLE|INDEX|TRIGGER)\b",
    re.DOTALL,
)
GIT_ROOM = "workspace"
LANGCHAIN_ROOM = "agents"
LANGCHAIN = re.compile(r"(langchain|langgraph|langsmith|deepagents)(_\w+)?(\.|$)")
# A function's docstring begins with a verb ("Return the run …"), not with what is returned.
NO_VERBS = {
    *("a", "all", "an", "and", "any", "as", "at", "before", "behind", "both", "but", "by", "each", "every", "for"),
    *("four", "from", "git", "how", "if", "in", "it", "its", "neither", "no", "nobody", "normally", "not", "nothing"),
    *("of", "on", "one", "only", "our", "path", "several", "some", "status", "such", "that", "the", "their", "there"),
    *("these", "they", "this", "those", "to", "two", "until", "what", "when", "where", "whether", "which", "who"),
    *("whoever", "why", "with", "without"),
}
MOST_PARAMETERS, MOST_OF_CONSTRUCTOR = 6, 8


class Module:
    """A parsed file and its place in the package."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tree = ast.parse(text)
        self.nodes = list(ast.walk(self.tree))
        self.folder, _, self.file = name.rpartition("/")
        self.room = name.split("/")[0] if "/" in name else ""
        self.docstrings = {id(docstring) for docstring in _docstrings(self.nodes)}

    def strings(self) -> Iterator[ast.Constant]:
        """Yield the string constants that are no docstrings, the pieces of f-strings among them."""
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docstrings:
                yield node


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value


def read_modules(folder: Path, root: Path) -> list[Module]:
    return [
        Module(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


def check_folders(modules: list[Module]) -> Iterator[str]:
    sizes: dict[str, int] = defaultdict(int)
    for module in modules:
        sizes[module.folder] += module.file != "__init__.py"
    for folder, size in sorted(sizes.items()):
        if size > (most := MOST_BY_FOLDER.get(folder, MOST_MODULES)):
            yield f"{folder or 'holdfast'}: {size} modules, at most {most}"


def check_sizes(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > MOST_LINES and module.name not in LONG_BY_INTENTION:
        yield f"{module.name}:1: {lines} lines, at most {MOST_LINES}"
    is_small_by_nature = module.file in ("__init__.py", "__main__.py") or "migrations" in module.folder.split("/")
    if lines < LEAST_LINES and not is_small_by_nature and not module.name.startswith("api/routes/"):
        yield f"{module.name}:1: {lines} lines are too few for a module of its own"


def check_module_names(modules: list[Module]) -> Iterator[str]:
    """Find gerunds in the names of modules and packages, and names that two of them share without being listed."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        stem = module.file.removesuffix(".py")
        if stem == "__init__":
            stem = module.folder.rpartition("/")[2]
        if any(word.endswith("ing") and word not in GERUND_EXCEPTIONS for word in stem.split("_")):
            yield f"{module.name}:1: the module's name is a gerund"
        if stem not in ("", "__main__"):
            homes[stem].append(module.name)
    for stem, places in sorted(homes.items()):
        if len(places) > 1 and stem not in SHARED_MODULES:
            yield f"{places[0]}:1: the module name {stem} has {len(places)} homes: {', '.join(places)}"
    for stem in sorted(SHARED_MODULES):
        if homes and len(homes[stem]) < 2:
            yield f"scripts/check-layout.py: the module name {stem} is listed as shared, but is not"


def check_participles(module: Module) -> Iterator[str]:
    for node in module.nodes:
        names = [name for name in _made_names(node) if module.name not in STORED.get(name, ())]
        for name in [*names, *(name for name in _used_names(node) if name not in STORED)]:
            if _has_participle(name):
                yield f"{module.name}:{node.lineno}: {name} is a participle, not what the thing is"  # type: ignore[attr-defined]


def _has_participle(name: str) -> bool:
    return not PARTICIPLES.isdisjoint(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def check_script_participles(name: str, text: str) -> Iterator[str]:
    for token in _script_tokens(text):
        word = token["read"] or token["key"] or token["name"] or ""
        if _has_participle(word) and (token["name"] or word not in STORED):
            line = text.count("\n", 0, token.start()) + 1
            yield f"{name}:{line}: {word} is a participle, not what the thing is"


def _script_tokens(text: str) -> Iterator[re.Match[str]]:
    braces: list[str] = []
    at = 0
    while token := SCRIPT_TOKENS.search(text, at):
        yield token
        at = token.end()
        if token["mark"] == "{":
            braces.append("{")
        elif token["mark"] == "`" or (token["mark"] == "}" and braces and braces.pop() == "${"):
            piece = TEMPLATE_TEXT.match(text, at)
            assert piece is not None
            at = piece.end()
            braces += ["${"] * (piece[1] == "${")


def _made_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [] if node.name.startswith("test_") else [node.name]
        case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def _used_names(node: ast.AST) -> list[str]:
    """List names of attributes and keyword arguments, which need not be made here: by `setattr`, in a payload."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Load()) | ast.keyword(arg=str(name)):
            return [name]
    return []


def check_classes(modules: list[Module]) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(f"{module.name}:{node.lineno}")
    for name, places in sorted(homes.items()):
        if len(places) > 1 and name not in SHARED_CLASSES:
            yield f"{places[0]}: the class name {name} has {len(places)} homes: {', '.join(places)}"


def check_functions(module: Module) -> Iterator[str]:
    constructors = {
        id(method): node.name for node in module.nodes if isinstance(node, ast.ClassDef) for method in node.body
    }
    for node in module.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if docstring and not _is_property(node) and not _begins_with_verb(docstring):
            first = docstring.split()[0]
            yield f"{module.name}:{node.lineno}: the docstring of {node.name} begins with {first!r}, not with a verb"
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in arguments)
        is_constructor = node.name in ("__init__", "__new__")
        most = MOST_OF_CONSTRUCTOR if is_constructor else MOST_PARAMETERS
        is_excepted = is_constructor and (module.name, constructors.get(id(node))) in LONG_CONSTRUCTORS
        if count > most and not is_excepted and not _is_public(module, node):
            yield f"{module.name}:{node.lineno}: {node.name} has {count} parameters, at most {most}"


def _begins_with_verb(docstring: str) -> bool:
    word = docstring.split()[0].rstrip(",.:;")
    return re.fullmatch(r"[A-Z][a-z]+", word) is not None and word.lower() not in NO_VERBS and not _is_plural(word)


def _is_plural(word: str) -> bool:
    """Tell `Returns` and `Servers`, which are no imperatives, from `Pass`."""
    return word.endswith("s") and not word.endswith("ss")


def _is_public(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if module.name.startswith(PUBLIC_ROOMS):
        return not node.name.startswith("_")
    return node.name in PUBLIC_FUNCTIONS.get(module.name, ())


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        "property" in ast.unparse(decorator) or "fixture" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def check_rooms(module: Module, kinds: set[str]) -> Iterator[str]:
    for text in module.strings():
        if SQL.search(text.value) and module.room not in SQL_ROOMS:
            yield f"{module.name}:{text.lineno}: SQL outside {' and '.join(SQL_ROOMS)}"
        if text.value in kinds and module.name != "runtime/events.py":
            yield f"{module.name}:{text.lineno}: the event kind {text.value!r} is a literal, not an EventKind"
        if LANGCHAIN.match(text.value) and module.room != LANGCHAIN_ROOM and _is_loaded(module, text):
            yield f"{module.name}:{text.lineno}: LangChain outside {LANGCHAIN_ROOM}"
    for node in module.nodes:
        if state := _find_state_literal(node):
            yield f"{module.name}:{node.lineno}: the state {state!r} is a literal, not a RunStatus or RunPhaseState"  # type: ignore[attr-defined]
        if isinstance(node, ast.BinOp) and (spelled := _spell(node)) in kinds:
            yield f"{module.name}:{node.lineno}: the event kind {spelled!r} is put together, not an EventKind"
        if _calls_git(node) and module.room != GIT_ROOM:
            yield f"{module.name}:{node.lineno}: git is called outside {GIT_ROOM}"  # type: ignore[attr-defined]
        for imported in _imports(node):
            if LANGCHAIN.match(imported) and module.room != LANGCHAIN_ROOM:
                yield f"{module.name}:{node.lineno}: LangChain outside {LANGCHAIN_ROOM}"  # type: ignore[attr-defined]
            is_sql = imported.split(".")[0] in SQL_DRIVERS and module.name not in SQL_DRIVER_EXCEPTIONS
            if is_sql and module.room not in SQL_ROOMS:
                yield f"{module.name}:{node.lineno}: {imported} outside {' and '.join(SQL_ROOMS)}"  # type: ignore[attr-defined]


def _find_state_literal(node: ast.AST) -> str:
    """Return the literal that the state of a run or a phase is compared with, or nothing."""
    if isinstance(node, ast.Compare) and _is_state(node.left):
        constants = [each for comparator in node.comparators for each in ast.walk(comparator)]
    elif isinstance(node, ast.Match) and _is_state(node.subject):
        constants = [each for case in node.cases for each in ast.walk(case.pattern)]
    else:
        return ""
    return next((str(each.value) for each in constants if isinstance(each, ast.Constant) and each.value in STATES), "")


def _is_state(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2].endswith(("state", "status", "['state']", "['status']"))


def _spell(node: ast.expr) -> str:
    """Return the text that constants joined by `+` make, or nothing."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _spell(node.left), _spell(node.right)
        return left + right if left and right else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_loaded(module: Module, text: ast.Constant) -> bool:
    return any(
        isinstance(node, ast.Call)
        and text in node.args
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        for node in module.nodes
    )


def _calls_git(node: ast.AST) -> bool:
    """Find an argument list that begins with git, or a call that starts it, by list, by words or by a shell line."""
    if isinstance(node, ast.List | ast.Tuple):
        return len(node.elts) > 1 and _is_git(node.elts[0]) and isinstance(getattr(node, "ctx", None), ast.Load)
    if isinstance(node, ast.Call) and node.args:
        name = ast.unparse(node.func).rpartition(".")[2]
        starts = ("run", "call", "check_call", "check_output", "Popen", "system", "popen", "execvp", "execlp")
        return (name in starts or name.startswith("create_subprocess")) and _is_git(node.args[0])
    return False


def _is_git(node: ast.expr) -> bool:
    text = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.split(" ")[0] == "git"


def _imports(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [name.name for name in node.names] if isinstance(node, ast.Import) else []


def check_test_folders(root: Path = ROOT) -> Iterator[str]:
    """Find folders of tests that no package mirrors."""
    for kind in ("unit", "integration"):
        for folder in sorted((root / "tests" / kind).rglob("*/")):
            package = SOURCE / folder.relative_to(root / "tests" / kind)
            if folder.is_dir() and folder.name != "__pycache__" and not package.is_dir():
                yield f"{folder.relative_to(root)}: no package of this path has these tests"


def read_kinds() -> set[str]:
    """Return the values of `EventKind` without importing the package."""
    tree = ast.parse((SOURCE / "runtime" / "events.py").read_text(encoding="utf-8"))
    kinds = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EventKind")
    return {
        node.value.value
        for node in kinds.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def main() -> int:
    modules = read_modules(SOURCE, SOURCE)
    kinds = read_kinds()
    findings = [*check_folders(modules), *check_module_names(modules), *check_classes(modules), *check_test_folders()]
    for module in modules:
        findings += [*check_sizes(module), *check_participles(module)]
        findings += [*check_functions(module), *check_rooms(module, kinds)]
    for folder in ("benchmarks", "scripts", "tests"):
        for module in read_modules(ROOT / folder, ROOT):
            findings += check_participles(module)
    for path in sorted([*SOURCE.rglob("*.js"), *(ROOT / "tests").rglob("*.mjs")]):
        findings += check_script_participles(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
