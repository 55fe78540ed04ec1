"""The only way out of a sandbox without a network of its own: a proxy that lets through the listed hosts and logs all.

Outside, the command's runner starts it; it listens on a socket in the spool folder and logs there. Inside, a port of
the sandbox's own leads to that socket: `python -I -S network_proxy.py SOCKET COMMAND…`. Programs speak HTTP to it
(`CONNECT`, or a request for a whole address), so names are resolved here and nowhere else. An address of this machine
or of a private network is refused unless it is listed itself. Imports only the library.
"""

# ruff: noqa: PTH103, PTH118, S606
from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import socket
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

PORT = 3128
_OWN_HOSTS = ("127.0.0.1", "localhost", "::1")
WEB_PORTS = (80, 443)
_MOST_HEAD = 65536
_CONNECT_S, _SILENT_S = 20.0, 600.0
_MOST_CONNECTIONS = 256
_MOST_NOTES = 10_000
# Addresses that hold one of the older kind: of a gateway (NAT64), of translators, and compatible ones.
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
_PRIVATE_NETWORKS = (ipaddress.IPv6Network("64:ff9b:1::/48"),)  # a gateway's own prefix; Python 3.11 calls it global


class HostRules:
    """Which hosts may be reached: `pypi.org`, `*.npmjs.org`, `example.org:8443`, `127.0.0.1:5000`, `[::1]:80`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [split_address(pattern.lower()) for pattern in patterns]

    def allows(self, host: str, port: int) -> bool:
        return any(
            _matches(pattern, host) and port in ((only,) if only else WEB_PORTS) for pattern, only in self._rules
        )

    def names(self, host: str) -> bool:
        """Tell whether a host is listed by itself and not by a pattern; then it may be one of this machine."""
        return any(pattern == host for pattern, _ in self._rules)


def _matches(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) and host != pattern[2:] if pattern.startswith("*.") else host == pattern


def split_address(text: str) -> tuple[str, int]:
    """Split `host:port`; the port is 0 where there is none. Raises `ValueError`."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, _to_port(rest.removeprefix(":")) if rest else 0
    if text.count(":") > 1:
        return text, 0
    host, colon, port = text.partition(":")
    return host, _to_port(port) if colon else 0


def _to_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"{text!r} is no port")
    return int(text)


class Proxy:
    """Serves connections one thread each, and writes down what was asked for and whether it was let through."""

    def __init__(self, folder: str, patterns: Sequence[str]) -> None:
        self._rules = HostRules(patterns)
        self._log = os.open(os.path.join(folder, "requests"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._slots = threading.Semaphore(_MOST_CONNECTIONS)
        self._noting = threading.Lock()
        self._notes = 0

    def serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            self._slots.acquire()
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError, ValueError):
                client.settimeout(_SILENT_S)
                self._answer(client)
        finally:
            self._slots.release()

    def _answer(self, client: socket.socket) -> None:
        head, rest = _read_head(client)
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            _refuse(client, "400 Bad Request", "This is a proxy for HTTP.")
            return
        method, target, _ = words
        is_tunnel = method == "CONNECT"
        scheme, _, after = ("", "", target) if is_tunnel else target.partition("://")
        if not is_tunnel and scheme.lower() != "http":
            _refuse(client, "400 Bad Request", "Ask for a whole address that begins with http://, or use CONNECT.")
            return
        place, slash, path = after.partition("/")
        host, port = split_address(place.rpartition("@")[2].lower())
        host, port = host.rstrip("."), port or (443 if is_tunnel else 80)
        upstream, reason = connect(self._rules, host, port)
        self._note(method, host, port, reason)
        if upstream is None:
            _refuse(client, "403 Forbidden", f"{host}:{port} cannot be reached from here: {reason}.")
            return
        with upstream:
            if is_tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                upstream.sendall(rest)
            else:
                upstream.sendall(_to_origin(head, method, slash + path, place) + rest)
            sent, received = relay(client, upstream)
        self._note(method, host, port, "", sent=sent, received=received)

    def _note(self, method: str, host: str, port: int, reason: str, **more: int) -> None:
        with self._noting:
            self._notes += 1
            if self._notes > _MOST_NOTES:
                return
        entry = {"at": time.time(), "method": method[:16], "host": host[:255], "port": port, "reason": reason, **more}
        os.write(self._log, json.dumps(entry).encode() + b"\n")


def connect(rules: HostRules, host: str, port: int) -> tuple[socket.socket | None, str]:
    """Connect to a host that is allowed, by the very address that was looked at; or say why not."""
    if not rules.allows(host, port):
        return None, "the persona's network list does not have it"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None, "its name is not known"
    reason = "it has no address"
    for family, kind, protocol, _, address in found:
        if not rules.names(host) and not is_public(str(address[0])):
            reason = "it is an address of this machine or of a private network"
            continue
        upstream = socket.socket(family, kind, protocol)
        upstream.settimeout(_CONNECT_S)
        try:
            upstream.connect(address)
        except OSError as failed:
            upstream.close()
            reason = f"it does not answer ({failed.strerror or failed})"
            continue
        upstream.settimeout(_SILENT_S)
        return upstream, ""
    return None, reason


def is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.is_site_local or any(found in network for network in _PRIVATE_NETWORKS):
            return False
        inner = found.ipv4_mapped or found.sixtofour
        if any(found in network for network in _TRANSLATED):
            inner = ipaddress.IPv4Address(found.packed[-4:])
        if inner is not None and not inner.is_global:
            return False
    return found.is_global and not found.is_multicast


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(8192)
        if not part or len(data) > _MOST_HEAD:
            raise ValueError("no request")
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _to_origin(head: bytes, method: str, path: str, place: str) -> bytes:
    """Write a request as its server expects it, with the host that was judged, and for this one request only."""
    fields = [
        line
        for line in head.split(b"\r\n")[1:]
        if line.split(b":")[0].strip().lower() not in (b"host", b"connection", b"proxy-connection", b"keep-alive")
    ]
    first = f"{method} {path or '/'} HTTP/1.1\r\nHost: {place.rpartition('@')[2]}\r\nConnection: close".encode(
        "latin-1"
    )
    return b"\r\n".join([first, *fields]) + b"\r\n\r\n"


def _refuse(client: socket.socket, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    client.sendall(head.encode() + body)


def relay(one: socket.socket, other: socket.socket) -> tuple[int, int]:
    """Copy both ways until both ends are done; return how many bytes went from one to the other, and back."""
    returned: list[int] = []
    back = threading.Thread(target=lambda: returned.append(_copy(other, one)), daemon=True)
    back.start()
    sent = _copy(one, other)
    back.join()
    return sent, sum(returned)


def _copy(source: socket.socket, target: socket.socket) -> int:
    copied = 0
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
            copied += len(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    return copied


def find_own_ports(patterns: Sequence[str]) -> list[int]:
    """Find the ports of listed hosts of this machine: programs often use no proxy for those."""
    addresses = [split_address(pattern) for pattern in patterns]
    return sorted({port for host, port in addresses if port and host in _OWN_HOSTS})


def to_proxy_environment(port: int) -> dict[str, str]:
    """Return the variables by which programs find a proxy; the last one is for Node.js."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    address = f"http://127.0.0.1:{port}"
    return {name: address for lower in names for name in (lower, lower.upper())} | {"NODE_USE_ENV_PROXY": "1"}


def start_proxy(rules: dict[str, Any], end_with_parent: Callable[[], None]) -> int:
    """Start the proxy for the spool folder that is the working folder; on return it takes connections.

    Where the rules are Landlock's, it listens on a port, which is added to them.
    """
    hosts = rules["hosts"]
    if rules.get("landlock"):
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = listener.getsockname()[1]
        rules["landlock"]["ports"] = [port, *find_own_ports(hosts)]
        rules["env"] = {**rules["env"], **to_proxy_environment(port)}
    else:
        os.makedirs("proxy", mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("proxy/socket")  # noqa: PTH108
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("proxy/socket")  # relative: a whole path may be too long for a socket
        listener.listen(128)
    child = os.fork()
    if child:
        listener.close()
        return child
    try:
        end_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.dup2(listener.fileno(), 3)
        os.closerange(4, 256)  # the runner's lock and pipes are not ours to hold
        Proxy(".", hosts).serve(socket.socket(fileno=os.dup(3)))
    finally:
        os._exit(0)


def lead(path: str, ports: Sequence[str], argv: Sequence[str]) -> None:
    """Listen on a port of this sandbox, lead it to the proxy's socket, and become the command.

    The same for `ports` of listed hosts of this machine: what is said there goes to the host's own port.
    """
    listeners = {socket.create_server(("127.0.0.1", PORT), backlog=128): b""}
    for port in ports:
        head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()
        with contextlib.suppress(OSError):  # a port that only root may have
            listeners[socket.create_server(("127.0.0.1", int(port)), backlog=128)] = head
    if os.fork():
        for listener in listeners:
            listener.close()
        try:
            os.execvp(argv[0], list(argv))
        except OSError as failed:
            os.write(2, f"{argv[0]}: {failed.strerror}\n".encode())
            os._exit(127 if isinstance(failed, FileNotFoundError) else 126)
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    for listener, head in listeners.items():
        threading.Thread(target=_lead_all, args=(listener, path, head), daemon=True).start()
    threading.Event().wait()


def _lead_all(listener: socket.socket, path: str, head: bytes) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_lead_one, args=(client, path, head), daemon=True).start()


def _lead_one(client: socket.socket, path: str, head: bytes) -> None:
    """Lead a connection to the proxy; with a `head` ask that first for a tunnel, of which the client knows nothing."""
    with contextlib.suppress(OSError, ValueError), client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
        proxy.connect(path)
        if head:
            proxy.sendall(head)
            answer, rest = _read_head(proxy)
            if b" 200 " not in answer.split(b"\r\n")[0]:
                return
            client.sendall(rest)
        relay(client, proxy)


if __name__ == "__main__":
    lead(sys.argv[1], [port for port in sys.argv[2].split(",") if port], sys.argv[3:])
