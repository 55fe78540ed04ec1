"""The command and the package as a user gets them: installed, started, imported."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
COMMANDS = [[str(Path(sys.executable).parent / "holdfast")], [sys.executable, "-m", "holdfast"]]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def loaded_by(statement: str) -> set[str]:
    done = run(sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("command", COMMANDS, ids=["holdfast", "python -m holdfast"])
def test_the_version_is_the_packages(command: list[str]) -> None:
    assert run(*command, "--version").stdout == f"holdfast {holdfast.__version__}\n"
    assert version("holdfast") == holdfast.__version__


@pytest.mark.parametrize("command", COMMANDS, ids=["holdfast", "python -m holdfast"])
def test_help_names_the_commands(command: list[str]) -> None:
    done = run(*command, "--help")

    assert done.returncode == 0
    assert done.stdout.startswith("Usage: holdfast ")
    assert "demo" in done.stdout


def test_an_unknown_command_is_an_error_that_names_it() -> None:
    done = run(*COMMANDS[0], "dmeo")

    assert done.returncode == 2
    assert "dmeo" in done.stderr


def test_the_demo_is_a_command_too() -> None:
    done = run(*COMMANDS[0], "demo", "--flow", "--fast")

    assert done.returncode == 0
    assert "What holds" in done.stdout


def test_help_starts_without_what_commands_need() -> None:
    loaded = loaded_by("import holdfast.cli.app")

    assert not loaded & {"rich", "asyncio", "sqlite3", "psycopg", "pydantic", "sqlalchemy", "langchain"}


def test_importing_the_package_imports_next_to_nothing() -> None:
    loaded = loaded_by("import holdfast")

    assert not loaded & {"asyncio", "sqlite3", "msgspec", "psycopg", "pydantic", "sqlalchemy", "rich", "langchain"}


def test_flows_need_neither_a_framework_nor_a_database_driver() -> None:
    loaded = loaded_by(
        "from holdfast import Context, decide, run_flow\nimport holdfast.runtime.checkpoint.sqlite.store"
    )

    assert not loaded & {"psycopg", "pydantic", "sqlalchemy", "alembic", "rich", "typer", "langchain", "fastapi"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [find_uv(), "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(folder), str(ROOT)]
    done = run(*build, "--offline")  # the set-up has fetched what building needs
    if done.returncode:
        done = run(*build)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("holdfast-*.whl")
    return built


def find_uv() -> str:
    return shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")


def test_the_wheel_holds_types_and_catalog(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert "holdfast/py.typed" in names
    assert "holdfast/catalog/models.yaml" in names
    assert "holdfast/catalog/workflows/spec-and-review.yaml" in names
    assert "holdfast/catalog/personas/openrouter-deepseek-spec-writer.yaml" in names
    assert "holdfast/catalog/artifacts/dev/spec@1.json" in names
    assert {name.partition("/")[0] for name in names} == {"holdfast", f"holdfast-{holdfast.__version__}.dist-info"}


def test_an_installed_package_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install = [find_uv(), "pip", "install", "--quiet", "--offline", "--no-deps", "--python", sys.executable]
    assert run(*install, "--target", str(target), str(wheel)).returncode == 0

    done = run(
        sys.executable, "-c", "import holdfast; print(holdfast.__file__, holdfast.run_flow)", PYTHONPATH=str(target)
    )

    assert str(target) in done.stdout
    assert run(sys.executable, "-m", "holdfast", "demo", "--flow", "--fast", PYTHONPATH=str(target)).returncode == 0
