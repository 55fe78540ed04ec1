"""How often a process tells others of what it has written."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.progress_limit import wait_until

from holdfast.runtime.checkpoint.postgres import notices
from holdfast.runtime.checkpoint.postgres.notices import NoticeSender


class SlowSession:
    """Sends nothing, and takes as long over it as it is told to."""

    def __init__(self) -> None:
        self.sends = 0
        self.may_go = threading.Event()

    def run(self, _work: Callable[..., None], *, patience_s: float) -> None:
        self.sends += 1
        self.may_go.wait()

    def close(self, *, is_waiting: bool) -> None:
        pass

    def drop_unused(self) -> None:
        pass


@pytest.mark.parametrize(("appends", "pause_s"), [(1, notices._EVERY_S), (8, notices._BUSY_EVERY_S)])
def test_a_process_that_writes_much_tells_of_it_less_often(
    appends: int, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(notices, "time", SimpleNamespace(sleep=pauses.append))
    session: Any = SlowSession()
    sender = NoticeSender(session)
    sender.note(["first"])
    wait_until(lambda: session.sends == 1, "the first notice is on its way")
    for number in range(appends):
        sender.note([f"run{number}"])
    session.may_go.set()
    wait_until(lambda: len(pauses) >= 2, "the second notice has left")
    sender.close()
    assert pauses[:2] == [notices._EVERY_S, pause_s]
