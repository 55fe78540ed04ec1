"""A process that makes calls to a model server, as many at a time as it may: `URL ADDRESS PROVIDER COUNT`.

It says each call that is over, a line each.
"""

import asyncio
import sys

import httpx

from holdfast.agents.calls.rate_limits import RateLimits
from holdfast.persistence.db import Database
from holdfast.runtime.run_fold.provider_wait import ProviderWait


async def main(url: str, address: str, provider: str, count: int) -> None:
    db, limits = Database(url), RateLimits((), ())
    limits.share_with(db)
    body = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "stream": True}

    async def call(client: httpx.AsyncClient, number: int) -> None:
        async with limits.slot(provider, str(number)).reserve(_no_word):
            answer = await client.post(f"{address}/chat/completions", json=body)
            answer.raise_for_status()
        print(number, flush=True)

    async with httpx.AsyncClient(timeout=None, trust_env=False) as client, asyncio.TaskGroup() as calls:
        for number in range(count):
            calls.create_task(call(client, number))
    await db.dispose()


async def _no_word(_wait: ProviderWait) -> None: ...


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
