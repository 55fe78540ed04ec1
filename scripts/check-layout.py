#!/usr/bin/env python3
"""Checks the layout of the package: sizes of folders and files, names, and what may stand only in its own room.

Prints each finding as `file:line: what` and fails if there is one. The rules are those of docs/decisions/0017.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
MOST_MODULES = 21
MOST_LINES, LEAST_LINES = 400, 25
LONG_BY_INTENTION = {"errors.py"}
GERUND_EXCEPTIONS = {"binding"}  # the field's own noun
PARTICIPLES = {"told", "given", "asked", "wanted", "shown", "kept"}
# Functions that users call: their keyword options are the API.
PUBLIC_FUNCTIONS = {"engine/workflow_engine.py", "runtime/flow.py", "runtime/context.py", "runtime/answers.py"}
PUBLIC_FUNCTIONS |= {"agents/build.py", "cli/app.py", "runtime/events.py"}
# Columns, fields of answers and of what callbacks get: used outside under this name.
STORED = {
    ("api/preview/cost.py", "told"),
    ("api/schemas.py", "shown"),
    ("api/workflow_statistics.py", "told"),
    ("engine/scope.py", "shown"),
    ("persistence/models.py", "shown"),
    ("presentation/timeline.py", "told"),
}
SQL_ROOMS = ("persistence", "runtime")
GIT_ROOM = "workspace"
LANGCHAIN_ROOM = "agents"
# A function's docstring begins with a verb ("Return the run …"), not with what is returned.
NO_VERBS = {
    "a",
    "all",
    "an",
    "any",
    "both",
    "each",
    "every",
    "how",
    "if",
    "in",
    "it",
    "its",
    "no",
    "nobody",
    "nothing",
    "of",
    "on",
    "one",
    "only",
    "several",
    "some",
    "such",
}
NO_VERBS |= {
    "that",
    "the",
    "there",
    "these",
    "they",
    "this",
    "those",
    "until",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "who",
    "whoever",
    "why",
}
MOST_PARAMETERS, MOST_OF_CONSTRUCTOR = 6, 8
LANGCHAIN = ("langchain", "langchain_core", "langgraph", "deepagents", "langchain_openai")


class Module:
    """A parsed file and its place in the package."""

    def __init__(self, path: Path, root: Path = SOURCE) -> None:
        self.path = path
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.nodes = list(ast.walk(self.tree))
        self.room = self.name.split("/")[0] if "/" in self.name else ""
        self.docstrings = {id(text) for text in _docstrings(self.nodes)}

    def strings(self) -> Iterator[ast.Constant]:
        """Yield the string constants that are no docstrings."""
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docstrings:
                yield node


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value


def check_folders(modules: list[Module]) -> Iterator[str]:
    sizes: dict[Path, int] = defaultdict(int)
    for module in modules:
        sizes[module.path.parent] += module.path.name != "__init__.py"
    for folder, size in sorted(sizes.items()):
        if size > MOST_MODULES:
            yield f"{folder.relative_to(SOURCE.parent)}: {size} modules, at most {MOST_MODULES}"


def check_sizes(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > MOST_LINES and module.name not in LONG_BY_INTENTION:
        yield f"{module.name}:1: {lines} lines, at most {MOST_LINES}"
    is_small_by_nature = module.path.name in ("__init__.py", "__main__.py") or "migrations" in module.path.parts
    if lines < LEAST_LINES and not is_small_by_nature and "api/routes" not in module.name:
        yield f"{module.name}:1: {lines} lines are too few for a module of its own"


def check_names(module: Module) -> Iterator[str]:
    stem = module.path.stem
    if stem.endswith("ing") and stem not in GERUND_EXCEPTIONS and not stem.endswith("string"):
        yield f"{module.name}:1: the module's name is a gerund"
    yield from check_participles(module)


def check_participles(module: Module) -> Iterator[str]:
    for node in module.nodes:
        for name in _names(node):
            if PARTICIPLES & set(name.lower().split("_")) and (module.name, name) not in STORED:
                yield f"{module.name}:{node.lineno}: {name} is a participle, not what the thing is"  # type: ignore[attr-defined]


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [] if node.name.startswith("test_") else [node.name]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    return []


def check_classes(modules: list[Module]) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{module.name}:{node.lineno}")
    for name, places in sorted(homes.items()):
        if len(places) > 1:
            yield f"{places[0]}: the class name {name} has {len(places)} homes: {', '.join(places)}"


def check_functions(module: Module) -> Iterator[str]:
    is_public = module.name in PUBLIC_FUNCTIONS or module.name.startswith(("cli/commands/", "api/routes/"))
    for node in module.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        words = (ast.get_docstring(node) or "Do").split()
        if not _is_property(node) and words[0].lower().strip("`,.:") in NO_VERBS:
            yield f"{module.name}:{node.lineno}: the docstring of {node.name} begins with {words[0]!r}, not with a verb"
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in arguments)
        most = MOST_OF_CONSTRUCTOR if node.name == "__init__" else MOST_PARAMETERS
        if count > most and not is_public:
            yield f"{module.name}:{node.lineno}: {node.name} has {count} parameters, at most {most}"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        "property" in ast.unparse(decorator) or "fixture" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def check_rooms(module: Module, kinds: set[str]) -> Iterator[str]:
    for text in module.strings():
        words = text.value.split()[:2]
        is_sql = words[:1] in (["SELECT"], ["UPDATE"]) or words in (["INSERT", "INTO"], ["DELETE", "FROM"])
        if is_sql and module.room not in SQL_ROOMS:
            yield f"{module.name}:{text.lineno}: SQL outside {' and '.join(SQL_ROOMS)}"
        if text.value in kinds and module.name != "runtime/events.py":
            yield f"{module.name}:{text.lineno}: the event kind {text.value!r} is a literal, not an EventKind"
    for node in module.nodes:
        if isinstance(node, ast.List) and node.elts and _is_git(node.elts[0]) and module.room != GIT_ROOM:
            yield f"{module.name}:{node.lineno}: git is called outside {GIT_ROOM}"
        if _imports_langchain(node) and module.room != LANGCHAIN_ROOM:
            yield f"{module.name}:{node.lineno}: LangChain outside {LANGCHAIN_ROOM}"  # type: ignore[attr-defined]


def _is_git(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "git"


def _imports_langchain(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in LANGCHAIN
    return isinstance(node, ast.Import) and any(name.name.split(".")[0] in LANGCHAIN for name in node.names)


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
    modules = [Module(path) for path in sorted(SOURCE.rglob("*.py"))]
    kinds = read_kinds()
    findings = [*check_folders(modules), *check_classes(modules)]
    for module in modules:
        findings += [*check_sizes(module), *check_names(module), *check_functions(module), *check_rooms(module, kinds)]
    for folder in ("benchmarks", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            findings += check_participles(Module(path, ROOT))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
