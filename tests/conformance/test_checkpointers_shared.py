"""One store, many users: threads, processes, forks, and programs that end without a word."""

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.stores import Place, finish, progress, seqs

from holdfast.runtime.checkpoint import Checkpointer
from holdfast.runtime.state import RunState

THREADS = 64
EACH = 4


def in_threads(work: Callable[[int], list[int]]) -> list[int]:
    """Call `work` in every thread at the same moment; returns all numbers they were given."""
    barrier = threading.Barrier(THREADS)

    def start(thread: int) -> list[int]:
        barrier.wait()
        return work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        return [seq for numbers in pool.map(start, range(THREADS)) for seq in numbers]


def test_threads_save_into_one_run(store: Checkpointer) -> None:
    numbers = in_threads(lambda thread: [store.save_event(progress(n=[thread, n])).seq for n in range(EACH)])

    events = store.list_events("r")
    assert sorted(numbers) == [event.seq for event in events] == list(range(1, THREADS * EACH + 1))
    assert len({tuple(event.payload["n"]) for event in events}) == THREADS * EACH


def test_threads_save_into_many_runs(store: Checkpointer) -> None:
    in_threads(lambda thread: [store.save_event(progress(f"r{(thread + n) % 80}")).seq for n in range(EACH)])

    assert sum(len(seqs(store, run_id)) for run_id in store.list_runs()) == THREADS * EACH
    assert all(seqs(store, run_id) == list(range(1, len(seqs(store, run_id)) + 1)) for run_id in store.list_runs())


def test_threads_read_while_others_write(store: Checkpointer) -> None:
    def use(thread: int) -> list[int]:
        if thread % 4:
            return [store.save_event(progress()).seq]
        found = seqs(store)
        store.save_snapshot("r", RunState("r", data={"seen": len(found)}))
        assert found == list(range(1, len(found) + 1))
        assert store.load_latest("r") is not None
        return []

    numbers = in_threads(use)

    assert sorted(numbers) == seqs(store)


def test_threads_delete_while_others_write(store: Checkpointer) -> None:
    def use(thread: int) -> list[int]:
        if thread % 8 == 0:
            store.delete_run("r")
            return []
        return [store.save_event(progress()).seq]

    in_threads(use)

    left = seqs(store)
    assert left == list(range(1, len(left) + 1))


WRITER = """
import json
numbers = [store.save_event(progress(n=[args[0], n])).seq for n in range(int(args[1]))]
print(json.dumps(numbers))
"""


def test_processes_save_into_one_run(disk_place: Place) -> None:
    processes = [disk_place.start_process(WRITER, name, 40) for name in range(3)]
    store = disk_place.open()
    mine = [store.save_event(progress(n=["me", n])).seq for n in range(40)]

    numbers = mine + [seq for process in processes for seq in json.loads(finish(process))]

    events = store.list_events("r")
    assert sorted(numbers) == [event.seq for event in events] == list(range(1, 161))
    assert len({tuple(event.payload["n"]) for event in events}) == 160


def test_what_another_process_writes_is_seen_at_once(disk_place: Place) -> None:
    store = disk_place.open()
    code = "for line in sys.stdin:\n    print(store.save_event(progress(n=line.strip())).seq, flush=True)\n"
    other = disk_place.start_process(code)
    with other:
        for turn in range(3):
            assert store.save_event(progress()).seq == 2 * turn + 1
            other.stdin.write("x\n")
            other.stdin.flush()
            assert int(other.stdout.readline()) == 2 * turn + 2
            assert seqs(store, "r", 2 * turn) == [2 * turn + 1, 2 * turn + 2]
        other.stdin.close()


def test_a_run_that_another_process_deleted_starts_anew(disk_place: Place) -> None:
    store = disk_place.open()
    for _ in range(3):
        store.save_event(progress(text="x" * 50_000))

    finish(disk_place.start_process("store.delete_run('r'); store.save_event(progress(n='new'))"))

    assert [event.payload for event in store.list_events("r")] == [{"n": "new"}]
    assert store.save_event(progress()).seq == 2


def test_a_program_that_closes_nothing_exits(place: Place) -> None:
    code = (
        "import threading\nfrom holdfast.runtime.state import RunState\n"
        "store.save_event(progress()); store.save_snapshot('r', RunState('r')); store.list_events('r')\n"
        "threads = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]\n"
        "assert not threads, threads\n"
    )

    finish(place.start_process(code, env={"PYTHONWARNINGS": "error"}))

    if place.kind != "memory":
        assert seqs(place.open()) == [1]


def test_a_program_killed_after_saving_has_saved(disk_place: Place) -> None:
    code = "print(store.save_event(progress()).seq, flush=True); sys.stdin.read()"
    process = disk_place.start_process(code)
    with process:
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGKILL)
        process.wait()

    assert seqs(disk_place.open()) == [1]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_parent_and_forked_child_both_go_on(disk_place: Place) -> None:
    """The child counts on from what it inherits, without taking the parent's locks or connections with it."""
    code = """
import os
store.save_event(progress(n=0))
store.list_events('r')
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        numbers = [store.save_event(progress(n=n)).seq for n in range(10)]
        assert set(numbers) <= {event.seq for event in store.list_events('r')}
        os._exit(0)
    children.append(pid)
for n in range(10):
    store.save_event(progress(n=n))
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
store.save_event(progress(n='last'))
"""
    finish(disk_place.start_process(code))

    assert seqs(disk_place.open()) == list(range(1, 33))


def test_many_runs_do_not_use_up_the_file_descriptors(place: Place) -> None:
    store = place.open()
    before = len(os.listdir("/dev/fd"))

    for n in range(150):
        store.save_event(progress(f"r{n}"))
    opened = len(os.listdir("/dev/fd"))
    for n in range(150):
        assert store.save_event(progress(f"r{n}")).seq == 2

    assert opened - before < 80
    assert len(os.listdir("/dev/fd")) <= opened + 1
    assert len(store.list_runs()) == 150
