"""How a server is run, beyond the settings of the process: who is let in, and how patient it is."""

from dataclasses import dataclass, field

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
MAX_BODY_BYTES = 10_000_000
MAX_OPEN_BODY_BYTES = 16 * 1024
"""Of a request that needs no login: a token or a code fits."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The defaults are those of `holdfast serve`; tests shorten the times."""

    has_auth: bool = True
    allowed_hosts: frozenset[str] = field(default=LOOPBACK_NAMES)
    drives_runs: bool = True
    poll_s: float = 2.0
    grace_s: float = 0.3
    """How long calls of workflows that are in flight have to end when the server is stopped."""
    flow_grace_s: float = 10.0
    heartbeat_s: float = 15.0
    body_timeout_s: float = 30.0
    send_timeout_s: float = 30.0
    max_bodies_bytes: int = 100_000_000
    """Of all bodies that are held at once."""
    recheck_s: float = 30.0
    """How long a stream goes on for somebody whose token was revoked or whose session is over."""
    session_hours: float = 12.0
    idempotency_days: float = 30.0
    clean_every_s: float = 3600.0
    login_attempts_per_minute: int = 10
    wrong_tokens_per_minute: int = 100
    """Of programs, whose tokens nobody can guess: a client with an old one is told so, a flood is slowed down."""
    max_queued_events: int = 1000
