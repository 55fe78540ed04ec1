"""The agent framework is imported beside other work, and without what nobody asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agents.framework import defer_package

# Clients of model providers that a rehearsal does not speak with, tracing services, and what other commands need.
UNASKED = [
    *("openai", "langchain_openai", "anthropic", "langchain_anthropic", "google.genai", "langchain_google_genai"),
    *("ollama", "langchain_ollama", "langsmith.types.run", "langsmith.types.online_evaluator", "langsmith.evaluation"),
    *("opentelemetry.trace", "fastapi", "uvicorn", "keyring", "prompt_toolkit", "tiktoken"),
]
REHEARSE = """
import json, sys
from holdfast.cli.app import _run
code = _run(["run", "spec-and-review", "--simulate", "--yes", "--requirements", "A flag", "--json"], is_debug=True)
print(json.dumps([code, sorted(sys.modules)]))
"""
GIVE_UP = """
import sys
from holdfast.agents.framework import importing_framework
with importing_framework():
    pass
import threading
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
print("deepagents" in sys.modules)
"""
BESIDE = """
import sys, threading
from holdfast.agents.framework import import_framework, importing_framework, is_framework_imported
with importing_framework():
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "holdfast-framework-import"]
    thread.join()
    print(is_framework_imported())
import langsmith.types
print("langsmith.types.run" in sys.modules, langsmith.types.Run.__name__, "langsmith.types.run" in sys.modules)
"""


def run_python(code: str, folder: Path) -> str:
    env = {**os.environ, "HOLDFAST_DATA_DIR": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_rehearsal_imports_no_client_and_no_tracer(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], cwd=tmp_path, check=True)

    *said, last = run_python(REHEARSE, tmp_path).splitlines()
    code, modules = json.loads(last)

    assert code == 0, said
    assert sorted(set(UNASKED) & set(modules)) == []


def test_the_framework_is_imported_in_a_thread(tmp_path: Path) -> None:
    assert run_python(BESIDE, tmp_path).splitlines() == ["True", "False Run True"]


def test_the_import_is_given_up_when_it_is_not_needed_any_more(tmp_path: Path) -> None:
    assert run_python(GIVE_UP, tmp_path) == "False\n"


def test_a_deferred_package_runs_its_code_at_the_first_use_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hf_outer/inner").mkdir(parents=True)
    (tmp_path / "hf_outer/__init__.py").write_text("")
    (tmp_path / "hf_outer/inner/__init__.py").write_text("from hf_outer.inner.heavy import NAME\n")
    (tmp_path / "hf_outer/inner/heavy.py").write_text("NAME = 'heavy'\n")
    (tmp_path / "hf_outer/inner/light.py").write_text("NAME = 'light'\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    defer_package("hf_outer.inner")
    from hf_outer.inner.light import NAME  # type: ignore[import-not-found]

    assert (NAME, "hf_outer.inner.heavy" in sys.modules) == ("light", False)
    from hf_outer import inner

    assert not hasattr(inner, "__wrapped__")
    assert "hf_outer.inner.heavy" not in sys.modules
    assert inner.NAME == "heavy"
    assert not hasattr(inner, "missing")
    for name in [name for name in sys.modules if name.startswith("hf_outer")]:
        monkeypatch.delitem(sys.modules, name)


def test_what_cannot_be_found_is_not_deferred() -> None:
    defer_package("hf_nowhere.inner")
    defer_package("json.decoder")

    assert "hf_nowhere" not in sys.modules
