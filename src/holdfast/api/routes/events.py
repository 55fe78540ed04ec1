"""Journals as server-sent events, of one run and of all of them, and what a run has of them now as a file."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import FEED_RESPONSES, HISTORY_RESPONSES, STREAM_RESPONSES
from holdfast.api.live.feed import EventFilter
from holdfast.api.live.sse import EventStream
from holdfast.api.live.stream import encode_line
from holdfast.api.schemas import RunIdPath, ShortText
from holdfast.api.server.server import Server, ServerDep
from holdfast.concurrency import shielded
from holdfast.engine.run.load import get_run
from holdfast.errors import HoldfastError, LastEventIdInvalid
from holdfast.persistence.event_feed import read_pages_of_runs
from holdfast.runtime.checkpoint.base import MAX_SEQ
from holdfast.runtime.events import Event

router = APIRouter(tags=["events"])


@router.get("/api/runs/{run_id}/events", responses=STREAM_RESPONSES, summary="Follow a run", response_class=Response)
async def follow_run(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    request: Request,
    last_event_id: Annotated[str | None, Query(description="The last number seen; the header wins.")] = None,
    header_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Send every event of the run after the last one seen, then each new one, then `event: done` once it is over."""
    after = to_seq(header_id if header_id is not None else last_event_id)
    run_id = await _find_run(server, run_id)
    frames = server.run_streams.follow(run_id, after, idle_s=server.options.heartbeat_s)
    return EventStream(frames, request.state.is_still_in, server.options)


@router.get("/api/events", responses=FEED_RESPONSES, summary="Follow all runs", response_class=Response)
async def follow_all(
    server: ServerDep,
    _identity: Viewer,
    request: Request,
    last_event_id: Annotated[
        str | None, Query(description="The last id seen, 0 for everything from the beginning; the header wins.")
    ] = None,
    kinds: Annotated[
        ShortText | None,
        Query(description="Only these, with commas between: kinds, or first words.", examples=["run,phase.failed"]),
    ] = None,
    without_text: Annotated[bool, Query(description="Leave out what models write word by word.")] = False,
    in_full: Annotated[
        str | None,
        Query(
            max_length=4000,
            description="Ids of runs, with commas between. Of all others only `run_id`, `seq` and `kind` are sent.",
        ),
    ] = None,
    header_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Send every event of every run after the last one seen, in one order for all clients; without an id, from now on.

    The order of one run's events is that of its `seq`. The stream has no end.
    """
    last_seen = header_id if header_id is not None else last_event_id
    after = to_seq(last_seen) if last_seen else None
    if after is not None:
        await server.feed.check(after)
    events = EventFilter(
        _to_words(kinds or ""),
        has_text=not without_text,
        in_full=_to_words(in_full) if in_full is not None else None,
    )
    frames = server.feed.follow(after, events, idle_s=server.options.heartbeat_s)
    return EventStream(frames, request.state.is_still_in, server.options)


@router.get("/api/runs/{run_id}/history", responses=HISTORY_RESPONSES, summary="Its events", response_class=Response)
async def read_history(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="The number of the last event that is known.")] = 0,
) -> Response:
    """Send the events that the run has now, one line of JSON each, as a file."""
    run_id = await _find_run(server, run_id)
    first = await _read_page(server, run_id, after)  # a damaged journal is refused before an answer has begun
    headers = {"Content-Disposition": f'attachment; filename="{run_id}.jsonl"'}
    return StreamingResponse(_read_lines(server, run_id, first), headers=headers, media_type="application/jsonl")


async def _find_run(server: Server, run_id: str) -> str:
    """Return the id of a run of a workflow or a flow as it is stored. Raises `RunNotFound`."""
    if await server.run_streams.read_state(run_id) is not None:
        return run_id
    return (await get_run(server.db, run_id)).run.id  # a UUID may be written in another way


async def _read_lines(server: Server, run_id: str, page: list[Event]) -> AsyncIterator[bytes]:
    while page:
        yield "".join(f"{encode_line(event)}\n" for event in page).encode(errors="replace")
        page = await _read_page(server, run_id, page[-1].seq)


async def _read_page(server: Server, run_id: str, after: int) -> list[Event]:
    (page,) = await shielded(read_pages_of_runs(server.db, [(run_id, after)]))
    if isinstance(page, HoldfastError):
        raise page
    return page


def _to_words(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.replace(" ", "").split(",")))


def to_seq(last_event_id: str | None) -> int:
    """Return the number that a `Last-Event-ID` stands for, 0 if there is none. Raises `LastEventIdInvalid`."""
    if not last_event_id:
        return 0
    is_number = last_event_id.isascii() and last_event_id.isdigit()
    if not is_number or len(last_event_id) > 16 or int(last_event_id) > MAX_SEQ:
        raise LastEventIdInvalid("Last-Event-ID is not the number of an event.")
    return int(last_event_id)
