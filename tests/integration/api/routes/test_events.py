"""Live events: every client's log equals the journal, whatever happens in between."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from tests.support.api.server_world import Api
from tests.support.api.stream_clients import one_by_one

from holdfast.api.live.run_stream import RunStreams
from holdfast.runtime.events import Event, create_event

Frame = dict[str, str]


async def frames(client: httpx.AsyncClient, run_id: str, after: int | None = None) -> AsyncIterator[Frame]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/api/runs/{run_id}/events", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        frame: Frame = {}
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                yield {"comment": line}
            elif line:
                name, _, value = line.partition(": ")
                frame[name] = value
            elif frame:
                yield frame
                frame = {}


async def journal_of(api: Api, run_id: str) -> list[dict[str, Any]]:
    server = await api.app.state.holder.get()
    return [event.to_dict() for event in await server.journal.read(run_id)]


async def test_a_finished_run_is_told_in_full_and_ended_at_once(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    messages = [frame async for frame in frames(api.viewer, run_id) if "event" in frame]

    *events, done = messages
    journal = await journal_of(api, run_id)
    assert [json.loads(frame["data"]) for frame in events] == journal
    assert [frame["id"] for frame in events] == [str(event["seq"]) for event in journal]
    assert [frame["event"] for frame in events] == [event["kind"] for event in journal]
    assert (done["event"], json.loads(done["data"])["state"]) == ("done", "completed")


async def test_nothing_left_is_done_at_once(api: Api) -> None:
    run_id = await api.start()
    head = (await api.wait_for(run_id))["seq"]

    messages = [frame async for frame in frames(api.viewer, run_id, head) if "event" in frame]

    assert [frame["event"] for frame in messages] == ["done"]


async def test_the_query_works_like_the_header_which_wins(api: Api) -> None:
    run_id = await api.start()
    head = (await api.wait_for(run_id))["seq"]

    by_query = await api.viewer.get(f"/api/runs/{run_id}/events", params={"last_event_id": head - 1})
    both = await api.viewer.get(
        f"/api/runs/{run_id}/events", params={"last_event_id": 0}, headers={"Last-Event-ID": str(head - 1)}
    )

    assert by_query.text.count("id: ") == 1 == both.text.count("id: ")


async def test_a_stream_may_not_be_buffered_or_stored(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    answer = await api.viewer.get(f"/api/runs/{run_id}/events")

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "no-transform" in answer.headers["cache-control"]


async def test_every_blank_line_ends_an_event(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    answer = await api.viewer.get(f"/api/runs/{run_id}/events")
    *whole, rest = answer.text.split("\n\n")

    assert all("\nevent: " in f"\n{frame}" for frame in whole)
    assert whole[0].startswith("retry: 1000\nid: 1\n")
    assert rest == ""


async def test_a_bad_last_event_id_is_refused(api: Api) -> None:
    run_id = await api.start()

    for bad in ("-1", "x", "1.5", "9" * 40, "٣", "1; drop"):
        answer = await api.viewer.get(f"/api/runs/{run_id}/events", params={"last_event_id": bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "last_event_id_invalid"), bad


async def test_an_unknown_run_has_no_stream(api: Api) -> None:
    assert (await api.viewer.get("/api/runs/nowhere/events")).status_code == 404


async def collect(run_streams: RunStreams, run_id: str, seed: int) -> list[int]:
    """Follow a run, leave at random places and come back with the last number seen, until it is over."""
    chance, seen, last = random.Random(seed), list[int](), 0
    while True:
        stay = chance.randint(1, 12)
        async with aclosing(run_streams.follow(run_id, last, idle_s=5)) as stream:
            async for frame in one_by_one(stream):
                if frame.startswith(b"event: done"):
                    return seen
                if frame.startswith(b"id: "):
                    last = int(frame.split(b"\n")[0][4:])
                    seen.append(last)
                    stay -= 1
                if stay == 0:
                    break


async def test_forty_clients_that_come_and_go_see_every_event_once(api: Api) -> None:
    (api.gates / "second.closed").touch()
    run_id = await api.start()
    await api.wait_until_reached(run_id, "second")
    server = await api.app.state.holder.get()
    clients = [asyncio.create_task(collect(server.run_streams, run_id, seed)) for seed in range(40)]
    for number in range(150):
        await server.journal.append(run_id, [create_event(run_id, "agent.progress", number=number)])
    (api.gates / "second.closed").unlink()

    logs = await asyncio.gather(*clients)

    journal = [event["seq"] for event in await journal_of(api, run_id)]
    assert journal == list(range(1, len(journal) + 1))
    assert all(log == journal for log in logs)
    assert server.run_streams.count_clients() == 0


async def test_many_clients_share_one_reader(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    server = await api.app.state.holder.get()
    streams = [server.run_streams.follow(run_id, 0, idle_s=5) for _ in range(10)]
    for stream in streams:
        await anext(stream)

    readers = [task for task in asyncio.all_tasks() if task.get_name() == f"holdfast-tail-{run_id}"]

    assert (len(readers), server.run_streams.count_clients()) == (1, 10)
    for stream in streams:
        await stream.aclose()


async def test_a_slow_client_is_cut_off_and_resumes(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    server = await api.app.state.holder.get()
    head = await server.journal.read_head(run_id)
    run_streams = RunStreams(server.db, server.journal, max_queued=5)
    slow, quick = run_streams.follow(run_id, head, idle_s=0.05), run_streams.follow(run_id, head, idle_s=0.05)
    assert (await anext(slow), await anext(quick)) == (b": still here\n",) * 2
    for number in range(20):
        await server.journal.append(run_id, [create_event(run_id, "agent.progress", number=number)])
        while not (frame := await anext(quick)).startswith(b"id: "):
            pass
        assert frame.startswith(f"id: {head + 1 + number}\n".encode())

    got = [frame async for frame in one_by_one(slow) if frame.startswith(b"id: ")]

    assert len(got) < 20
    last = int(got[-1].split(b"\n")[0][4:]) if got else head
    again = run_streams.follow(run_id, last, idle_s=5)
    assert (await anext(again)).startswith(f"id: {last + 1}\n".encode())
    for stream in (again, quick):
        await stream.aclose()


async def test_what_is_written_while_the_reader_begins_is_told(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = await api.start(workflow="asking-notes")
    head = (await api.wait_for(run_id, "paused"))["seq"]
    server = await api.app.state.holder.get()
    read_head = server.journal.read_head

    async def read_late(of_run: str) -> int:
        monkeypatch.setattr(server.journal, "read_head", read_head)
        await asyncio.sleep(0.1)  # a client that does not wait for the reader has read the store by now
        await server.journal.append(of_run, [create_event(of_run, "agent.progress")])
        return int(await read_head(of_run))

    monkeypatch.setattr(server.journal, "read_head", read_late)
    stream = server.run_streams.follow(run_id, head, idle_s=30)
    assert (await anext(stream)).startswith(f"id: {head + 1}\n".encode())
    await stream.aclose()


async def test_what_is_written_after_the_end_is_told_before_it_is_called_done(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await api.start()
    head = (await api.wait_for(run_id))["seq"]
    server = await api.app.state.holder.get()
    read = server.journal.read

    async def read_and_write(of_run: str, after: int = 0) -> list[Event]:
        monkeypatch.setattr(server.journal, "read", read)
        found: list[Event] = await read(of_run, after)
        await server.journal.append(of_run, [create_event(of_run, "run.merged")])
        return found

    monkeypatch.setattr(server.journal, "read", read_and_write)
    messages = [frame async for frame in one_by_one(server.run_streams.follow(run_id, head, idle_s=30))]

    assert [frame.split(b"\n")[0] for frame in messages] == [f"id: {head + 1}".encode(), b"event: done"]


async def test_what_waits_for_a_client_is_sent_together_and_not_in_pieces_too_large(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    server = await api.app.state.holder.get()
    head = (await server.journal.read(run_id))[-1].seq
    stream = server.run_streams.follow(run_id, head, idle_s=0.05)
    assert await anext(stream) == b": still here\n"
    for number in range(40):
        text = "x" * (10 if number < 20 else 10_000)
        await server.journal.append(run_id, [create_event(run_id, "agent.progress", text=text)])

    sent: list[bytes] = []
    while sum(part.count(b"id: ") for part in sent) < 40:
        sent.append(await anext(stream))
    await stream.aclose()

    pieces = [part for part in sent if part.startswith(b"id: ")]
    assert 2 < len(pieces) < 20
    assert max(map(len, pieces)) < 2 * 64 * 1024
    numbers = [int(line[4:]) for line in b"".join(pieces).splitlines() if line.startswith(b"id: ")]
    assert numbers == list(range(head + 1, head + 41))


async def test_a_quiet_stream_says_that_it_lives(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    server = await api.app.state.holder.get()
    head = (await server.journal.read(run_id))[-1].seq
    stream = server.run_streams.follow(run_id, head, idle_s=0.01)

    first, second = await anext(stream), await anext(stream)

    assert first == second == b": still here\n"
    await stream.aclose()


async def test_a_retried_run_is_followed_past_its_first_end(api: Api) -> None:
    (api.gates / "second.fails").touch()
    run_id = await api.start()
    failed = await api.wait_for(run_id)
    (api.gates / "second.fails").unlink()
    await api.operator.post(f"/api/runs/{run_id}/retry")
    await api.wait_for(run_id, "completed")

    messages = [frame async for frame in frames(api.viewer, run_id, failed["seq"]) if "event" in frame]

    assert [messages[-2]["event"], messages[-1]["event"]] == ["run.completed", "done"]


async def test_text_that_looks_like_the_protocol_stays_data(api: Api) -> None:
    run_id = await api.start(requirements_md="x\n\nid: 99\nevent: done\ndata: {}\n\n\r\n\u2028")
    await api.wait_for(run_id)

    messages = [frame async for frame in frames(api.viewer, run_id) if "event" in frame]

    assert [event["seq"] for event in await journal_of(api, run_id)] == [int(frame["id"]) for frame in messages[:-1]]


def test_a_kind_of_a_newer_version_is_told_as_it_is() -> None:
    from holdfast.api.live.stream import encode_event

    text = encode_event(3, Event(run_id="r", kind="new.kind\nid: 5", seq=3))

    assert text.startswith(b"id: 3\nevent: new.kindid: 5\ndata: {")


async def test_a_runs_history_is_its_journal_line_by_line(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)
    journal = await journal_of(api, run_id)

    whole = await api.viewer.get(f"/api/runs/{run_id}/history")
    rest = await api.viewer.get(f"/api/runs/{run_id}/history", params={"after": journal[-3]["seq"]})
    none = await api.viewer.get(f"/api/runs/{run_id}/history", params={"after": journal[-1]["seq"]})

    assert [json.loads(line) for line in whole.text.splitlines()] == journal
    assert [json.loads(line) for line in rest.text.splitlines()] == journal[-2:]
    assert (none.status_code, none.text) == (200, "")
    assert whole.headers["content-encoding"] == "gzip"
