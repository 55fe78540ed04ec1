"""What a simulated model does as a server would: how it sends its answers, and how it fails to.

Rule: a fault happens once to an answer, so that whoever tries again gets it.
"""

STREAM = "stream"
_PIECE_CHARS = 12
_MAX_PIECES = 200
DELIVERIES = {
    STREAM: "no misbehaviour: sends its answers piece by piece",
    "rate-limited": "refuses its first answer once: too many requests (429)",
    "server-error": "fails its first answer once: an internal error (500)",
    "cut-off": "breaks its first answer off once, in the middle",
}
_STATUSES = {"rate-limited": (429, "Too many requests"), "server-error": (500, "Internal error")}


class RefusedBySimulation(Exception):
    """A request that the simulated server refuses, as a client of a real one would report it."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.body = {"message": message}


class Delivery:
    """How the answers of one model are sent. `faults` are names of `DELIVERIES`."""

    def __init__(self, faults: frozenset[str] = frozenset()) -> None:
        self.is_streamed = STREAM in faults
        self._faults = faults
        self._met: set[str] = set()

    def check(self, *, is_first: bool) -> None:
        """Refuse the first answer of an agent, once. Raises `RefusedBySimulation`."""
        for fault, (status, message) in _STATUSES.items():
            if is_first and self._meets(fault):
                raise RefusedBySimulation(status, message)

    def split(self, text: str) -> list[str]:
        """Return the pieces in which a text is sent."""
        size = max(_PIECE_CHARS, -(-len(text) // _MAX_PIECES)) if self.is_streamed else max(1, len(text))
        return [text[start : start + size] for start in range(0, len(text), size)]

    def cuts_off(self, *, is_first: bool) -> bool:
        """Return true for the first answer of an agent, once, if it is to be broken off."""
        return is_first and self._meets("cut-off")

    def _meets(self, fault: str) -> bool:
        is_due = fault in self._faults and fault not in self._met
        self._met.add(fault)
        return is_due
