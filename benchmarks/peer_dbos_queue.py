"""A queue of DBOS with its defaults on Postgres: this process enqueues, processes of their own take.

`python -m benchmarks.peer_dbos_queue URL NAME` is such a process.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig

from benchmarks.measure import Place, Reading, payload, reading

_GAP_S = 0.1
_QUEUE = "bench"
_OPTIONS: Any = {"workflow_name": "one_step", "queue_name": _QUEUE}


@DBOS.step()
def _step(number: int) -> dict[str, Any]:
    return payload(number)


@DBOS.workflow(name="one_step")
def _one_step(number: int) -> float:
    began = time.time()
    _step(number)
    return began


@contextlib.contextmanager
def _workers(place: Place, count: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.peer_dbos_queue", place.url]
    started = [
        subprocess.Popen([*command, f"worker-{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def due_until_begun(place: Place) -> Reading:
    """From before the workflow is enqueued to its first line."""
    took = []
    with _workers(place, 1):
        client = DBOSClient(system_database_url=place.url)
        with reading() as found:
            for number in range(place.steps + 3):
                enqueued_at = time.time()
                handle: Any = client.enqueue(_OPTIONS, number)
                took.append(handle.get_result() - enqueued_at)
                time.sleep(_GAP_S)
        client.destroy()
    took = sorted(took[3:])
    found.extra.update(p50_s=took[len(took) // 2], p99_s=took[len(took) * 99 // 100])
    return found


def begun_and_ended(place: Place) -> Reading:
    """So many workflows of one step, enqueued by this process and done by two others."""
    with _workers(place, 2):
        client = DBOSClient(system_database_url=place.url)
        for handle in [client.enqueue(_OPTIONS, number) for number in range(20)]:
            handle.get_result()
        with reading() as found:
            handles = [client.enqueue(_OPTIONS, number) for number in range(place.steps)]
            for handle in handles:
                handle.get_result()
        client.destroy()
    return found


def main() -> None:
    url, name = sys.argv[1:]
    config: DBOSConfig = {"name": _QUEUE, "system_database_url": url, "log_level": "ERROR", "executor_id": name}
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(_QUEUE)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
