"""The network between a store and its server: it can keep what is sent, in either direction, and be cut."""

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, urlsplit

_SOCKET = ".s.PGSQL.5432"


@dataclass
class Wire:
    """Connections to one server. What is kept back belongs to the connections of that time; later ones are whole."""

    url: str
    answers: bytearray = field(default_factory=bytearray)
    is_flowing: threading.Event = field(default_factory=threading.Event)
    """While it is not set, nothing is taken from anyone."""
    host: str = ""
    """The folder of the server's socket; another one from now on after a failover."""
    has_ends: bool = False
    """One side hears when the other is gone, as it does of a process; of a machine without power it does not."""
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    _mute_clients: set[socket.socket] = field(default_factory=set)
    _mute_servers: set[socket.socket] = field(default_factory=set)
    _held_back: dict[socket.socket, bytearray] = field(default_factory=dict)

    @property
    def questions(self) -> bytes:
        """What clients have sent since `keep_questions`, and the server has not got."""
        return b"".join(bytes(data) for data in list(self._held_back.values()))

    def keep_questions(self) -> None:
        self._mute_clients = {client for client, _ in self._pairs}

    def keep_answers(self) -> None:
        self._mute_servers = {server for _, server in self._pairs}

    def cut(self) -> None:
        """Clients see a broken network; the server does not."""
        for client, _ in self._pairs:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def deliver_questions(self, text: bytes) -> None:
        """The network was only slow: the server gets what the client has sent that sent `text`, and answers nobody."""
        (client,) = (client for client, data in self._held_back.items() if text in data)
        (server,) = (server for known, server in self._pairs if known is client)
        self._mute_servers = {server}
        server.sendall(self._held_back[client])

    def join(self, client: socket.socket, server: socket.socket) -> None:
        self._pairs.append((client, server))
        try:
            server.connect(f"{self.host}/{_SOCKET}")
        except OSError:  # it is down; clients come again
            client.close()
            server.close()
            return
        threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
        threading.Thread(target=self._carry, args=(server, client), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._carry_all(source, target)
        if self.has_ends:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            source.close()

    def _carry_all(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            self.is_flowing.wait()
            if source in self._mute_clients:
                self._held_back.setdefault(source, bytearray()).extend(data)
            elif source in self._mute_servers:
                self.answers += data
            else:
                target.sendall(data)

    def close(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.close()


@contextlib.contextmanager
def open_wire(server_url: str) -> Iterator[Wire]:
    parts = urlsplit(server_url)
    host = parse_qs(parts.query)["host"][0]
    with tempfile.TemporaryDirectory(prefix="hf-wire-") as folder, socket.socket(socket.AF_UNIX) as listener:
        wire = Wire(server_url.replace(quote(host, safe="/,"), folder), host=host)
        assert wire.url != server_url
        wire.is_flowing.set()
        listener.bind(f"{folder}/{_SOCKET}")
        listener.listen()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    wire.join(client, socket.socket(socket.AF_UNIX))

        threading.Thread(target=accept, daemon=True).start()
        yield wire
        wire.is_flowing.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        wire.close()
