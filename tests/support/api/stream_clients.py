"""Clients that come back: whatever breaks their stream, they go on after the last id they have seen."""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx

# Never used; but a client that makes one of its own reads every certificate of the machine for it.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def one_by_one(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The frames of a stream, however many of them it sends at a time. Whoever leaves early loses the rest."""
    async for sent in stream:
        for frame in sent.split(b"\n\n")[:-1]:
            yield frame + b"\n\n"


class Follower:
    """Follows one stream from whichever server is up, and leaves it by itself now and then."""

    def __init__(self, token: str, path: str, seed: object, *, stay: int = 40) -> None:
        self.servers: list[str] = []
        self.log: list[dict[str, Any]] = []
        self.ids: list[int] = []
        self.visits = 0
        self._headers = {"Authorization": f"Bearer {token}"}
        self._path = path
        self._chance = random.Random(str(seed))
        self._stay = stay

    async def follow(self, until: asyncio.Event | None = None) -> list[dict[str, Any]]:
        """Until the stream says `done`, or until told to stop."""
        while not (until is not None and until.is_set()):
            self.visits += 1
            try:
                async with httpx.AsyncClient(timeout=None, verify=_NO_TLS) as client:
                    if await self._follow_once(client, self._chance.choice(self.servers), until):
                        break
            except httpx.HTTPError:
                await asyncio.sleep(0.05)
        return self.log

    async def _follow_once(self, client: httpx.AsyncClient, url: str, until: asyncio.Event | None) -> bool:
        left, seen = self._chance.randint(1, self._stay), ""
        headers = {**self._headers, "Last-Event-ID": str(self.ids[-1] if self.ids else 0)}
        async with client.stream("GET", f"{url}{self._path}", headers=headers) as answer:
            if answer.status_code != 200:
                raise httpx.HTTPError(f"status {answer.status_code}")
            async for line in answer.aiter_lines():
                if line == "event: done":
                    return True
                if line.startswith("id: "):
                    seen = line[4:]
                elif line.startswith("data: "):
                    self.log.append(json.loads(line[6:]))
                    self.ids.append(int(seen))
                    left -= 1
                if left <= 0 or (until is not None and until.is_set()):
                    return False
        return False
