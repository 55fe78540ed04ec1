"""Who is asking: a program by its token, a browser by its session, and what each may do.

Rule: a route names the least role it needs by `needs(...)`; there is no other way past.
"""

import functools
import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.api.options import ServerOptions
from holdfast.api.server.server import Server, get_server
from holdfast.enums import Role
from holdfast.errors import NotAuthenticated, RoleInsufficient, TooManyAttempts
from holdfast.persistence.access import end_session, note_use, open_link, open_session, take_link
from holdfast.persistence.statements import to_time_text

COOKIE = "holdfast_session"
_LINK_MINUTES = 15
_NOTE_USE_EVERY_S = 60.0
_MOST_ADDRESSES = 10_000

_bearer = HTTPBearer(auto_error=False, description="A token of `holdfast token create`.")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="The session of a browser that has logged in.")


@dataclass(frozen=True)
class Identity:
    """Somebody who was recognised; `name` stands in the journal beside what they did."""

    name: str
    role: Role
    token_id: str | None = None
    expires_at: str | None = None
    """When the login of a browser, or the token of a program, ends."""
    is_person: bool = True
    """False where nobody was asked who they are: the server runs without authentication."""


LOCAL_ADMIN = Identity("local", Role.ADMIN, is_person=False)


class LoginLimit:
    """How many wrong tokens and codes an address may try in a minute.

    A right one always passes: people behind one proxy must not be able to lock each other out.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def note_failure(self, address: str) -> None:
        """Count a failure of this address. Raises `TooManyAttempts` if there were too many before this one."""
        failures = self._failures.setdefault(address, deque())
        self._failures.move_to_end(address)
        if len(self._failures) > _MOST_ADDRESSES:  # many addresses fill no memory, and clear nobody else's count
            self._failures.popitem(last=False)
        now = time.monotonic()
        while failures and failures[0] < now - 60:
            failures.popleft()
        if len(failures) >= self._per_minute:
            wait_s = max(1, round(60 - (now - failures[0])))
            raise TooManyAttempts("Too many wrong tokens came from this address.", retry_after_s=wait_s)
        failures.append(now)


class Access:
    """Recognises who sends a request, and logs browsers in."""

    def __init__(self, options: ServerOptions) -> None:
        self.has_auth = options.has_auth
        self._login_limit = LoginLimit(options.login_attempts_per_minute)
        self._token_limit = LoginLimit(options.wrong_tokens_per_minute)
        self._session_hours = options.session_hours
        self._noted: dict[str, float] = {}

    async def identify(self, server: Server, token: str | None, cookie: str | None, address: str) -> Identity:
        """Return who sent a request. Raises `NotAuthenticated`, and `TooManyAttempts` after many wrong tokens."""
        if not self.has_auth:
            return LOCAL_ADMIN
        if token is not None:
            return await self._identify_token(server, token, address, self._token_limit)
        if cookie:
            row = await server.find_session(cookie)
            if row is not None:
                return Identity(row.name, Role(row.role), row.token_id, row.expires_at)
        raise NotAuthenticated("This needs a token or a login.")

    async def is_still_in(self, server: Server, token: str | None, cookie: str | None) -> bool:
        """Tell whether who was let in by these would be let in again. Nothing is counted and nothing noted."""
        if not self.has_auth:
            return True
        if token is not None:
            return await server.find_token(token) is not None
        return await server.find_session(cookie or "") is not None

    async def identify_login(self, server: Server, token: str, address: str) -> Identity:
        """Return whose token a browser logs in with. Raises as `identify` does, after fewer wrong ones."""
        return await self._identify_token(server, token, address, self._login_limit)

    async def _identify_token(self, server: Server, token: str, address: str, limit: LoginLimit) -> Identity:
        row = await server.find_token(token)
        if row is None:
            limit.note_failure(address)
            raise NotAuthenticated("The token is wrong, revoked or over.")
        now = time.monotonic()
        if now - self._noted.get(row.id, -_NOTE_USE_EVERY_S) >= _NOTE_USE_EVERY_S:
            self._noted[row.id] = now
            await note_use(server.journal, row.id)
        return Identity(row.name, Role(row.role), row.id, row.expires_at)

    async def create_link(self, server: Server, identity: Identity) -> str:
        """Make a link that lets a browser in once, for a quarter of an hour, on every server; return its code."""
        until = to_time_text(datetime.now(UTC) + timedelta(minutes=_LINK_MINUTES))
        return await open_link(server.journal, name=identity.name, role=identity.role, expires_at=until)

    async def identify_link(self, server: Server, code: str, address: str) -> Identity:
        """Return whose login link this code is of. Raises `NotAuthenticated` if it is wrong, used or over."""
        row = await take_link(server.db, server.journal, code)
        if row is None:
            self._login_limit.note_failure(address)
            raise NotAuthenticated(
                "The login link is wrong, was used, or is over.", hint="Start `holdfast serve` again for a new one."
            )
        return Identity(row.name, Role(row.role))

    async def log_in(self, server: Server, identity: Identity, before: str | None) -> tuple[str, str]:
        """Open a session and return its secret and its end, which is not after that of the token it began with.

        The session that the browser had before ends here. Raises `NotAuthenticated` if the token was revoked meanwhile.
        """
        if before:
            await end_session(server.journal, before)
        expires_at = to_time_text(datetime.now(UTC) + timedelta(hours=self._session_hours))
        if identity.expires_at is not None:
            expires_at = min(expires_at, identity.expires_at)
        secret = await open_session(
            server.journal,
            name=identity.name,
            role=identity.role,
            expires_at=expires_at,
            token_id=identity.token_id,
        )
        return secret, expires_at


def address_of(request: Request) -> str:
    """Return whose attempts are counted together: an IPv4 address, or a network of IPv6, which one person has."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host


def read_credentials(request: Request) -> tuple[str | None, str | None]:
    """Return the token and the cookie that came with a request."""
    header = request.headers.get("authorization")
    cookie = request.cookies.get(COOKIE)
    if header is None:
        return None, cookie
    scheme, _, credentials = header.partition(" ")
    # A scheme that is not ours is a wrong token, not a reason to look at the cookie.
    return (credentials.strip() if scheme.lower() == "bearer" else ""), cookie


async def identify_early(request: Request) -> None:
    """Find out who sends a request before its body is read. Raises `NotAuthenticated`, `TooManyAttempts`."""
    server = await get_server(request)
    request.state.identity = await get_access(request).identify(server, *read_credentials(request), address_of(request))


def get_access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def needs(role: Role) -> Callable[..., Awaitable[Identity]]:
    """Make a dependency that lets in whoever has this role or a higher one.

    It raises `NotAuthenticated` and `RoleInsufficient`.
    """

    async def identify(
        request: Request,
        server: Annotated[Server, Depends(get_server)],
        _bearer_seen: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
        _cookie_seen: Annotated[str | None, Security(_cookie)],
    ) -> Identity:
        token, cookie = read_credentials(request)
        access = get_access(request)
        identity: Identity | None = getattr(request.state, "identity", None)  # known already if it has a body
        if identity is None:
            identity = await access.identify(server, token, cookie, address_of(request))
        request.state.is_still_in = functools.partial(access.is_still_in, server, token, cookie)
        if not identity.role.includes(role):
            raise RoleInsufficient(f"This needs the role {role}; {identity.name!r} has {identity.role}.")
        return identity

    return identify


Viewer = Annotated[Identity, Depends(needs(Role.VIEWER))]
Operator = Annotated[Identity, Depends(needs(Role.OPERATOR))]
Approver = Annotated[Identity, Depends(needs(Role.APPROVER))]
Admin = Annotated[Identity, Depends(needs(Role.ADMIN))]
