"""One page of the web, by the rules of a host list: bounded in size, time and redirects, at addresses looked at.

The address that a name leads to is looked at and connected to in one go, so a name that changes its mind in between
leads nowhere else. Everything here blocks; it is called in a thread.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from holdfast.agents.policy.web_policy import find_place
from holdfast.workspace.commands.network_proxy import WEB_PORTS, HostRules, connect

MAX_BYTES = 2 * 1024**2
"""Of a body, after it is unpacked; what is longer is cut."""
MAX_REDIRECTS = 5
WHOLE_S = 30.0
_MAX_URL_CHARS = 4000
_PIECE_BYTES = 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"User-Agent": "holdfast", "Accept": "text/html,text/*,application/json,*/*;q=0.1", "Connection": "close"}


class PageRefused(Exception):
    """A page is not fetched; the message says why, for the agent."""


class PublicHosts(HostRules):
    """Every host of the public internet, on the web's own ports; with `only`, that one host."""

    def __init__(self, only: str = "") -> None:
        super().__init__(())
        self._only = only

    def allows(self, host: str, port: int) -> bool:
        return port in WEB_PORTS and host in (self._only or host, f"www.{self._only}")


@dataclass(frozen=True, slots=True)
class Page:
    """What a server answered; `is_cut` if there was more."""

    url: str
    status: int
    content_type: str
    charset: str
    body: bytes
    is_cut: bool

    @property
    def text(self) -> str:
        try:
            return self.body.decode(self.charset or "utf-8", errors="replace")
        except LookupError:
            return self.body.decode(errors="replace")


class PageRequest:
    """One fetch. `stop` ends it from another thread; so does its time."""

    def __init__(self, hosts: HostRules, *, whole_s: float = WHOLE_S) -> None:
        self._hosts = hosts
        self._whole_s = whole_s
        self._ends_at = time.monotonic() + whole_s
        self._socket: socket.socket | None = None
        self._is_over = False

    def stop(self) -> None:
        """Cut the connection, whatever it waits for."""
        self._is_over = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def fetch(self, url: str) -> Page:
        """Fetch a page, its redirects followed as far as they may go. Raises `PageRefused`."""
        watch = threading.Timer(max(0.0, self._ends_at - time.monotonic()), self.stop)
        watch.daemon = True
        watch.start()
        try:
            for _ in range(MAX_REDIRECTS + 1):
                page = self._fetch_one(url)
                if isinstance(page, Page):
                    return page
                url = page
            raise PageRefused(f"It redirects more than {MAX_REDIRECTS} times.")
        except (OSError, http.client.HTTPException, zlib.error, ValueError) as error:
            if self._is_over:
                raise PageRefused(f"It took longer than {self._whole_s:g} s.") from error
            raise PageRefused(f"It cannot be fetched: {str(error)[:300] or type(error).__name__}.") from error
        finally:
            watch.cancel()

    def _fetch_one(self, url: str) -> Page | str:
        """Return the page, or the address that it redirects to."""
        parts = urlsplit(url)
        if (place := find_place(url)) is None or len(url) > _MAX_URL_CHARS:
            raise PageRefused("Only addresses that begin with http:// or https:// can be fetched.")
        if parts.username or parts.password:
            raise PageRefused("An address with a user or a password in it is not fetched.")
        host, port = place
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(self._connect(stack, parts.scheme, host, port)))
            path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
            query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
            connection.request("GET", f"{path}?{query}" if query else path, headers=_HEADERS)
            response = connection.getresponse()
            if response.status in _REDIRECTS and (target := response.getheader("location")):
                return urljoin(url, target)
            body, is_cut = _read(response)
            if self._is_over:  # a connection that was cut reads like one that ended
                raise TimeoutError
            head = response.headers
            return Page(
                url, response.status, head.get_content_type(), str(head.get_content_charset() or ""), body, is_cut
            )

    def _connect(self, stack: contextlib.ExitStack, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
        found, reason = connect(self._hosts, host, port)
        if found is None:
            raise PageRefused(f"{host}:{port} cannot be reached from here: {reason}.")
        self._socket = stack.enter_context(found)
        found.settimeout(self._whole_s)
        connection = http.client.HTTPConnection(host, port)
        connection.sock = found
        if self._is_over:
            raise TimeoutError
        if scheme == "https":
            # `stop` cuts the socket below.
            connection.sock = ssl.create_default_context().wrap_socket(found.dup(), server_hostname=host)
            connection.default_port = 443
        else:
            connection.default_port = 80
        return connection


def _read(response: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """Read a body, unpacked if it is packed, up to the limit; say whether there was more."""
    body = bytearray()
    for piece in _unpack(response):
        body += piece
        if len(body) > MAX_BYTES:
            return bytes(body[:MAX_BYTES]), True
    return bytes(body), False


def _unpack(response: http.client.HTTPResponse) -> Iterator[bytes]:
    packing = (response.getheader("content-encoding") or "identity").strip().lower()
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise PageRefused(f"It is packed as {packing[:40]!r}, which was not asked for.")
    # 32 more bits of window: the head says whether it is gzip or zlib.
    unpacker = None if packing == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    while piece := response.read(_PIECE_BYTES):
        if unpacker is None:
            yield piece
            continue
        while piece:  # piece by piece, so that little can never become much at once
            yield unpacker.decompress(piece, _PIECE_BYTES)
            piece = unpacker.unconsumed_tail
