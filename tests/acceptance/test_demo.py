"""The demo's claims, checked from what it prints: the run was killed, resumed by others, and did everything once."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.progress_limit import wait_until

STEPS = ["spec.md", "plan.md", "todo.py", "store.py", "test_todo.py", "review.md", "release.txt"]


def run_demo(tmp_path: Path, *, columns: int = 100, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli.demo", "--flow", "--fast"],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": str(columns), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    scratch = tmp_path_factory.mktemp("scratch")
    done = run_demo(scratch)

    assert (done.returncode, done.stderr) == (0, "")
    assert list(scratch.iterdir()) == [], "its folder is gone afterwards"
    return done.stdout


def part(output: str, number: int) -> str:
    return output.partition(f"\n  {number}  ")[2].partition(f"\n  {number + 1}  ")[0]


def pids(output: str) -> list[str]:
    return re.findall(r"^ +process (\d+)$", output, re.MULTILINE)


def test_the_first_process_is_killed_in_the_middle_of_the_third_node(output: str) -> None:
    lines = part(output, 1).splitlines()

    assert lines[-2].split("  ")[-1] == "store.py is written, its result is not recorded yet"
    assert f"kill -9 {pids(output)[0]}" in lines[-1]


def test_three_processes_take_part(output: str) -> None:
    assert len(set(pids(output))) == 3


def test_the_second_process_calls_only_what_is_not_recorded(output: str) -> None:
    text = part(output, 2)

    assert "spec, plan, implement.list  replayed" in text
    assert re.findall(r"called, wrote (\S+)", text) == ["test_todo.py", "review.md"]
    assert "store.py is there" in text


def test_nothing_is_published_before_a_person_has_answered(output: str) -> None:
    before, _, after = output.partition('decide("demo", "publish", "approve"')

    assert "release.txt" not in before
    assert re.findall(r"called, wrote (\S+)", part(after, 4)) == ["release.txt"]


def test_the_table_says_who_did_what_and_that_each_effect_happened_once(output: str) -> None:
    header, _, *rows = [line.split() for line in part(output, 5).splitlines()[1:]]

    first, second, third = pids(output)
    assert header == ["node", "side", "effect", first, second, third, "times"]
    assert [row[-1] for row in rows] == ["1"] * len(STEPS)
    assert [next(cell for cell in row if "." in cell) for row in rows] == STEPS
    assert rows[0] == ["spec", "spec.md", "called", "replayed", "replayed", "1"]
    assert rows[3] == ["store.py", "killed", "found", "done", "replayed", "1"]
    assert rows[6] == ["publish", "release.txt", "·", "·", "called", "1"]


def test_the_transcript_tells_the_whole_run_in_order(output: str) -> None:
    lines = [line.split(" s  ", 1) for line in part(output, 6).splitlines()[1:] if line]

    assert [int(left.split()[0]) for left, _ in lines] == list(range(1, len(lines) + 1))
    entries = [right for _, right in lines]
    assert entries[:2] == ["run created: deliver", "run started"]
    assert [line for line in entries if line == "run resumed"] == ["run resumed"] * 2
    assert "implement.store completed, reconciled: the store of a to-do list" in entries
    assert entries.index("publish answered by you: approve") < entries.index("publish started")
    assert entries[-1] == 'run completed: {"feature":"a to-do list","files":7}'


def test_every_claim_holds(output: str) -> None:
    claims = part(output, 7).splitlines()[1:]

    assert len([line for line in claims if line.strip()]) == 8
    assert all(line.lstrip().startswith("✓") for line in claims if line.strip())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_ended_demo_leaves_neither_folder_nor_process(tmp_path: Path, number: signal.Signals) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "holdfast.cli.demo", "--flow"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        child = next(int(found[1]) for line in demo.stdout if (found := re.search(r"process (\d+)", line)))
        demo.send_signal(number)
        demo.communicate()

    assert demo.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: is_gone(child), "the killed run is gone")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_without_a_terminal_there_is_no_colour(output: str) -> None:
    assert "\x1b" not in output


def test_no_color_is_respected_in_a_terminal(tmp_path: Path) -> None:
    coloured = run_demo(tmp_path, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="")
    plain = run_demo(tmp_path, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1")

    assert "\x1b[32m" in coloured.stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain.stdout)


def test_a_narrow_terminal_gets_no_line_that_is_too_long(tmp_path: Path) -> None:
    assert_fits(run_demo(tmp_path, columns=40), 40)


def test_a_terminal_without_utf_8_gets_plain_letters(tmp_path: Path) -> None:
    done = run_demo(tmp_path, columns=60, PYTHONIOENCODING="ascii")

    assert_fits(done, 60)
    assert done.stderr == ""
    assert "spec -> plan -> implement" in done.stdout


def assert_fits(done: subprocess.CompletedProcess[str], columns: int) -> None:
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert "…" not in part(done.stdout, 5)
