"""What a store sends without waiting, seen from outside: each batch before it is sent and after it is answered."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.runtime.checkpoint.base import Answer, Append, AppendResult

Batch = Sequence[Append]


def watch_pipelines(store: Any, before: Callable[[Batch], None], after: Callable[[Batch], None]) -> None:
    open_pipeline = store.open_pipeline

    def open_watched() -> Any:
        pipeline = open_pipeline()
        return None if pipeline is None else _watch(pipeline, before, after)

    store.open_pipeline = open_watched


def _watch(pipeline: Any, before: Callable[[Batch], None], after: Callable[[Batch], None]) -> Any:
    send, receive = pipeline.send, pipeline.receive

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

    pipeline.send, pipeline.receive = watched_send, watched_receive
    return pipeline
