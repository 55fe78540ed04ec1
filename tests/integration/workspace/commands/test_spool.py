import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.progress_limit import until

from holdfast.errors import Nondeterminism, WorkspaceError
from holdfast.workspace import (
    CommandState,
    Outcome,
    SpoolOptions,
    clean_environment,
    list_commands,
    remove_spooled,
    run_spooled,
    stop_spooled,
)
from holdfast.workspace.commands.processes import ProcessIdentity, find_members, identify, is_alive
from holdfast.workspace.commands.spool import spool_folder

Run = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def spool_dir(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
async def run(tmp_path: Path, spool_dir: Path) -> AsyncIterator[Run]:
    """`run_spooled` in the test's folder; whatever it started is ended afterwards."""
    keys: set[str] = set()

    async def start(key: str, command: str | list[str], **settings: Any) -> Outcome:
        keys.add(key)
        return await run_spooled(key, command, cwd=tmp_path, spool_dir=spool_dir, options=SpoolOptions(**settings))

    yield start
    for key in keys:
        await stop_spooled(key, spool_dir=spool_dir)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _pids(spool_dir: Path, key: str) -> tuple[int, int]:
    started = json.loads((spool_folder(spool_dir, key) / "pid.json").read_text())
    return started["runner"][0], started["leader"][0]


async def test_command_gives_output_and_exit_code(run: Run, tmp_path: Path) -> None:
    outcome = await run("k", "pwd; echo oops >&2; exit 3")

    assert (outcome.state, outcome.exit_code) == (CommandState.EXITED, 3)
    assert outcome.output == f"{tmp_path}\noops\n"
    assert not outcome.reattached
    assert outcome.log_path.read_text() == outcome.output
    assert outcome.duration_s is not None


async def test_argv_is_taken_literally(run: Run) -> None:
    outcome = await run("k", ["printf", "%s|", "a b", "$HOME", "*", "-n", "ü"])

    assert outcome.output == "a b|$HOME|*|-n|ü|"


@pytest.mark.parametrize(
    ("command", "code"), [(["no-such-program"], 127), (["/"], 126), ("kill -9 $$", 137), ("exit 255", 255)]
)
async def test_exit_codes_are_those_of_a_shell(run: Run, command: str | list[str], code: int) -> None:
    assert (await run("k", command)).exit_code == code


async def test_missing_folder_is_an_exit_code_with_a_message(tmp_path: Path, spool_dir: Path) -> None:
    outcome = await run_spooled("k", ["true"], cwd=tmp_path / "gone", spool_dir=spool_dir)

    assert outcome.exit_code == 127
    assert "gone" in outcome.output


async def test_input_comes_from_a_file_and_is_empty_otherwise(run: Run) -> None:
    assert (await run("a", ["cat"], stdin=b"envelope")).output == "envelope"
    assert (await run("b", ["cat"])).output == ""


async def test_same_key_again_returns_the_recorded_end_without_running(run: Run, tmp_path: Path) -> None:
    first = await run("k", "echo x >> effects; exit 4")
    again = await run("k", "echo x >> effects; exit 4")

    assert _lines(tmp_path / "effects") == ["x"]
    assert (again.exit_code, again.reattached) == (first.exit_code, True)


async def test_key_of_another_command_is_refused(run: Run) -> None:
    await run("k", "true")

    with pytest.raises(Nondeterminism, match="argv"):
        await run("k", "false")


async def test_environment_is_clean(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("LANG", "C.UTF-8")

    outcome = await run("k", ["env"], env={"EXTRA": "1"})

    names = {line.split("=")[0] for line in outcome.output.splitlines()}
    assert "sk-secret" not in outcome.output
    assert names >= {"PATH", "HOME", "LANG", "EXTRA"}
    # Python sets the one where there is no locale, a shell the other.
    assert names - set(clean_environment()) - {"LC_CTYPE", "PWD"} == {"EXTRA", "HOLDFAST_SPOOL"}


async def test_long_output_is_cut_in_the_middle(run: Run) -> None:
    outcome = await run("k", "echo first; seq 100000; echo last", max_output=1000)

    assert outcome.is_truncated
    assert outcome.output.startswith("first\n1\n")
    assert outcome.output.endswith("100000\nlast\n")
    assert "bytes are not shown" in outcome.output
    assert len(outcome.output) < 1100
    assert outcome.log_path.stat().st_size > 500_000


async def test_background_child_that_keeps_the_output_does_not_block(run: Run, spool_dir: Path) -> None:
    outcome = await run("k", "sleep 300 & echo $!")
    child = identify(int(outcome.output))
    assert child is not None

    await stop_spooled("k", spool_dir=spool_dir)

    assert outcome.exit_code == 0
    assert not is_alive(child)


async def test_time_out_ends_the_whole_group(run: Run) -> None:
    outcome = await run(
        "k", "trap '' TERM; sh -c 'trap \"\" TERM; sleep 300' & setsid sleep 300 & echo $!; wait", timeout_s=3
    )

    assert outcome.timed_out
    assert outcome.exit_code == 137
    assert identify(int(outcome.output)) is None


async def test_output_without_end_is_stopped(run: Run) -> None:
    outcome = await run("k", ["yes"], max_log_bytes=1_000_000, max_output=100)

    assert outcome.state is CommandState.OUTPUT_LIMIT


async def test_cancelling_ends_the_group_and_the_next_look_says_so(run: Run, tmp_path: Path, spool_dir: Path) -> None:
    task = asyncio.ensure_future(run("k", "echo $$ > pid; sleep 300"))
    await until(lambda: _lines(tmp_path / "pid"))
    process = identify(int(_lines(tmp_path / "pid")[0]))
    assert process is not None

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not is_alive(process)
    assert (await run("k", "echo $$ > pid; sleep 300")).state is CommandState.CANCELLED


async def test_cancelling_can_leave_it_running(run: Run, tmp_path: Path) -> None:
    command = "echo a >> effects; while [ ! -e go ]; do sleep 0.01; done; echo b >> effects"
    task = asyncio.ensure_future(run("k", command, leave_running=True))
    await until(lambda: _lines(tmp_path / "effects"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (tmp_path / "go").touch()
    outcome = await run("k", command)

    assert (outcome.exit_code, outcome.reattached) == (0, True)
    assert _lines(tmp_path / "effects") == ["a", "b"]


async def test_cancelling_during_the_start_leaves_nothing_behind(run: Run, spool_dir: Path) -> None:
    for number in range(5):
        task = asyncio.ensure_future(run(f"k{number}", "sleep 300"))
        await asyncio.sleep(0.004 * number)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if (spool_folder(spool_dir, f"k{number}") / "pid.json").exists():
            assert identify(_pids(spool_dir, f"k{number}")[1]) is None


ENGINE = """
import asyncio, sys
from pathlib import Path
from holdfast.workspace import SpoolOptions, run_spooled
command, cwd, spool_dir, timeout_s = sys.argv[1:]
options = SpoolOptions(timeout_s=float(timeout_s))
asyncio.run(run_spooled("k", command, cwd=Path(cwd), spool_dir=Path(spool_dir), options=options))
"""


def _start_engine(command: str, cwd: Path, spool_dir: Path, timeout_s: float = 60) -> "subprocess.Popen[bytes]":
    argv = [sys.executable, "-c", ENGINE, command, str(cwd), str(spool_dir), str(timeout_s)]
    return subprocess.Popen(argv, start_new_session=True)


async def test_command_outlives_a_killed_engine_and_is_found_again(run: Run, tmp_path: Path, spool_dir: Path) -> None:
    command = "echo start >> effects; while [ ! -e go ]; do sleep 0.01; done; echo end >> effects; echo done; exit 5"
    engine = _start_engine(command, tmp_path, spool_dir)
    await until(lambda: _lines(tmp_path / "effects"))
    os.killpg(engine.pid, signal.SIGKILL)
    engine.wait()
    asyncio.get_running_loop().call_later(0.1, (tmp_path / "go").touch)

    outcome = await run("k", command)

    assert (outcome.exit_code, outcome.output, outcome.reattached) == (5, "done\n", True)
    assert _lines(tmp_path / "effects") == ["start", "end"]


@pytest.mark.parametrize("delay_ms", [0, 5, 10, 15, 20, 25, 30, 40, 60])
async def test_engine_killed_while_starting_the_command_leads_to_one_effect(
    run: Run, tmp_path: Path, spool_dir: Path, delay_ms: int
) -> None:
    engine = _start_engine("echo x >> effects", tmp_path, spool_dir)
    await until(lambda: (spool_folder(spool_dir, "k") / "command.json").exists() or engine.poll() is not None)
    await asyncio.sleep(delay_ms / 1000)
    engine.kill()
    engine.wait()

    outcome = await run("k", "echo x >> effects")

    assert outcome.exit_code == 0
    assert _lines(tmp_path / "effects") == ["x"]


async def test_two_engines_at_once_start_it_once(run: Run, tmp_path: Path) -> None:
    outcomes = await asyncio.gather(*(run("k", "echo x >> effects; sleep 0.1") for _ in range(4)))

    assert {outcome.exit_code for outcome in outcomes} == {0}
    assert _lines(tmp_path / "effects") == ["x"]


async def test_time_out_is_kept_while_no_engine_lives(run: Run, tmp_path: Path, spool_dir: Path) -> None:
    command = "echo x > started; sleep 300"
    engine = _start_engine(command, tmp_path, spool_dir, timeout_s=3)
    await until(lambda: _lines(tmp_path / "started"))
    engine.kill()
    engine.wait()
    await until(lambda: (spool_folder(spool_dir, "k") / "rc.json").exists())

    outcome = await run("k", command)

    assert outcome.timed_out
    assert outcome.reattached


async def test_killed_runner_means_lost_and_waits_for_the_command_to_end(
    run: Run, tmp_path: Path, spool_dir: Path
) -> None:
    command = "echo x >> effects; while [ ! -e go ]; do sleep 0.01; done; echo y >> effects"
    task = asyncio.ensure_future(run("k", command))
    await until(lambda: _lines(tmp_path / "effects"))
    os.kill(_pids(spool_dir, "k")[0], signal.SIGKILL)
    (tmp_path / "go").touch()

    outcome = await task

    assert (outcome.state, outcome.exit_code) == (CommandState.LOST, None)
    assert _lines(tmp_path / "effects") == ["x", "y"]
    assert (await run("k", command)).state is CommandState.LOST


async def test_a_command_whose_end_is_recorded_runs_no_more_though_its_runner_still_ends(
    run: Run, spool_dir: Path
) -> None:
    await run("k", "true")
    folder = spool_folder(spool_dir, "k")
    record = json.loads((folder / "pid.json").read_text())
    runner = identify(os.getpid())
    assert runner is not None
    record["runner"] = [runner.pid, runner.started, runner.boot_id]  # alive, and so as one that has not ended yet
    (folder / "pid.json").write_text(json.dumps(record))

    assert list_commands(spool_dir) == []
    (folder / "rc.json").rename(folder / "rc.json.away")
    assert list_commands(spool_dir) == ["k"]
    (folder / "rc.json.away").rename(folder / "rc.json")


def test_a_leader_that_has_no_session_of_its_own_yet_is_found() -> None:
    child = subprocess.Popen(["sleep", "300"])
    try:
        leader = identify(child.pid)
        assert leader is not None
        assert find_members(leader, "no such tag") == [child.pid]
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("stale", ["reboot", "pid used again"])
async def test_record_of_a_process_that_is_no_more_means_lost(
    run: Run, spool_dir: Path, tmp_path: Path, stale: str
) -> None:
    await run("k", "echo x >> effects")
    folder = spool_folder(spool_dir, "k")
    (folder / "rc.json").unlink()
    here = identify(os.getpid())
    assert here is not None
    boot_id = "another boot" if stale == "reboot" else here.boot_id
    started = here.started if stale == "reboot" else "1"
    record = {"runner": [here.pid, started, boot_id], "leader": [here.pid, started, boot_id], "started_at": 0}
    (folder / "pid.json").write_text(json.dumps(record))

    outcome = await run("k", "echo x >> effects")

    assert outcome.state is CommandState.LOST
    assert _lines(tmp_path / "effects") == ["x"]


async def test_stopped_runner_does_not_keep_a_command_alive(
    run: Run, spool_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.workspace.commands.spool_watch._BACKUP_S", 0.2)
    task = asyncio.ensure_future(run("k", "echo x > started; sleep 300", timeout_s=3))
    await until(lambda: _lines(tmp_path / "started"))
    runner, leader = _pids(spool_dir, "k")
    os.kill(runner, signal.SIGSTOP)
    try:
        outcome = await task
    finally:
        os.kill(runner, signal.SIGCONT)

    assert outcome.timed_out
    assert identify(leader) is None


async def test_same_key_in_another_spool_is_another_command(run: Run, tmp_path: Path, spool_dir: Path) -> None:
    other = tmp_path / "other"
    task = asyncio.ensure_future(run("k", "echo x > started; while [ ! -e go ]; do sleep 0.01; done; exit 6"))
    await until(lambda: _lines(tmp_path / "started"))
    await run_spooled("k", "sleep 300 &", cwd=tmp_path, spool_dir=other)

    await stop_spooled("k", spool_dir=other)
    (tmp_path / "go").touch()

    assert (await task).exit_code == 6


async def test_forgetting_a_command_frees_its_key(run: Run, tmp_path: Path, spool_dir: Path) -> None:
    task = asyncio.ensure_future(run("k", "echo x >> effects; while [ ! -e go ]; do sleep 0.01; done"))
    await until(lambda: _lines(tmp_path / "effects"))
    with pytest.raises(WorkspaceError, match="still runs"):
        remove_spooled("k", spool_dir=spool_dir)
    (tmp_path / "go").touch()
    await task

    remove_spooled("k", spool_dir=spool_dir)
    await run("k", "echo y >> effects")

    assert _lines(tmp_path / "effects") == ["x", "y"]


async def test_empty_command_is_refused(run: Run) -> None:
    with pytest.raises(WorkspaceError):
        await run("k", [])


def test_own_process_is_recognised_and_others_are_not() -> None:
    here = identify(os.getpid())
    assert here is not None

    assert is_alive(here)
    assert not is_alive(ProcessIdentity(here.pid, "1", here.boot_id))
    assert identify(2**22 + 1) is None
