"""An ASGI app on a real socket, served as `holdfast serve` does it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from holdfast.api.serve import GracefulServer, to_uvicorn


@dataclass(frozen=True)
class ServedApp:
    port: int
    server: uvicorn.Server

    def count_connections(self) -> int:
        return len(self.server.server_state.connections)


@contextlib.asynccontextmanager
async def serving_app(app: FastAPI) -> AsyncIterator[ServedApp]:
    """Serve an app whose lifespan is somebody else's."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = to_uvicorn(app)
    config.lifespan = "off"
    server = GracefulServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield ServedApp(int(listening.getsockname()[1]), server)
    finally:
        server.should_exit = True
        await serving


async def exchange(port: int, request: bytes) -> bytes:
    """Send bytes as they are and return everything that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""
    finally:
        writer.close()
