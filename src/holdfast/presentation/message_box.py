"""Where a person can say something to an agent: to whom it goes, when it is read, and why it cannot be now."""

from dataclasses import dataclass, field

from holdfast.enums import PauseReason, Role, RunPhaseState, RunStatus
from holdfast.presentation.format import quoted
from holdfast.presentation.status import RunFacts

CONVERSATION = "conversation"


@dataclass(frozen=True)
class MessageBox:
    """`phases` are those that could be meant, where there is more than one; `why` says why nothing can be sent."""

    label: str
    hint: str
    phases: list[str] = field(default_factory=list)
    can_stop: bool = False
    why: str | None = None


def describe_message_box(run: RunFacts, workflow: str, role: Role) -> MessageBox | None:
    """Say how to talk with whoever works on a run; `None` where nobody would read it."""
    why = None if role.includes(Role.OPERATOR) else f"This needs the role operator; you are {role.value}."
    is_running = run.state == RunStatus.RUNNING
    if workflow == CONVERSATION and run.state in (RunStatus.RUNNING, RunStatus.PENDING, RunStatus.PAUSED):
        has_question = run.state == RunStatus.PAUSED and run.pause_reason != PauseReason.MESSAGE
        hint = "It is read before the agent's next call." if is_running else "@path/to/file takes a file along."
        if has_question:
            hint = "The agent reads it after your decision above."
        return MessageBox("Your message", hint, can_stop=is_running, why=why)
    working = [phase.key for phase in run.phases_in(RunPhaseState.RUNNING)]
    if not is_running or not working:
        return None
    hint = f"The agent of {quoted(working)} reads it before its next call; it changes nothing that is done."
    return MessageBox("Say something to the agent", hint, working if len(working) > 1 else [], why=why)
