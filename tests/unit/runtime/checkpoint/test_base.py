"""Ids of new runs: by chance, and those of one process beside each other."""

import itertools
import subprocess
import sys

from holdfast.runtime.checkpoint.base import check_run_id, new_run_id

_MANY = 1000


def test_ids_are_different_from_their_first_eight_digits_on() -> None:
    ids = [new_run_id() for _ in range(_MANY)]
    assert len({run_id[:8] for run_id in ids}) == _MANY
    assert len({run_id[8:] for run_id in ids}) == _MANY
    for run_id in ids:
        assert check_run_id(run_id) == run_id
        assert len(bytes.fromhex(run_id)) == 16


def test_the_next_id_of_a_process_lies_beside_the_last_one() -> None:
    places = [int(new_run_id()[:8], 16) for _ in range(_MANY)]
    steps = [(after - before) % 2**32 for before, after in itertools.pairwise(places)]
    assert 1 <= min(steps) <= max(steps) <= 4096


def test_processes_begin_at_different_places_even_if_one_is_forked_from_the_other() -> None:
    program = """
import os
from holdfast.runtime.checkpoint.base import new_run_id
new_run_id()
if not (child := os.fork()):
    print(new_run_id()[:8], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(new_run_id()[:8])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    of_child, of_parent = (int(line, 16) for line in done.stdout.split())
    # Without a new start both are at most 4,096 from the last id; by chance that happens once in half a million times.
    assert 4096 < (of_child - of_parent) % 2**32 < 2**32 - 4096
