"""A script that a simulated model plays instead of its own rules, with a person's comment filled in."""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.agents.envelope import Envelope
from holdfast.persona import ScriptedTurn

_COMMENT = "$comment"
_LEFT_OUT = object()


def fill_in(turns: Iterable[ScriptedTurn], comment: str) -> tuple[ScriptedTurn, ...]:
    """Put the comment where the script names it; what names it is left out if there is none, down to a whole turn.

    A turn that only says something is joined with the next one, since an answer without calls would be the last.
    """
    text = " ".join(comment.split())
    filled = (
        ScriptedTurn(
            say=_first_set(_fill(turn.say, text), ""),
            calls=_first_set(_fill(turn.calls, text), ()),
            artifact=_first_set(_fill(turn.artifact, text), None),
        )
        for turn in turns
    )
    return _join_texts([turn for turn in filled if turn != ScriptedTurn()])


def _join_texts(turns: Sequence[ScriptedTurn]) -> tuple[ScriptedTurn, ...]:
    joined: list[ScriptedTurn] = []
    for turn in turns:
        if joined and not joined[-1].calls and joined[-1].artifact is None:
            said = joined.pop().say
            turn = turn.model_copy(update={"say": f"{said}\n\n{turn.say}".strip()})
        joined.append(turn)
    return tuple(joined)


def find_artifact(turns: Sequence[ScriptedTurn], envelope: Envelope) -> dict[str, Any] | None:
    """Return the last artifact of a script, with the run and the phase where the schema asks for them."""
    written = [turn.artifact for turn in turns if turn.artifact is not None]
    if not written:
        return None
    names = envelope.artifact.schema.get("properties", {})
    own = {"runId": envelope.run_id, "phaseKey": envelope.phase_key}
    return {**{name: value for name, value in own.items() if name in names}, **written[-1]}


def _fill(part: Any, comment: str) -> Any:
    if isinstance(part, str):
        if _COMMENT not in part:
            return part
        return part.replace(_COMMENT, comment) if comment else _LEFT_OUT
    if isinstance(part, dict):
        filled = {name: _fill(value, comment) for name, value in part.items()}
        return {name: value for name, value in filled.items() if value is not _LEFT_OUT}
    if isinstance(part, list | tuple):
        return [value for value in (_fill(value, comment) for value in part) if value is not _LEFT_OUT]
    return part


def _first_set(value: Any, otherwise: Any) -> Any:
    return otherwise if value is _LEFT_OUT else value
