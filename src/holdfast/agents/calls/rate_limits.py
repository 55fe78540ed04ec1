"""How model calls share their providers: so many at a time, so many a minute, and none while a provider asks to be left
alone; within a process, and by rows over all of them.

Rule: first come, first served, over all runs of the process. A call waits before its request is journaled, so that no
money is reserved for it; and whoever waits can be told why. What holds for all processes is known for a second; while
calls are under way or wait, the share of a limit is renewed, and who cannot renew it begins nothing new.
"""

import asyncio
import logging
import time
import uuid
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.config import Config, PerProvider
from holdfast.persistence.db import Database
from holdfast.persistence.provider_shares import LEASE_S, MAX_HOLD_S, drop_share, hold_provider, take_share
from holdfast.persona import AgentPersona
from holdfast.runtime.clock import now
from holdfast.runtime.run_fold.provider_wait import LONG_S, ProviderWait

_REPORT_AFTER_S = LONG_S
_MINUTE_S = 60.0
_FRESH_S = 1.0
_log = logging.getLogger("holdfast.agents")

ReportWait = Callable[[ProviderWait], Awaitable[None]]


class _Provider:
    """The calls to one provider: those under way, those of the last minute, and those that wait in their order."""

    def __init__(self, name: str, max_parallel: int | None, per_minute: int | None) -> None:
        self.name = name
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.under_way = 0
        self._waits_from = 0.0
        self._max_parallel = max_parallel
        self._per_minute = per_minute
        self._begun: deque[float] = deque()
        self._held_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.shared: SharedLimits | None = None

    def add(self, turn: asyncio.Future[None]) -> None:
        if not self.waiting:
            self._waits_from = time.monotonic()
        self.waiting.append(turn)

    def hold_off(self, seconds: float) -> None:
        self._held_until = max(self._held_until, time.monotonic() + min(seconds, MAX_HOLD_S))

    def leave(self) -> None:
        self.under_way -= 1
        self.admit_next()

    def admit_next(self) -> None:
        """Begin the calls that come next, as many as the limits allow; come back when time allows more."""
        while self.waiting and self._wait_s() == 0.0 and not self._is_full():
            turn = self.waiting.popleft()
            if not turn.done():
                self.under_way += 1
                self._waits_from = time.monotonic()
                if self._per_minute is not None:
                    self._begun.append(self._waits_from)
                turn.set_result(None)
        if self.waiting and not self._is_full():
            self._admit_in(self._wait_s())

    def find_wait(self) -> ProviderWait:
        """Tell why the next call waits."""
        if self._held_until > time.monotonic():
            return ProviderWait(f"Waits for {self.name}: too many requests.", now() + self._wait_s())
        if self.shared is not None and not self.shared.is_known(self.name):
            return ProviderWait("Waits until the limits for all can be read; it is tried again.")
        of_process = f"to {self.name}, the limit of its process."
        if self._is_full():
            limit = None if self.shared is None else self.shared.find_limit(self.name)
            if limit is not None:
                return ProviderWait(f"Waits for {_one_of(limit)} at a time to {self.name}.")
            return ProviderWait(f"Waits for {_one_of(self._max_parallel)} at a time {of_process}")
        return ProviderWait(f"Waits for {_one_of(self._per_minute)} a minute {of_process}")

    def _share(self) -> int | None:
        return None if self.shared is None else self.shared.find_share(self.name)

    def _is_full(self) -> bool:
        share = self._share()
        limit = self._max_parallel if share is None else share  # a limit for all counts, whatever is set here
        return limit is not None and self.under_way >= limit

    async def refresh(self) -> None:
        """Find out what holds for all processes, unless that was done a moment ago."""
        if self.shared is not None:
            self._apply(await self.shared.refresh(self))

    @property
    def waited_s(self) -> float | None:
        """For how long calls have waited since the last one began; `None` if another place would not help."""
        is_waiting = self.waiting and self._wait_s() == 0.0
        return time.monotonic() - self._waits_from if is_waiting else None

    def _apply(self, hold_s: float) -> None:
        if hold_s > 0:
            self.hold_off(hold_s)
        self.admit_next()

    def _wait_s(self) -> float:
        """Return how long it takes until another call may begin, as far as time alone decides."""
        now = time.monotonic()
        while self._begun and self._begun[0] <= now - _MINUTE_S:
            self._begun.popleft()
        until = self._held_until
        if self._per_minute is not None and len(self._begun) >= self._per_minute:
            until = max(until, self._begun[-self._per_minute] + _MINUTE_S)
        return max(0.0, until - now)

    def _admit_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds + 0.001, self.admit_next)


@dataclass
class _Terms:
    share: int | None = 0
    """`None` if no limit was set for all; none may begin until that is known."""
    limit: int | None = None
    """What all processes together may have under way."""
    known_at: float = float("-inf")
    """When it was asked for, by the clock that never jumps."""


class SharedLimits:
    """One process's view of the limits for all."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._holder = uuid.uuid4().hex
        self._terms: dict[str, _Terms] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._holds: set[asyncio.Task[None]] = set()

    def find_share(self, provider: str) -> int | None:
        """Return how many calls may be under way here; `None` without a limit, 0 if the share is not known now."""
        terms = self._terms.get(provider, _Terms())
        if terms.share is None:
            return None
        return terms.share if time.monotonic() < terms.known_at + LEASE_S else 0

    def find_limit(self, provider: str) -> int | None:
        """Return how many calls all processes together may have under way, as it was said last; `None` without one."""
        return self._terms.get(provider, _Terms()).limit

    async def refresh(self, provider: "_Provider") -> float:
        """Ask for the share and the hold, unless that was done a moment ago; return how long the provider is held."""
        name = provider.name
        async with self._locks[name]:
            terms, now_s = self._terms.setdefault(name, _Terms()), time.monotonic()
            if now_s < terms.known_at + _FRESH_S:
                return 0.0
            running = provider.under_way
            if terms.share is not None:
                terms.share = min(terms.share, running)  # none begins until it is known how many may
            try:
                found = await take_share(self.db, name, self._holder, under_way=running, waited_s=provider.waited_s)
            except Exception:
                _log.warning("The limits for all could not be read; it is tried again", exc_info=True)
                return 0.0
            self._terms[name] = _Terms(found.share, found.limit, now_s)
            return found.hold_s

    def hold_off(self, provider: str, seconds: float) -> None:
        """Tell all processes that a provider asked for a pause."""
        task = asyncio.create_task(self._hold(provider, seconds))
        self._holds.add(task)
        task.add_done_callback(self._holds.discard)

    async def _hold(self, provider: str, seconds: float) -> None:
        try:
            await hold_provider(self.db, provider, seconds)
        except Exception:
            _log.warning("Others could not be told that a provider asked for a pause", exc_info=True)

    def is_known(self, provider: str) -> bool:
        """Tell whether what holds for all processes could be read."""
        return self._terms.get(provider, _Terms()).known_at > float("-inf")

    def keep(self, provider: "_Provider") -> None:
        """Renew a share as long as calls are under way or wait, and ask for one that is not known yet."""
        if self.find_share(provider.name) is None or provider.name in self._keepers:
            return
        self._keepers[provider.name] = task = asyncio.create_task(self._keep(provider))
        task.add_done_callback(lambda _task: self._keepers.pop(provider.name, None))

    async def _keep(self, provider: "_Provider") -> None:
        while True:
            await asyncio.sleep(_FRESH_S)
            async with self._locks[provider.name]:
                if not provider.under_way and not provider.waiting:
                    self._terms.pop(provider.name, None)
                    await self._drop(provider.name)
                    return
            await provider.refresh()
            if self.find_share(provider.name) is None:
                return

    async def _drop(self, provider: str) -> None:
        try:
            # crash: the share is over when nobody renews it.
            await drop_share(self.db, provider, self._holder)
        except Exception:
            _log.info("A share could not be given back; it ends by itself", exc_info=True)


class RateLimits:
    def __init__(self, max_parallel: PerProvider, per_minute: PerProvider) -> None:
        self._max_parallel = dict(max_parallel)
        self._per_minute = dict(per_minute)
        self._providers: dict[str, _Provider] = {}
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._shared: SharedLimits | None = None

    def share_with(self, db: Database) -> None:
        """Count also the limits that hold for all processes on this database."""
        if self._shared is None or self._shared.db is not db:
            self._shared = SharedLimits(db)
            for provider in self._providers.values():
                provider.shared = self._shared

    def slot(self, provider: str, run_id: str) -> "ProviderSlot":
        return ProviderSlot(self, provider, run_id)

    def find_reason(self, run_id: str) -> str | None:
        """Say why a run waits for a model, if it does."""
        names = (name for waiting_id, name in self._waiting if waiting_id == run_id)
        return next((self._get(name).find_wait().describe() for name in names), None)

    def count_under_way(self) -> dict[str, int]:
        return {provider.name: provider.under_way for provider in self._providers.values()}

    def count_waiting(self) -> dict[str, int]:
        counts = dict.fromkeys(self._providers, 0)
        for (_run_id, name), count in self._waiting.items():
            counts[name] += count
        return counts

    def hold_off(self, name: str, seconds: float) -> None:
        self._get(name).hold_off(seconds)
        if self._shared is not None:
            self._shared.hold_off(name, min(seconds, MAX_HOLD_S))

    def leave(self, name: str) -> None:
        self._get(name).leave()

    async def enter(self, name: str, run_id: str, report_wait: ReportWait) -> None:
        """Wait until a call may begin; `leave` must follow.

        A long wait is reported through `report_wait`, and once more whenever that holds no longer.
        """
        provider = self._get(name)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if provider.shared is not None:
            await provider.refresh()
        provider.add(turn)
        provider.admit_next()
        if provider.shared is not None:
            provider.shared.keep(provider)
        if turn.done():
            return
        self._waiting[run_id, name] += 1
        try:
            reported: ProviderWait | None = None
            while not (await asyncio.wait((turn,), timeout=_REPORT_AFTER_S))[0]:
                wait = provider.find_wait()
                if reported is None or reported.text != wait.text or reported.is_over(now()):
                    await report_wait(wait)
                    reported = wait
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                provider.leave()  # it was let in at the very moment that nobody wanted it any more
            elif turn in provider.waiting:
                provider.waiting.remove(turn)
            raise
        finally:
            self._waiting[run_id, name] -= 1
            if not self._waiting[run_id, name]:
                del self._waiting[run_id, name]

    def _get(self, name: str) -> _Provider:
        if name not in self._providers:
            self._providers[name] = _Provider(
                name, _limit_of(self._max_parallel, name), _limit_of(self._per_minute, name)
            )
            self._providers[name].shared = self._shared
        return self._providers[name]


def _one_of(limit: int | None) -> str:
    return "the only call" if limit == 1 else f"one of {limit} calls"


def find_key(limits: Mapping[str, int], name: str) -> str | None:
    """Find what a provider is limited by: its own name, its backend's, or `*` for all others."""
    return next((key for key in (name, name.partition("@")[0], "*") if key in limits), None)


def _limit_of(limits: Mapping[str, int], name: str) -> int | None:
    key = find_key(limits, name)
    return None if key is None else limits[key]


@dataclass(frozen=True)
class ProviderSlot:
    """The way of one run's calls to one provider."""

    limits: RateLimits
    provider: str
    run_id: str

    def reserve(self, report_wait: ReportWait) -> "ProviderTurn":
        return ProviderTurn(self, report_wait)

    def hold_off(self, seconds: float) -> None:
        """Let no run call the provider for a while: it asked for that."""
        self.limits.hold_off(self.provider, seconds)


class ProviderTurn:
    """The turn of one call at its provider, for as long as an `async with` lasts.

    A call takes it before its request is journaled, and each attempt takes it again. So blocks may be nested: to enter
    while it is held does nothing, and the first to leave gives it back, for nobody may hold a turn while it waits for
    the next attempt.
    """

    def __init__(self, slot: ProviderSlot, report_wait: ReportWait) -> None:
        self._slot = slot
        self._report_wait = report_wait
        self._is_held = False

    async def __aenter__(self) -> None:
        if not self._is_held:
            await self._slot.limits.enter(self._slot.provider, self._slot.run_id, self._report_wait)
            self._is_held = True

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            self._is_held = False
            self._slot.limits.leave(self._slot.provider)


def provider_of(persona: AgentPersona) -> str:
    """Name the backend, and the server where the persona names one: two servers do not share a limit."""
    host = urlsplit(persona.base_url or "").netloc.rpartition("@")[2]
    return f"{persona.backend.value}@{host}" if host else persona.backend.value


_by_loop: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[PerProvider, PerProvider], RateLimits]]"
_by_loop = weakref.WeakKeyDictionary()


def get_rate_limits(config: Config, db: Database | None = None) -> RateLimits:
    """Return the limits that all runs of this event loop share; with a database also those that hold for all on it."""
    settings = (config.max_parallel_model_calls, config.model_calls_per_minute)
    known = _by_loop.setdefault(asyncio.get_running_loop(), {})
    if settings not in known:
        known[settings] = RateLimits(*settings)
    if db is not None:
        known[settings].share_with(db)
    return known[settings]
