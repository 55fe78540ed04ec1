"""What a sandboxed command asked the network proxy for: host by host, as often and as much as it did.

The proxy writes a line for each request and one more when the connection ends. A command can ask for as much as it
likes, so what is read and what is kept are bounded.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_MOST_BYTES = 4_000_000
_MOST_HOSTS = 50


@dataclass(frozen=True)
class NetworkRequest:
    """A host that a sandboxed command asked the proxy for; `reason` says why it was refused, if it was."""

    host: str
    port: int
    reason: str
    count: int = 1
    sent: int = 0
    received: int = 0
    """Bytes to and from the host, of connections that ended before the command did."""

    @property
    def is_allowed(self) -> bool:
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return the request as journals hold it."""
        facts: dict[str, Any] = {"host": self.host, "port": self.port, "allowed": self.is_allowed, "count": self.count}
        if self.reason:
            return {**facts, "reason": self.reason}
        return {**facts, "sent": self.sent, "received": self.received}


def read_requests(path: Path) -> tuple[NetworkRequest, ...]:
    """Read the proxy's log: one entry for each host and outcome, in the order of their first requests."""
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ()
    found: dict[tuple[str, int, str], NetworkRequest] = {}
    for entry in (json.loads(line) for line in lines if line.endswith("}")):
        key = (entry["host"], entry["port"], entry["reason"])
        known = found.get(key)
        if "sent" in entry:
            if known is not None:
                more = {"sent": known.sent + entry["sent"], "received": known.received + entry["received"]}
                found[key] = replace(known, **more)
        elif known is not None:
            found[key] = replace(known, count=known.count + 1)
        elif len(found) < _MOST_HOSTS:
            found[key] = NetworkRequest(*key)
    return tuple(found.values())


def record_requests(requests: Iterable[NetworkRequest]) -> dict[str, Any]:
    """Return what of the requests is recorded with the result of a command; nothing if there were none."""
    listed = [request.to_dict() for request in requests]
    return {"network": listed} if listed else {}
