"""What a store sends without waiting, seen from outside: each batch before it is sent and after it is answered."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.runtime.checkpoint.base import Answer, Append, AppendResult

Batch = Sequence[Append]


def watch_lines(store: Any, before: Callable[[Batch], None], after: Callable[[Batch], None]) -> None:
    open_line = store.open_line

    def open_watched() -> Any:
        line = open_line()
        return None if line is None else _watch(line, before, after)

    store.open_line = open_watched


def _watch(line: Any, before: Callable[[Batch], None], after: Callable[[Batch], None]) -> Any:
    send, receive = line.send, line.receive
    under_way: deque[Batch] = deque()

    def watched_send(batch: Batch) -> None:
        before(batch)
        under_way.append(batch)
        send(batch)

    def watched_receive() -> list[Answer]:
        return [answered(under_way.popleft(), answer) for answer in receive()]

    def answered(batch: Batch, answer: Answer) -> Answer:
        if isinstance(answer, list):
            after(batch)
            return answer

        def do_again() -> list[AppendResult]:
            results = answer()
            after(batch)
            return results

        return do_again

    line.send, line.receive = watched_send, watched_receive
    return line
