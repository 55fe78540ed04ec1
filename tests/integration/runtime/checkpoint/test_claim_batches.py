"""Claims made together: the event loop, and the other runs, go on while the owner of one of them is ending."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.progress_limit import until

from holdfast.errors import RunBusy, StoreBusy
from holdfast.runtime.checkpoint import SQLiteCheckpointer, process_owner, run_lock
from holdfast.runtime.checkpoint.base import OwnerEnding
from holdfast.runtime.checkpoint.sqlite.transaction import connect
from holdfast.runtime.journal import Journal

HOLD = """
import sys
from holdfast.runtime.checkpoint import SQLiteCheckpointer
store = SQLiteCheckpointer(sys.argv[1])
store.claim("theirs")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
async def journal(path: Path, holder: subprocess.Popen[str]) -> AsyncIterator[Journal]:
    store = SQLiteCheckpointer(path)
    journal = Journal(store)
    yield journal
    await journal.close()
    store.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Let every holder be one that was killed and does not come to its end; by which threads it was looked at."""
    looks: list[threading.Thread] = []

    def note_look(_pid: int) -> bool:
        looks.append(threading.current_thread())
        return True

    monkeypatch.setattr(process_owner, "is_ending", note_look)
    monkeypatch.setattr(run_lock, "_MOST_ENDING_S", 600.0)
    return looks


async def test_the_loop_and_other_runs_go_on_while_a_killed_owner_is_waited_for(
    journal: Journal, holder: subprocess.Popen[str], looks: list[threading.Thread]
) -> None:
    theirs = asyncio.create_task(journal.claim("theirs"))
    mine = await journal.claim("mine")
    await until(lambda: len(looks) > 3, "it is waited for")

    later = await journal.claim("later")
    holder.kill()
    claim = await theirs

    assert claim.is_takeover
    assert (mine.is_takeover, later.is_takeover) == (False, False)
    assert looks.count(threading.main_thread()) == 1


async def test_a_living_owner_that_the_system_does_not_list_is_found_busy_off_the_loop(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[threading.Thread] = []
    monkeypatch.setattr(run_lock, "_read_holders", dict)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _seconds: naps.append(threading.current_thread()))
    monkeypatch.setattr(run_lock, "time", clock)

    with pytest.raises(RunBusy) as busy:
        await journal.claim("theirs")

    assert not isinstance(busy.value, OwnerEnding)
    assert "by process" in busy.value.message
    assert naps
    assert threading.main_thread() not in naps


async def test_a_claim_is_not_made_twice_while_its_owner_is_ending(
    journal: Journal, holder: subprocess.Popen[str], looks: list[threading.Thread]
) -> None:
    first = asyncio.create_task(journal.claim("theirs"))
    await until(lambda: len(looks) > 1, "it is waited for")

    with pytest.raises(RunBusy, match="in this process"):
        await journal.claim("theirs")

    holder.kill()
    await first


async def test_that_an_owner_died_is_known_also_after_a_claim_that_the_store_had_no_time_for(
    path: Path, journal: Journal, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    other = connect(str(path))
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreBusy):
        journal.store.claim_many(["theirs"], wait_s=0)
    other.execute("ROLLBACK")
    other.close()

    assert (await journal.claim("theirs")).is_takeover
