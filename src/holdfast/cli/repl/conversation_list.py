"""The conversations there are about a repository: which one is meant, and how each stands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.cli.terminal.answer_input import read_answer
from holdfast.cli.terminal.arguments import find_run_id
from holdfast.cli.terminal.output import Cell, plain, table
from holdfast.engine.conversation.journal import NAME
from holdfast.enums import RunStatus
from holdfast.errors import ConfigInvalid, RunNotFound
from holdfast.persistence.raw_sql import find_driven, get_run, read_open_runs
from holdfast.presentation.format import duration
from holdfast.workspace.user_checkout import find_checkout

_LISTED = 20
_RECENT_S = 60.0
_NUMBER_CHARS = 3
"""A run's id is known by four characters or more, so fewer digits are a number of the list."""
_STANDS = {
    "message": "waits for your next message",
    "approval": "waits for your approval",
    "outcome": "waits for you: what became of a call",
    "budget": "its budget is used up",
}


@dataclass(frozen=True)
class PastConversation:
    """A conversation that can be gone on with."""

    run_id: str
    title: str
    age_s: float
    state: str
    """How it stands, in a few words."""


def find_folder() -> Path | None:
    """Return the repository one stands in, or `None`."""
    return find_checkout(Path())


def list_conversations(repo: Path, *, limit: int = _LISTED) -> list[PastConversation]:
    """Return the conversations about a repository that are not over, the one used last first."""
    rows = read_open_runs(workflow=NAME, repo=str(repo), limit=limit)
    driven = find_driven([row["id"] for row in rows if row["state"] == RunStatus.RUNNING])
    now = datetime.now(UTC)
    return [
        PastConversation(
            run_id=str(row["id"]),
            title=str(row["title"] or ""),
            age_s=max((now - datetime.fromisoformat(row["updated_at"])).total_seconds(), 0.0),
            state=_describe_state(row["state"], row["pause_reason"], is_driven=row["id"] in driven),
        )
        for row in rows
    ]


def _describe_state(state: str, reason: str | None, *, is_driven: bool) -> str:
    if state == RunStatus.PAUSED:
        return _STANDS.get(reason or "", f"paused ({reason})" if reason else "paused")
    return "is being answered" if is_driven else "an answer was interrupted"


def find_conversation(text: str, repo: Path) -> str:
    """Return the conversation for an id, the beginning of one, a number of the list, or nothing: the last one.

    Raises `RunNotFound`, and `ConfigInvalid` for a run that is no conversation.
    """
    if text and not (text.isdecimal() and len(text) <= _NUMBER_CHARS):
        run_id = find_run_id(text)
        if get_run(run_id)["workflow"] != NAME:
            hint = f"Go on with it: holdfast resume {run_id[:8]}"
            raise ConfigInvalid(f"Run {run_id[:8]} is no conversation.", hint=hint, key="--resume")
        return run_id
    known = list_conversations(repo)
    if not known:
        raise RunNotFound(f"There is no conversation about {repo} yet.", hint="Begin one: holdfast")
    number = int(text or 1)
    if not 1 <= number <= len(known):
        raise RunNotFound(f"There is no conversation {number} in the list.", hint=f"Name one of 1 to {len(known)}.")
    return known[number - 1].run_id


def to_table(known: Sequence[PastConversation], current: str | None = None) -> str:
    """Return the list as a person reads it, numbered from 1."""
    rows: list[list[str | Cell]] = [
        [
            Cell(f"{'›' if item.run_id == current else ' '} {number}", "bold"),
            item.run_id[:8],
            f"{duration(item.age_s)} ago" if item.age_s >= _RECENT_S else "just now",
            plain(" ".join(item.title.split())) or "(nothing was said)",
            Cell(item.state, "dim"),
        ]
        for number, item in enumerate(known, start=1)
    ]
    return table(rows, elastic=3)


def choose_conversation(repo: Path, show: Callable[[str], None]) -> str | None:
    """Let the person choose among several; the last one if there is no other, `None` if they end their input.

    Raises `RunNotFound` if there is none.
    """
    known = list_conversations(repo)
    if len(known) < 2:
        return find_conversation("", repo)
    show(f"Conversations about {repo.name}:\n{to_table(known)}")
    while True:
        answer = read_answer(f"Go on with which? (1 to {len(known)}, Enter is 1) > ")
        if answer is None:
            return None
        try:
            return find_conversation(answer, repo) if answer else known[0].run_id
        except (RunNotFound, ConfigInvalid) as error:
            show(f"{error.message} {error.hint}".rstrip())
