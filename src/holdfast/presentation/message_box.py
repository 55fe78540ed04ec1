"""Where a person can say something to an agent: to whom it goes, when it is read, and why it cannot be now."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast.enums import PauseReason, Role, RunPhaseState, RunStatus
from holdfast.presentation.format import quoted
from holdfast.presentation.status import RunFacts

CONVERSATION = "conversation"
DEAF_HINT = "Ask for changes when its result waits for you, or stop it and fork the run with other requirements."


@dataclass(frozen=True)
class MessageBox:
    """`phases` are those that could be meant, where there is more than one; `why` says why nothing can be sent."""

    label: str
    hint: str
    phases: list[str] = field(default_factory=list)
    can_stop: bool = False
    why: str | None = None


def describe_message_box(
    run: RunFacts, workflow: str, role: Role, deaf_phases: Collection[str] = ()
) -> MessageBox | None:
    """Say how to talk with whoever works on a run; `None` where nobody would read it.

    `deaf_phases` are those whose agent reads nothing while it works, as a coding agent's program does.
    """
    why = None if role.includes(Role.OPERATOR) else f"This needs the role operator; you are {role.value}."
    is_running = run.state == RunStatus.RUNNING
    if workflow == CONVERSATION and run.state in (RunStatus.RUNNING, RunStatus.PENDING, RunStatus.PAUSED):
        return MessageBox("Your message", _describe_turn(run, is_deaf=bool(deaf_phases)), can_stop=is_running, why=why)
    working = [phase.key for phase in run.phases_in(RunPhaseState.RUNNING)]
    if not is_running or not working:
        return None
    hearing = [key for key in working if key not in deaf_phases]
    if not hearing:
        return MessageBox("Say something to the agent", DEAF_HINT, why=why or describe_deafness(working))
    hint = f"The agent of {quoted(hearing)} reads it before its next call; it changes nothing that is done."
    return MessageBox("Say something to the agent", hint, hearing if len(hearing) > 1 else [], why=why)


def describe_deafness(phase_keys: Iterable[str]) -> str:
    """Say that nobody would read a message to these phases."""
    return f"The coding agent of {quoted(phase_keys)} is a program of its own: it reads no messages while it works."


def _describe_turn(run: RunFacts, *, is_deaf: bool) -> str:
    if run.state == RunStatus.PAUSED and run.pause_reason != PauseReason.MESSAGE:
        return "The agent reads it after your decision above."
    if run.state != RunStatus.RUNNING:
        return "@path/to/file takes a file along."
    return "It is read when this answer is complete." if is_deaf else "It is read before the agent's next call."
