"""The index of flows, on SQLite and Postgres: which runs are listed, in which order and in which pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.flow_stores import FlowStore, new_flow_store

from holdfast import start_flow
from holdfast.runtime.checkpoint.base import JournalStore
from holdfast.runtime.clock import FlowClock, use_clock
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.flow_rows import read_page
from holdfast.runtime.stores import open_store


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


@pytest.fixture
def store(flows: FlowStore) -> Iterator[JournalStore]:
    opened = open_store(flows.target)
    yield opened
    opened.close()


class _StoppedClock(FlowClock):
    def now(self) -> float:
        return 1767225600.25


async def test_pages_hold_every_run_once_also_of_one_moment(flows: FlowStore, store: JournalStore) -> None:
    ids = ["b", "a-1", "a", "C"]
    with use_clock(_StoppedClock()):
        for run_id in ids:
            await start_flow("listed order", run_id=run_id, store=flows.target)

    for is_oldest_first in (False, True):
        found: list[str] = []
        after: tuple[float, str | None] | None = None
        while page := read_page(store, FlowFilter(), limit=3, after=after, is_oldest_first=is_oldest_first):
            found += [row.run_id for row in page]
            after = page[-1].created_at, page[-1].run_id
        assert found == sorted(ids, reverse=not is_oldest_first)  # by their bytes, on every store
    assert len(read_page(store, FlowFilter(), limit=9, after=(1767225600.25, None))) == 4
    assert read_page(store, FlowFilter(), limit=9, after=(1767225600.0, None)) == []


async def test_a_filter_means_what_it_says_whatever_is_in_tags_and_texts(flows: FlowStore, store: JournalStore) -> None:
    await start_flow("listed order", run_id="plain", store=flows.target, tags={"team": "sales", "size": "5"})
    odd = {'a"b': 'c": "d', "\\": "100%", "naïve": "\x00"}
    await start_flow("refund", run_id="odd_1", store=flows.target, tags=odd)

    def find(**fields: object) -> list[str]:
        return [row.run_id for row in read_page(store, FlowFilter(**fields), limit=9)]  # type: ignore[arg-type]

    assert find(tags=["team=sales"]) == find(tags=["team", "size=5"]) == find(flow="listed order") == ["plain"]
    assert find(tags=["team=sale"]) == find(tags=["eam=sales"]) == find(tags=["team=sales", "size=6"]) == []
    for name, value in odd.items():
        assert find(tags=[f"{name}={value}"]) == ["odd_1"]
    assert find(tags=["b"]) == find(tags=["d"]) == []
    assert find(text="_") == find(text="100%") == ["odd_1"]
    assert find(text="%") == ["odd_1"]
    assert set(find(status="pending")) == {"plain", "odd_1"}
    assert find(status="running") == []
    now = read_page(store, FlowFilter(), limit=1)[0].created_at
    assert find(since=now + 1) == []
    assert len(find(since=now - 60, until=now + 1)) == 2
