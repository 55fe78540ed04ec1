"""Which numbers of a journal its owner knows, while it writes and others write beside it."""

from collections.abc import Sequence


class HeadTracker:
    """How far the owner of a run knows its journal: everything up to `head`, and own numbers beyond a gap. Pure.

    A number in the gap is another writer's, or that of an own append which has not been answered yet.
    """

    __slots__ = ("_beyond", "head")

    def __init__(self, head: int) -> None:
        self.head = head
        self._beyond: set[int] = set()

    @property
    def has_gap(self) -> bool:
        return bool(self._beyond)

    def note_own(self, numbers: Sequence[int]) -> int:
        """Note the numbers of one append of the owner's, which follow each other; returns the head, 0 with a gap."""
        if not self._beyond and numbers and numbers[0] == self.head + 1:
            self.head = numbers[-1]  # the usual case: nobody else writes
            return self.head
        self._beyond.update(number for number in numbers if number > self.head)
        self._close_gap()
        return 0 if self._beyond else self.head

    def note_read(self, seq: int) -> None:
        """Note that the journal was read up to this number, whoever wrote what is there."""
        if seq > self.head:
            self.head = seq
            self._beyond = {number for number in self._beyond if number > seq}
            self._close_gap()

    def _close_gap(self) -> None:
        while self.head + 1 in self._beyond:
            self.head += 1
            self._beyond.remove(self.head)
