"""A process that writes to runs like any other writer: `python feed_writer.py URL SEED COUNT RUN_ID…`."""

import random
import sys
import time

from holdfast.runtime.checkpoint.base import Append, prepare
from holdfast.runtime.events import create_event
from holdfast.runtime.stores import open_store


def main(url: str, seed: str, count: str, *run_ids: str) -> None:
    chance = random.Random(seed)
    store = open_store(url)
    print("ready", flush=True)
    for number in range(int(count)):
        batch = [
            Append(run_id, [prepare(_event(run_id, chance, number)) for _ in range(chance.randint(1, 3))])
            for run_id in chance.sample(run_ids, chance.randint(1, min(3, len(run_ids))))
        ]
        store.append(batch)
        time.sleep(chance.random() * 0.02)
    store.close()


def _event(run_id: str, chance: random.Random, number: int) -> object:
    big = "x" * 40_000 if chance.random() < 0.02 else ""
    return create_event(run_id, chance.choice(["agent.progress", "text.delta", "tool.result"]), number=number, big=big)


if __name__ == "__main__":
    main(*sys.argv[1:])
