"""What a store sends without waiting, seen from outside: each batch before it is sent and after it is answered."""

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

    def watched_send(batch: Batch, ticket: Any) -> None:
        before(batch)
        send(batch, (batch, ticket))

    def watched_receive() -> list[tuple[Any, Answer]]:
        return [(ticket, answered(batch, answer)) for (batch, ticket), answer in receive()]

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
