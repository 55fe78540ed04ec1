"""F2: how often a process tells others what it has written: every 20 ms at most, with all that came meanwhile."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.progress_limit import wait_until

from holdfast.runtime.checkpoint.postgres import notices
from holdfast.runtime.checkpoint.postgres.notices import NoticeSender, from_payload


class SilentSession:
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.sent: list[set[str]] = []

    def run(self, work: Any, **_options: Any) -> None:
        work(SimpleNamespace(execute=self._execute))

    def _execute(self, _sql: str, params: tuple[str, str] = ("", ""), **_options: Any) -> None:
        if params[1]:
            self.sent.append(set(from_payload(params[1]).run_ids or ()))

    def drop_unused(self) -> None: ...

    def close(self, **_options: Any) -> None: ...


def test_f2_after_a_notice_nothing_is_told_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    go_on = threading.Semaphore(0)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        go_on.acquire(timeout=60)

    monkeypatch.setattr(notices, "time", SimpleNamespace(sleep=pause))
    session = SilentSession()
    sender = NoticeSender(cast(Any, session))

    sender.note(["a"])
    wait_until(lambda: len(pauses) == 1)
    for run_id in ("b", "c", "b", "d"):
        sender.note([run_id])
    assert session.sent == [{"a"}]
    go_on.release()
    wait_until(lambda: len(pauses) == 2)
    go_on.release(2)
    sender.close()

    assert session.sent == [{"a"}, {"b", "c", "d"}]
    assert pauses[0] >= 0.02
    assert pauses[1] > pauses[0]  # of one that writes much
