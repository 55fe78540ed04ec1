"""Results that are no JSON data: recorded by the declared type, and the same type on every replay."""

import os
import signal
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.flow_stores import FlowStore

from holdfast import Context, Done, RunPaused, decide, register_codec, run_flow
from holdfast.errors import Nondeterminism, PayloadInvalid
from holdfast.flows.typed_values.call_record import record_call, restore_call
from holdfast.flows.typed_values.declared_types import codec_for
from holdfast.flows.typed_values.value_codec import fingerprint_arguments
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.records import fingerprint_of

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    label: str


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    tags: frozenset[str] = frozenset()


@dataclass
class Order:
    id: UUID
    at: datetime
    lines: list[Line]
    colour: Colour | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Page(Generic[T]):
    items: list[T]


class Package(msgspec.Struct):
    weight: float
    until: date


class Customer(pydantic.BaseModel):
    name: str
    born: date
    mail: str | None = pydantic.Field(default=None, alias="e-mail")


class Row(TypedDict):
    at: datetime


class Ok(NamedTuple):
    value: int


@dataclass
class Bad:
    reason: str


class Money:
    """A class that holdfast does not know."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


register_codec(Money, encode=lambda money: money.cents, decode=Money)

NOW = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
ID = UUID(int=7)
ORDER = Order(ID, NOW, [Line("a", Decimal("1.10"), frozenset({"x", "y"}))], Colour.RED, {"deep": [1, None]})

VALUES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (list[Order], [ORDER, ORDER]),
    (Order | None, ORDER),
    (Order | None, None),
    (dict[str, Order], {"a": ORDER}),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[UUID, date], {ID: NOW.date()}),
    (dict[Colour, int], {Colour.RED: 1}),
    (Page[Line], Page([Line("a", Decimal(3))])),
    (Package, Package(1.5, date(2026, 1, 2))),
    (Customer, Customer.model_validate({"name": "n", "born": "2000-01-02", "e-mail": "a@b"})),
    (list[Customer], [Customer(name="n", born=date(2000, 1, 2))]),
    (Point, Point(1, "a")),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (datetime, NOW),
    (datetime, NOW.replace(tzinfo=None)),
    (date, NOW.date()),
    (time, NOW.time()),
    (timedelta, timedelta(days=-3, seconds=5, microseconds=7)),
    (UUID, ID),
    (Decimal, Decimal("1.10")),
    (Path, Path("/a/b")),
    (PurePosixPath, PurePosixPath("a")),
    (bytes, b"\x00\xff"),
    (Colour, Colour.BLUE),
    (Level, Level.LOW),
    (Money, Money(3)),
    (list[Money], [Money(3), Money(4)]),
    (Ok | Bad, Ok(3)),
    (Ok | Bad, Bad("no")),
    (datetime | str, NOW),
    (datetime | str, "2026-01-01"),
    (Annotated[datetime, "when"], NOW),
    (list[UserId], [1, 2]),
    (Row, {"at": NOW}),
    (Awaitable[UUID], ID),
]


@pytest.mark.parametrize(("declared", "value"), VALUES, ids=lambda item: str(item)[:40])
async def test_a_replay_returns_an_equal_value_of_the_same_type(declared: Any, value: Any) -> None:
    seen: list[Any] = []

    async def flow(ctx: Context) -> Any:
        seen.append(await ctx.step("make", make))
        if is_broken:
            raise RuntimeError
        return None

    def make() -> Any:
        return value

    make.__annotations__["return"] = declared
    store = InMemoryCheckpointer()
    is_broken = True
    with pytest.raises(RuntimeError):
        await run_flow(flow, run_id="r", store=store)
    is_broken = False
    await run_flow(flow, run_id="r", store=store)

    assert seen == [value, value]
    assert [type(item) for item in seen] == [type(value)] * 2


def make_order() -> Order:
    return ORDER


def make_lines(count: int) -> list[Line]:
    return [Line("x" * 50, Decimal(number)) for number in range(count)]


async def typed(ctx: Context, customer: Customer, kill: str = "") -> Order:
    order = await ctx.step("order", make_order)
    assert isinstance(order.lines[0].price, Decimal)
    assert len(await ctx.step("lines", make_lines, 2_000)) == 2_000  # moved out to a blob
    if kill and not os.path.exists(kill):
        open(kill, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return order


async def test_values_survive_a_kill_and_so_do_arguments_and_result(disk_flows: FlowStore, tmp_path: Path) -> None:
    code = (
        "from tests.conformance.flows.test_values import typed, Customer\n"
        "customer = Customer(name='n', born='2000-01-02')\n"
        "asyncio.run(run_flow(typed, customer, args[0], run_id='r', store=store))\n"
    )
    marker = str(tmp_path / "killed")
    with disk_flows.start_process(code, marker) as process:
        assert process.wait() == -9
    customer = Customer.model_validate({"name": "n", "born": "2000-01-02"})

    for _ in range(2):  # it goes on, and then is complete
        assert await run_flow(typed, customer, marker, run_id="r", store=disk_flows.named) == ORDER
    other = Customer.model_validate({"name": "other", "born": "2000-01-02"})
    with pytest.raises(Nondeterminism):
        await run_flow(typed, other, marker, run_id="r", store=disk_flows.named)
    created = disk_flows.events()[0].payload
    assert restore_call(typed, created) == ((customer, marker), {})


async def child(ctx: Context, order: Order) -> Order:
    return await ctx.step("order", hand_back, order)


def hand_back(order: Order) -> Order:
    return order


async def test_a_child_returns_its_type_now_and_on_a_replay(flows: FlowStore) -> None:
    seen: list[Any] = []

    async def parent(ctx: Context) -> None:
        seen.append(await ctx.run_flow(child, ORDER))
        if is_broken:
            raise RuntimeError

    is_broken = True
    with pytest.raises(RuntimeError):
        await run_flow(parent, run_id="r", store=flows.named)
    is_broken = False
    await run_flow(parent, run_id="r", store=flows.named)

    assert seen == [ORDER, ORDER]


# -- what is refused --------------------------------------------------------------------------------------------------


class Numpyish(float):
    """As numpy's `float64` is a float to Python."""


Numpyish.__module__ = "numpy"


@pytest.mark.parametrize(
    ("declared", "value", "advice"),
    [
        (None, NOW, "declare the type"),
        (None, {1, 2}, "declare the type"),
        (Any, ORDER, "declare the type"),
        (date, NOW, "Return JSON data"),
        (Order, {"id": 3}, "Return JSON data"),
        (Line, make_lines(1)[0].__dict__, "Declare the type"),
        (object, object(), "declare the type"),
        (Callable, print, "register_codec"),
        (list[object], [object()], "declare the type"),
        (dict[tuple[int, int], int], {(1, 2): 3}, "Return JSON data"),
        (float, Numpyish(1.0), ".item()"),
        (list[Numpyish], [Numpyish(1.0)], ".item()"),
        (None, [Numpyish(1.0)], ".item()"),
        (Decimal, Decimal("NaN"), "Declare the type"),
    ],
)
async def test_what_a_replay_could_not_return_is_refused_on_the_first_try(
    declared: Any, value: Any, advice: str
) -> None:
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        return value

    if declared is not None:
        make.__annotations__["return"] = declared
    else:
        make.__annotations__.clear()

    async def flow(ctx: Context) -> None:
        await ctx.step.options(retries=3)("make", make)

    if declared is Decimal:
        await run_flow(flow, store=InMemoryCheckpointer())  # equal to nothing, and yet the same
    else:
        with pytest.raises(PayloadInvalid) as raised:
            await run_flow(flow, store=InMemoryCheckpointer())
        assert advice in str(raised.value)
    assert len(calls) == 1


async def test_a_record_of_json_data_is_returned_as_it_was_whatever_is_declared_now() -> None:
    store = InMemoryCheckpointer()
    for kind, payload in (
        ("run.created", {"args": [], "kwargs": {}}),
        ("run.started", {}),
        ("step.completed", {"key": "make", "result": [1, "a"]}),
    ):
        store.save_event(create_event("r", kind, **payload))

    def make() -> tuple[int, str]:
        raise AssertionError("it is recorded")

    async def flow(ctx: Context) -> bool:
        return await ctx.step("make", make) == [1, "a"]  # as the execution that recorded it saw it

    assert await run_flow(flow, run_id="r", store=store) is True


@pytest.mark.parametrize("other", [Any, int, Package, UUID | None])
async def test_a_type_that_no_longer_fits_what_is_recorded_is_refused_and_the_right_one_goes_on(other: Any) -> None:
    store = InMemoryCheckpointer()

    def make() -> Any:
        return ORDER

    async def flow(ctx: Context) -> None:
        assert await ctx.step("make", make) == ORDER
        if is_broken:
            raise RuntimeError

    is_broken = True
    make.__annotations__["return"] = Order
    with pytest.raises(RuntimeError):
        await run_flow(flow, run_id="r", store=store)
    is_broken = False

    def changed() -> Any: ...

    changed.__annotations__["return"] = other
    make, right = changed, make
    with pytest.raises(Nondeterminism, match=r"recorded as .*Order"):
        await run_flow(flow, run_id="r", store=store)
    make = right
    await run_flow(flow, run_id="r", store=store)


# -- answers ----------------------------------------------------------------------------------------------------------


async def dies(ctx: Context, policy: str) -> list[Any]:
    def send() -> Order:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    async def look(key: str) -> Any:
        return Done(ORDER)

    order = await ctx.step("send", send, on_unknown="ask" if policy == "ask" else look)
    return [type(order).__name__, str(order.id)]


_DIES = (
    "from tests.conformance.flows.test_values import dies\n"
    "asyncio.run(run_flow(dies, args[0], run_id='r', store=store))\n"
)


async def test_a_reconciler_can_return_the_type_itself(disk_flows: FlowStore) -> None:
    with disk_flows.start_process(_DIES, "look") as process:
        assert process.wait() == -9

    assert await run_flow(dies, "look", run_id="r", store=disk_flows.named) == ["Order", str(ID)]


async def test_a_persons_answer_is_read_as_the_type_and_asked_for_again_if_it_is_not_one(disk_flows: FlowStore) -> None:
    store = disk_flows.named
    with disk_flows.start_process(_DIES, "ask") as process:
        assert process.wait() == -9
    with pytest.raises(RunPaused):
        await run_flow(dies, "ask", run_id="r", store=store)
    await decide("r", "send", "done", result={"id": "no id"}, store=store)
    with pytest.raises(RunPaused):
        await run_flow(dies, "ask", run_id="r", store=store)
    questions = [
        event.payload["show"] for event in disk_flows.events() if event.kind == EventKind.HUMAN_APPROVAL_REQUESTED
    ]
    assert "is no" in questions[-1]["problem"]
    await decide("r", "send", "done", result={"id": str(ID), "at": NOW.isoformat(), "lines": []}, store=store)

    assert await run_flow(dies, "ask", run_id="r", store=store) == ["Order", str(ID)]


# -- arguments --------------------------------------------------------------------------------------------------------

_texts = st.text(string.printable, max_size=5)
_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts
_json = _leaves | st.lists(_leaves, max_size=3) | st.dictionaries(_texts, st.lists(_leaves, max_size=2), max_size=3)


@given(args=st.lists(_json, max_size=3), kwargs=st.dictionaries(_texts, _json, max_size=2))
def test_arguments_have_the_fingerprint_that_older_journals_hold(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert fingerprint_arguments(tuple(args), kwargs) == fingerprint_of(arguments=[tuple(args), kwargs])


def test_equal_arguments_of_other_types_have_one_fingerprint_and_what_is_no_data_has_none() -> None:
    assert fingerprint_arguments(({"b", "a"}, ORDER), {}) == fingerprint_arguments(({"a", "b"}, ORDER), {})
    assert fingerprint_arguments((NOW,), {}) != fingerprint_arguments((NOW + timedelta(1),), {})
    assert fingerprint_arguments((object(),), {}) == {"arguments": ""}


def test_the_type_of_an_argument_has_one_name_on_every_python() -> None:
    values = [Path("a"), NOW, Decimal(1), UUID(int=1)]

    names = [item["$type"] for item in record_call(values, {})["args"]]

    assert names == ["pathlib.PosixPath", "datetime.datetime", "decimal.Decimal", "uuid.UUID"]


async def test_a_run_started_before_arguments_of_other_types_were_recorded_goes_on() -> None:
    store = InMemoryCheckpointer()
    call = {"args": [{"$type": "pathlib.PosixPath"}, 3], "kwargs": {}}
    store.save_event(create_event("r", "run.created", **call, fingerprint=fingerprint_of(**call)))

    async def flow(ctx: Context, path: Path, number: int) -> str:
        return f"{path} {number}"

    assert await run_flow(flow, Path("a"), 3, run_id="r", store=store) == "a 3"
    with pytest.raises(Nondeterminism):
        await run_flow(flow, Path("a"), 4, run_id="r", store=store)


def test_arguments_come_back_by_what_the_flow_declares_or_by_their_own_type() -> None:
    async def flow(
        ctx: Context, pair: tuple[int, int], order: Order, when: Any, *, customer: Customer | None
    ) -> None: ...

    customer = Customer(name="n", born=date(2000, 1, 2))
    created = record_call(((1, 2), ORDER, NOW), {"customer": customer})

    assert restore_call(flow, created) == (((1, 2), ORDER, NOW), {"customer": customer})
    with pytest.raises(Nondeterminism, match="not recorded"):
        restore_call(flow, record_call((object(),), {}))


# -- any value --------------------------------------------------------------------------------------------------------

_lines = st.builds(
    Line,
    sku=_texts,
    price=st.decimals(allow_nan=False, allow_infinity=False),
    tags=st.frozensets(_texts, max_size=3),
)
_orders = st.builds(
    Order,
    id=st.uuids(),
    at=st.datetimes(timezones=st.just(UTC) | st.none()),
    lines=st.lists(_lines, max_size=3),
    colour=st.none() | st.sampled_from(Colour),
    notes=st.dictionaries(_texts, _json, max_size=2),
)


@given(_orders)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_order_comes_back(order: Order) -> None:
    codec = codec_for(Order)

    data, name, copy = codec.encode(order, "it")

    assert copy == order
    assert codec.decode(data, name, "it") == order


def test_only_classes_that_need_it_can_be_registered() -> None:
    for known in (Order, datetime, Path, Customer, int):
        with pytest.raises(TypeError, match="without a codec"):
            register_codec(known, encode=str, decode=known)
    with pytest.raises(TypeError, match="takes a class"):
        register_codec("Money", encode=str, decode=Money)  # type: ignore[arg-type]
