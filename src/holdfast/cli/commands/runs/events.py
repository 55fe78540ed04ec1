"""The command runs events: the journal of a run, for people as a transcript and for programs as it is."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON, RUN_ID, STORE, find_run_id
from holdfast.cli.terminal.output import paint, plain, print_text, to_json_text
from holdfast.cli.terminal.store import open_configured_store, read_events, undriven_notice
from holdfast.runtime.event_text import clean, describe_event
from holdfast.runtime.events import Event, EventKind

_MAX_PHRASE_CHARS = 2_000
_MAX_OUTPUT_LINES = 8  # of a tool; `runs logs` and --json have it all
_MAX_LANE_CHARS = 20
_LEAST_ROOM = 20
_QUIET = (
    EventKind.BUDGET_RESERVED,
    EventKind.BUDGET_SETTLED,
    EventKind.CHECKPOINT_SAVED,
    EventKind.MODEL_REQUEST,
    "state.",
)
_FAILURES = (EventKind.RUN_FAILED, EventKind.PHASE_FAILED, EventKind.TOOL_ERROR, EventKind.MODEL_ERROR)


def list_events(
    run_id: RUN_ID,
    since: Annotated[int, typer.Option("--since", metavar="N", help="Only events with a higher number.")] = 0,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only of this kind, such as tool.result, or tool. for all of them."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events until the run is over.")] = False,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Print the journal of a run as a transcript, with --json as one object a line.

    Example: holdfast runs events 3f2a --kind tool. --follow
    """
    matches = to_filter(kind or [])
    full_id = find_run_id(run_id)
    if follow:
        import asyncio

        asyncio.run(_follow(full_id, since, matches, is_json=as_json))
        return
    events = read_events(full_id, since if as_json else 0)
    if as_json:
        for event in filter(matches, events):
            print_text(to_json_text(event.to_dict()))
        return
    printer = EventPrinter()
    for event in _join_texts(events):
        printer.print(event, is_printed=event.seq > since and matches(event))


def to_filter(kinds: Iterable[str]) -> Callable[[Event], bool]:
    """Return a test for events of these kinds, or of a family such as `tool.`; without kinds every event passes.

    Raises `BadParameter` for a kind that there is not.
    """
    families = tuple(each for kind in EventKind for each in _prefixes(kind.value))
    for name in kinds:
        if name.rstrip(".") not in families:
            hint = did_you_mean(name, list(families)) or f" The families are {', '.join(_list_families())}."
            raise typer.BadParameter(f"{name!r} is no kind of event.{hint}", param_hint="--kind")
    exact, beginnings = set(kinds), tuple(f"{name.rstrip('.')}." for name in kinds)
    return lambda event: not exact or event.kind in exact or event.kind.startswith(beginnings)


def _prefixes(kind: str) -> Iterator[str]:
    """Yield what comes before each dot of a kind, and the kind itself."""
    parts = kind.split(".")
    yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _list_families() -> list[str]:
    return sorted({kind.value.partition(".")[0] for kind in EventKind})


async def _follow(run_id: str, since: int, matches: Callable[[Event], bool], *, is_json: bool) -> None:
    from holdfast.runtime.stores import open_journal

    store = open_configured_store()
    printer = EventPrinter()
    try:
        async with open_journal(store) as journal, undriven_notice(run_id):
            async for event in journal.follow(run_id, since if is_json else 0):
                is_printed = event.seq > since and matches(event)
                if not is_json:
                    printer.print(event, is_printed=is_printed)
                elif is_printed:
                    print_text(to_json_text(event.to_dict()))
                sys.stdout.flush()
                if event.is_terminal:
                    return
    finally:
        store.close()


class EventPrinter:
    """Prints events as lines of a transcript: number, seconds since the first event, where, and what it was."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._calls: dict[str, str] = {}
        self._last_detail = ""

    def print(self, event: Event, *, is_printed: bool = True) -> None:
        """Print one event; one that is not printed still counts for the time and for names of later ones."""
        self._first_at = event.ts if self._first_at is None else self._first_at
        if event.kind == EventKind.TOOL_STARTED:
            self._calls[str(event.payload.get("key"))] = str(event.payload.get("tool") or "")
        if is_printed:
            print_text("\n".join(self._to_lines(event)))

    def _to_lines(self, event: Event) -> Iterator[str]:
        phrase, detail = self._describe(event)
        place = _to_place(event)
        head = f"{event.seq:>5}  {event.ts - (self._first_at or 0):>8.2f} s  "
        room = max(_find_width() - len(head) - 1, _LEAST_ROOM)
        first, *more = _wrap(f"{place}{phrase}", room, is_prose=True)
        yield paint(head, "dim") + paint(first, _find_tone(event))
        for line in more:
            yield " " * len(head) + paint(line, _find_tone(event))
        if detail.strip() == self._last_detail:
            return  # an agent's last words are those of its last call
        self._last_detail = detail.strip() or self._last_detail
        for line in _to_detail(detail, room - 2, is_output=event.kind == EventKind.TOOL_RESULT):
            yield " " * (len(head) + 2) + paint(line, "dim")

    def _describe(self, event: Event) -> tuple[str, str]:
        if event.kind == EventKind.TEXT_DELTA:
            return "prints", str(event.payload.get("text") or "")
        tool = self._calls.get(str(event.payload.get("key")))
        if tool and not event.payload.get("tool"):  # its arguments were told when it started
            event = Event.from_dict({**event.to_dict(), "payload": {**event.payload, "tool": tool}})
        return describe_event(event, max_chars=_MAX_PHRASE_CHARS)


def _to_place(event: Event) -> str:
    """Name the phase of an event, and the attempt where it is not the first."""
    phase, _, rest = event.lane_id.partition("/")
    attempt = rest.partition("/")[0]
    if event.lane_id == "main":
        return ""
    return f"[{clean(phase)[:_MAX_LANE_CHARS]}{f' {attempt}' if attempt not in ('', '1') else ''}] "


def _to_detail(text: str, room: int, *, is_output: bool) -> Iterator[str]:
    lines = plain(text.expandtabs()).rstrip().splitlines() if text.strip() else []
    wrapped = [piece for line in lines for piece in _wrap(line, room)]
    most = _MAX_OUTPUT_LINES if is_output else len(wrapped)
    yield from (line.rstrip() for line in wrapped[:most])
    if len(wrapped) > most:
        yield f"… {len(wrapped) - most} more lines"


def _find_width() -> int:
    """Return the terminal's width; what goes into a pipe is not wrapped, so that a search finds whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else sys.maxsize


def _wrap(line: str, room: int, *, is_prose: bool = False) -> list[str]:
    """Break a line into pieces that fit; the spaces between them stay unless it is prose."""
    if len(line) <= room:
        return [line]
    wrapped = textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False, drop_whitespace=is_prose)
    return [piece for part in wrapped for piece in _cut_word(part, room)] or [""]


def _cut_word(text: str, room: int) -> list[str]:
    """Cut a word that does not fit; a path stays whole, to be copied."""
    if "/" in text or len(text) <= room:
        return [text]
    return [text[at : at + room] for at in range(0, len(text), room)]


def _find_tone(event: Event) -> str:
    if event.kind.startswith(_QUIET):
        return "dim"
    if event.kind in _FAILURES:
        return "failed"
    return "bold" if event.kind.startswith(("run.", "phase.", "human.")) else ""


def _join_texts(events: list[Any]) -> Iterable[Event]:
    from holdfast.runtime.transcript import join_texts

    return join_texts(events)
