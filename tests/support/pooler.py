"""A pooler in front of a Postgres, as far as a client can tell: in transaction mode all clients share one session."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


def _read(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise ConnectionError
        found += part
    return found


def _read_message(source: socket.socket) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("!ci", _read(source, 5))
    body = _read(source, length - 4)
    return kind, kind + struct.pack("!i", length) + body


class _Session:
    """One session of the server, used by one client at a time."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        folder = parse_qs(parts.query)["host"][0]
        self.lock = threading.Lock()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{folder}/.s.PGSQL.{parts.port or 5432}")
        names = f"user\0{parts.username}\0database\0{parts.path[1:]}\0\0".encode()
        self.socket.sendall(struct.pack("!ii", len(names) + 8, 196608) + names)
        self.greeting = b""
        while True:
            kind, message = _read_message(self.socket)
            if kind == b"K":  # a pooler gives a key of its own
                message = b"K" + struct.pack("!iii", 12, 1, 1)
            self.greeting += message
            if kind == b"Z":
                return

    def transact(self, client: socket.socket) -> None:
        """Carry one client's messages and the answers until the server is idle again."""
        first = client.recv(65536)
        if not first or first[:1] == b"X":
            raise ConnectionError
        with self.lock:
            self.socket.sendall(first)
            while True:
                kind, message = _read_message(self.socket)
                client.sendall(message)
                if kind == b"Z":
                    return


@contextlib.contextmanager
def running_pooler(server_url: str, mode: str) -> Iterator[str]:
    """Start a pooler in `transaction` or `session` mode and yield the URL that leads through it."""
    shared = _Session(server_url)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while (code := struct.unpack("!ii", _read(client, 8)))[1] in (_SSL_REQUEST, _GSS_REQUEST):
                client.sendall(b"N")
            _read(client, code[0] - 8)
            session = shared if mode == "transaction" else _Session(server_url)
            with session.socket if session is not shared else contextlib.nullcontext():
                client.sendall(session.greeting)
                while True:
                    session.transact(client)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    parts = urlsplit(server_url)
    try:
        yield f"postgresql://{parts.username}@127.0.0.1:{listening.getsockname()[1]}{parts.path}"
    finally:
        listening.close()
        shared.socket.close()
