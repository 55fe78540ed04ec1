"""An agent's command cannot be its own judge: the commands that decide, spend or make tokens refuse it."""

import asyncio
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.support.terminal import HOLDFAST

import holdfast
from holdfast.agents.tools.shell import open_shell
from holdfast.cli.agent_command import is_inside_agent_command, is_reading
from holdfast.cli.app import SECTIONS
from holdfast.runtime.step import current_step
from holdfast.workspace import Outcome, SpoolOptions, run_spooled

SOURCES = Path(holdfast.__file__).parents[1]
DECIDING = [
    "approve 0000",
    "reject 0000",
    "token create --name ci --role admin",
    "token revoke 0000",
    "budget 0000 --add 50",
    "run feature-delivery --simulate --requirements x",
    "resume 0000",
    "retry 0000",
    "fork 0000 plan",
    "abort 0000",
    "pause 0000",
    "merge 0000",
    "trust",
    "serve",
    "gc",
    "runs rm 0000",
    "-p hello",
]


def in_agent_command(folder: Path, line: str, *, has_marks: bool = True) -> Outcome:
    """Run a line as the spool runs an agent's commands where there is no sandbox."""
    line = line if has_marks else f"env -i PATH={shlex.quote(os.environ['PATH'])} HOME={folder} {line}"
    options = SpoolOptions(env={"HOME": str(folder)}, timeout_s=120)
    return asyncio.run(run_spooled(line, line, cwd=folder, spool_dir=folder / "spool", options=options))


@pytest.mark.parametrize("words", DECIDING)
def test_whoever_decides_or_spends_is_no_agent(tmp_path: Path, words: str) -> None:
    outcome = in_agent_command(tmp_path, f"{HOLDFAST} --data-dir {tmp_path}/data {words}")

    assert outcome.output.startswith("holdfast: inside_agent_command: "), outcome.output
    assert outcome.exit_code == 1
    assert not (tmp_path / "data").exists()


def test_the_mark_is_not_lost_with_the_variables(tmp_path: Path) -> None:
    outcome = in_agent_command(tmp_path, f"{HOLDFAST} token create --name ci --role admin", has_marks=False)

    assert (outcome.exit_code, "inside_agent_command" in outcome.output) == (1, True), outcome.output


def test_an_agent_may_look(tmp_path: Path) -> None:
    outcome = in_agent_command(tmp_path, f"{HOLDFAST} --data-dir {tmp_path}/data runs list --json")

    assert (outcome.exit_code, outcome.output) == (0, "[]\n")


@needs_sandbox
def test_the_sandbox_leaves_a_mark_too(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shell = open_shell(work, data_dir=tmp_path / "data")
    assert shell.sandbox is not None
    program, python = Path(HOLDFAST).parents[1], Path(sys.executable).resolve().parents[1]
    places = (*shell.sandbox.read_only, program, python, SOURCES)
    shell = replace(shell, sandbox=replace(shell.sandbox, read_only=places))
    line = f"env -i PATH=/usr/bin:/bin HOME=/tmp PYTHONPATH={SOURCES} {HOLDFAST} token create --name ci --role admin"
    token = current_step.set(("run-1", "step-1"))
    try:
        outcome = asyncio.run(shell.run(line, timeout_s=120))
    finally:
        current_step.reset(token)

    assert (outcome.exit_code, "inside_agent_command" in outcome.output) == (1, True), outcome.output


def test_a_person_is_not_taken_for_an_agent() -> None:
    assert not is_inside_agent_command({"PATH": "/usr/bin"})
    assert is_inside_agent_command({"HOLDFAST_SPOOL": "x"})


def test_a_new_command_is_refused_until_someone_says_that_it_only_reads() -> None:
    entries = {f"{name}": entry for members in SECTIONS.values() for name, entry in members.items()}
    reading = {name for name, entry in entries.items() if entry.target and is_reading(entry.target)}

    assert reading == {"approvals", "budget", "demo", "doctor", "explain"}


def test_whoever_drives_runs_hides_its_variables(tmp_path: Path) -> None:
    """Without a sandbox an agent's command is a process of the same user."""
    program = (
        "import asyncio, ctypes\n"
        "from holdfast.cli.terminal.engine import open_engine\n"
        "async def main():\n"
        "    async with open_engine():\n"
        "        print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
        "asyncio.run(main())\n"
    )
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=True)

    assert done.stdout == "0\n", "PR_GET_DUMPABLE"
