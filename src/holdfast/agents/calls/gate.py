"""What the journal tells others about a model call, so that money moves in the same transaction as the call."""

from dataclasses import dataclass
from typing import Protocol

from holdfast.runtime.step import SameCommit


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call that is about to be made."""

    key: str
    lane_id: str
    model: str
    """As the model table knows it: a short name or the provider's identifier, without our own suffixes."""
    max_input_tokens: int
    """An upper bound, from the bytes of the whole request."""
    max_output_tokens: int | None
    max_cost_micros: int | None = None
    """Where no table can say it: of a program that calls models by itself."""
    is_begun: bool = False
    """It was found running after a crash: what was reserved for it then is still its money."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the provider says a call has used. The cached tokens are part of `input_tokens`."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int | None = None
    """What the provider itself says it has cost, in micro-dollars."""
    is_estimated: bool = False
    """The cost is ours, by the model table, of tokens that a program says it has used."""

    def to_dict(self) -> dict[str, int]:
        counts = {name: getattr(self, name) for name in self.__slots__}
        always = {"input_tokens", "output_tokens"}
        return {name: int(value) for name, value in counts.items() if name in always or value}


class ModelCallGate(Protocol):
    """Stands before every live model call; a replayed one never reaches it.

    Its methods are called on the event loop and must not wait. Each of them may be called again for the same key after
    a crash, as long as what it returned was not written.
    """

    def before(self, call: ModelCall) -> SameCommit:
        """Return what is written with the intent.

        What it raises, and `RowRefused` if a row is not as it expects, keeps the call from being made and comes out of
        the agent; nothing is recorded.
        """
        ...

    def after(self, call: ModelCall, usage: Usage | None) -> SameCommit:
        """Return what is written with the answer; `usage` is `None` where the provider did not report any."""
        ...

    def failed(self, call: ModelCall, error: Exception) -> SameCommit:
        """Return what is written just before the failure is recorded, in an append of its own.

        A crash between the two leaves the call without an outcome; it is then made again, `before` included.
        """
        ...
