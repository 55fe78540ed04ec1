"""A server on loopback that takes every connection and says nothing."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def open_silent_server() -> Iterator[int]:
    """Take connections and keep them open until left; yields the port."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connections.append(listener.accept()[0])
                except OSError:  # it was closed
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                connection.close()
