"""Each rule of `scripts/check-layout.py` finds what it is for, in all the forms in which it can be written."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-layout.py"
KINDS = {"run.created", "tool.result"}


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_layout", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


rules = load_script()


def findings(source: str, name: str = "engine/merge.py") -> list[str]:
    module = rules.Module(name, source)
    found: Iterator[str] = rules.check_participles(module)
    return [*found, *rules.check_functions(module), *rules.check_rooms(module, KINDS)]


@pytest.mark.parametrize(
    "source",
    [
        "kept = 1",
        "files_kept: int = 1",
        "self.told = 1",
        "x = row.wanted",
        "def f(asked): ...",
        "def f(*, given=1): ...",
        "def f(*told): ...",
        "def f(**told): ...",
        "def kept(): ...",
        "class Wanted: ...",
        "class GivenUp: ...",
        "f(given=1)",
        "import json as told",
        "for told in (): ...",
        "[told for told in ()]",
        "(told := 1)",
        "with f() as told: ...",
        "try: ...\nexcept OSError as told: ...",
        "match x:\n    case [told]: ...",
        "match x:\n    case [*told]: ...",
        "match x:\n    case {**told}: ...",
        "lambda told: 1",
    ],
)
def test_a_participle_is_no_name(source: str) -> None:
    assert "is a participle" in findings(source)[0]


def test_what_is_stored_under_a_participle_is_made_in_its_module_alone() -> None:
    assert findings("shown: str", "persistence/models.py") == []
    assert findings("x = row.shown\nf(shown=1)") == []
    assert len(findings("shown: str")) == 1
    assert findings("def test_what_is_kept(): ...") == []


@pytest.mark.parametrize(
    "source",
    [
        "const kept = 1;",
        "let [a, told] = [1, 2];",
        "const { told } = row;",
        "const { facts: told } = row;",
        "const { a, ...told } = row;",
        "const { a: [{ told = 1 }] } = row;",
        "const SHOWN = 200;",
        "function kept() {}",
        "function f(a, wanted) {}",
        "function f({ shown }) {}",
        "const f = (told) => 1;",
        "const f = told => 1;",
        "const f = ({ call }, shown) => 1;",
        "class A { #drawWanted() {} }",
        "class A { kept = 1; }",
        "for (const told of rows) f();",
        "try { f(); } catch (told) {}",
        "import { load as told } from './a.js';",
        "body.isShown = true;",
        "row.told = 1;",
        "this.wanted.focus();",
        "const parts = { wanted: 1 };",
        "return { told };",
        "const a = `${rows.map((told) => `${{ a: 1 }}`)}`;",
        "const a = /[`\"'/]/; const told = 1;",
        "const a = b / 2; const told = '/';",
        "// it's\nconst told = 1;",
        'const a = "\\""; const told = 1;',
        "const a = `it's \\` {`; const told = 1;",
    ],
)
def test_a_participle_is_no_name_in_a_script(source: str) -> None:
    assert "is a participle" in next(rules.check_script_participles("web/js/api.js", source), "")


def test_a_script_may_read_what_answers_call_by_a_participle() -> None:
    fields = "const { shown: subject, told: label } = row;\nconst a = row.told === row?.shown;"
    text = """f("it's shown", 'and "kept"', `told ${a ? `kept ${b}` : "asked"} ${/told|"kept/i}`);"""
    prose = f"// What was asked\n/* kept\n   told */ {text}"

    assert list(rules.check_script_participles("web/js/api.js", f"{fields}\n{prose}")) == []
    assert list(rules.check_script_participles("web/js/api.js", f"{prose}\nlet told;")) == [
        "web/js/api.js:4: told is a participle, not what the thing is"
    ]


@pytest.mark.parametrize(
    "source",
    [
        'x = kind == "run.created"',
        'x = kind in ("phase.x", "run.created")',
        'x = {"run.created": 1}',
        'match kind:\n    case "run.created" | "x": ...',
        'x = f("tool.result")',
        'x = f(kind="tool.result")',
        'x = "tool" ".result"',
        'x = "tool." + "result"',
        'x: Literal["tool.result"]',
    ],
)
def test_an_event_kind_is_no_literal(source: str) -> None:
    assert "the event kind" in findings(source)[0]


@pytest.mark.parametrize(
    "source",
    [
        'x = run.state == "paused"',
        'x = row["state"] != "failed"',
        'x = state in ("completed", "cancelled")',
        'match run.status:\n    case "failed" | "x": ...',
    ],
)
def test_a_state_is_no_literal(source: str) -> None:
    assert "is a literal, not a RunStatus" in findings(source)[0]
    assert findings('x = approval.state == "pending"\nf(state="paused")') == []


@pytest.mark.parametrize(
    "source",
    [
        'x = "SELECT 1 FROM runs"',
        'x = """\n  WITH a AS (SELECT 1)"""',
        'x = f"UPDATE runs SET a = {b}"',
        'x = "EXPLAIN SELECT a\\nFROM runs"',
        'x = "INSERT OR IGNORE INTO runs"',
        'x = "DELETE FROM runs"',
        'x = "PRAGMA data_version"',
        'x = "CREATE TABLE a (b)"',
        "from sqlalchemy import select",
        "def f():\n    import sqlite3",
        "import psycopg.rows",
    ],
)
def test_sql_stands_in_its_rooms(source: str) -> None:
    assert "outside persistence and runtime" in findings(source)[0]
    assert findings(source, "persistence/runs.py") == []


@pytest.mark.parametrize(
    "source",
    [
        "from langchain.agents import x",
        "import langchain_anthropic",
        "import langsmith",
        "def f():\n    from langgraph.types import Command",
        'importlib.import_module("deepagents.graph")',
    ],
)
def test_langchain_stands_in_its_room(source: str) -> None:
    assert "LangChain outside agents" in findings(source)[0]
    assert findings(source, "agents/build.py") == []


@pytest.mark.parametrize(
    "source",
    [
        'subprocess.run(["git", "status"])',
        'subprocess.run(("git", "status"))',
        'x = ["git", *words]',
        'await create_subprocess_exec("git", "status")',
        'subprocess.run("git status", shell=True)',
        'os.system(f"git {verb}")',
    ],
)
def test_git_is_called_in_its_room(source: str) -> None:
    assert "git is called outside workspace" in findings(source)[0]
    assert findings(source, "workspace/git.py") == []


def test_functions_have_few_parameters_unless_they_are_the_public_api() -> None:
    seven = "(a, b, c, d, *, e, f, g): ..."
    assert "has 7 parameters" in findings(f"def run{seven}")[0]
    assert findings(f"def run{seven}", "engine/workflow_engine.py") == []
    assert "has 7 parameters" in findings(f"def _load{seven}", "engine/workflow_engine.py")[0]
    assert findings(f"def run{seven}", "cli/commands/run.py") == []
    assert "has 7 parameters" in findings(f"def _run{seven}", "cli/commands/run.py")[0]
    assert "has 9 parameters" in findings("class A:\n    def __init__(self, a, b, c, d, e, f, g, h, i): ...")[0]


@pytest.mark.parametrize(
    "words", ["The run.", "Returns the run.", "JSON data.", "`run` again.", "By path, what.", "runs"]
)
def test_a_docstring_begins_with_a_verb(words: str) -> None:
    source = f'def f():\n    """{words}"""'
    assert "not with a verb" in findings(source)[0]
    assert findings('def f():\n    """Return the run."""') == []
    assert findings(f"class A:\n    @property\n    {source.replace(chr(10), chr(10) + '    ')}") == []


def names(*files: str, source: str = "") -> list[str]:
    modules = [rules.Module(file, source) for file in files]
    found = [*rules.check_folders(modules), *rules.check_module_names(modules), *rules.check_classes(modules)]
    return [finding for finding in found if "listed as shared" not in finding]


@pytest.mark.parametrize("file", ["engine/telling.py", "engine/moving/__init__.py", "engine/running_jobs.py"])
def test_a_gerund_is_no_module(file: str) -> None:
    assert names(file) == [f"{file}:1: the module's name is a gerund"]
    assert names("binding.py", "agents/coding_agent/__init__.py", "definitions/findings.py") == []


def test_a_name_has_one_home() -> None:
    assert "module name parts has 2 homes" in names("engine/parts.py", "api/parts/__init__.py")[0]
    assert names("engine/merge.py", "workspace/merge.py") == []
    assert "class name Place has 2 homes" in names("engine/a.py", "api/b.py", source="class Place: ...")[0]
    hidden = rules.Module("engine/a.py", "class Place: ..."), rules.Module("b.py", "def f():\n    class _Place: ...")
    assert len(list(rules.check_classes(hidden))) == 1


def test_folders_and_modules_have_a_size() -> None:
    assert names(*(f"engine/m{number}.py" for number in range(21))) == []
    assert names(*(f"engine/m{number}.py" for number in range(22))) == ["engine: 22 modules, at most 21"]

    def sizes(name: str, lines: int) -> list[str]:
        return list(rules.check_sizes(rules.Module(name, "\n" * lines)))

    assert sizes("engine/merge.py", 401) == ["engine/merge.py:1: 401 lines, at most 400"]
    assert sizes("engine/merge.py", 24) == ["engine/merge.py:1: 24 lines are too few for a module of its own"]
    assert sizes("engine/merge.py", 400) == sizes("engine/merge.py", 25) == sizes("api/routes/health.py", 5) == []
