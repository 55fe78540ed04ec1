"""Asks an address whether a model server answers there: one bounded request, no redirect, no proxy, no key.

A port that is open says nothing: a web server, or holdfast itself, may listen where a model server was expected.
"""

import http.client
import json
import socket
import threading
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.enums import Backend

TIMEOUT_S = 2.0
_MAX_BODY_BYTES = 1_000_000  # a list of models; who sends more is no model server
_SELF = "holdfast"


class ServerAnswer(NamedTuple):
    """What was found at an address: the models of a model server, or in words what else."""

    models: tuple[str, ...] | None
    finding: str

    @property
    def is_model_server(self) -> bool:
        return self.models is not None


def ask_server(backend: Backend, base_url: str) -> ServerAnswer:
    """Return what answers at this address, within two seconds whatever it does."""
    request = _ServerRequest(f"{base_url.rstrip('/')}{'/api/tags' if backend is Backend.OLLAMA else '/models'}")
    # A daemon: looking up a name cannot be interrupted, and must not hold the program up.
    thread = threading.Thread(target=request.send, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if thread.is_alive():
        request.cancel()
        return ServerAnswer(None, "does not answer")
    return request.answer


class _ServerRequest:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        self._path = parts.path
        self.answer = ServerAnswer(None, "does not answer")

    def send(self) -> None:
        try:
            self._connection.request("GET", self._path, headers={"Accept": "application/json"})
            response = self._connection.getresponse()
            self.answer = _judge(response, response.read(_MAX_BODY_BYTES + 1))
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, http.client.HTTPException | ValueError):
                self.answer = ServerAnswer(None, "answers, but not as a model server does")
        finally:
            self._connection.close()

    def cancel(self) -> None:
        """Wake the thread out of a read that a slow server draws out."""
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)


def _judge(response: http.client.HTTPResponse, body: bytes) -> ServerAnswer:
    if response.headers.get("Server", "").partition("/")[0] == _SELF:
        return ServerAnswer(None, "is holdfast itself, no model server")
    if response.status in (401, 403):
        return ServerAnswer(None, "wants a key")
    models = _find_models(body) if response.status == 200 and len(body) <= _MAX_BODY_BYTES else None
    return ServerAnswer(models, "answers" if models is not None else "answers, but not as a model server does")


def _find_models(body: bytes) -> tuple[str, ...] | None:
    """Find the names in a server's list of models; `None` if what it sent is no such list."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    listed = data.get("data", data.get("models")) if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        return None
    return tuple(name for item in listed if (name := _name(item)))


def _name(item: dict[str, Any]) -> str:
    return next((item[key] for key in ("id", "model", "name") if isinstance(item.get(key), str)), "")
