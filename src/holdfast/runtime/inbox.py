"""What was sent to a run from outside and is not read yet: one queue for each name, first in, first out. Pure."""

from collections.abc import Mapping
from typing import Any

from holdfast.runtime.events import Event


class Inbox:
    """The unread events of a run, by name and number.

    Rule: each event is read once. One that is folded again, or sent again with the same `dedup_id`, changes nothing.
    """

    def __init__(self) -> None:
        self._unread: dict[str, dict[int, Any]] = {}
        self._dedup_ids: set[str] = set()
        self._last_seq = 0

    def add(self, event: Event) -> None:
        """Take in an `event.received`."""
        name, dedup_id = event.payload.get("name"), event.payload.get("dedup_id")
        if event.seq <= self._last_seq or not isinstance(name, str):
            return
        self._last_seq = event.seq
        if isinstance(dedup_id, str):
            if dedup_id in self._dedup_ids:
                return
            self._dedup_ids.add(dedup_id)
        self._unread.setdefault(name, {})[event.seq] = event.payload.get("data")

    def has_seen(self, dedup_id: str) -> bool:
        return dedup_id in self._dedup_ids

    def take(self, *names: str) -> tuple[int, str, Any] | None:
        """Read the oldest event of one of these names: its number, name and data; `None` if there is none."""
        found = [(next(iter(unread)), name) for name in names if (unread := self._unread.get(name))]
        if not found:
            return None
        seq, name = min(found)
        return seq, name, self._unread[name].pop(seq)

    def take_from(self, payload: Mapping[str, Any]) -> Any:
        """Read the event that a `wait.completed` names, and return its data."""
        return self._unread.get(str(payload.get("name")), {}).pop(payload.get("event"), None)  # type: ignore[arg-type]
