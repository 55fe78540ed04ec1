"""Driving a conversation: turn by turn until nothing that was said waits for an answer.

A turn ends with an answer, with an error, or because the person interrupted it. Whichever it is, its files are kept and
the conversation stays; only a process that dies leaves a turn open, and the next one goes on with it.
"""

from dataclasses import replace
from typing import Any

from holdfast.agents.redaction import scrub_prompt
from holdfast.engine.conversation.journal import PHASE, ROLE, Conversation, Message, TurnRecord
from holdfast.engine.phase.agent_turn import AgentTurn, invoke_agent, last_text
from holdfast.engine.phase.attempt import AGENT_TURN, PIN, SAVE_FILES
from holdfast.engine.phase.commands import save_files, stop_commands
from holdfast.engine.run.driver import RunDriver
from holdfast.engine.run.stop import MessagePending, Paused, Stop, finish
from holdfast.engine.scope import RunScope, error_facts
from holdfast.enums import RunStatus
from holdfast.persistence.statements import complete_phase, start_phase
from holdfast.persona import AgentPersona
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.step import SameCommit, Step, StepKinds, Suspended
from holdfast.workspace import write_tree
from holdfast.workspace.instruction_files import Instructions, read_workspace_instructions

_DRAIN_S = 1.0  # a person who interrupts waits for this
_INTERRUPTED = {"type": "holdfast.errors.StepFailed", "code": "interrupted", "message": "the person interrupted it"}
_RULES = """
You are in a conversation with a person about the repository in your working folder. Paths begin at its root. Look at
files before you speak about them, change them only if you are asked to, and do not commit: the person takes your
changes over when they like them. Answer in plain words, short unless more is asked for.
"""


class ConversationDriver(RunDriver):
    """One process's part of a conversation: from claim to the moment when only a person can say something."""

    def __init__(self, scope: RunScope) -> None:
        super().__init__(scope)
        self._turn: ConversationTurn | None = None

    async def _go(self) -> Stop:
        if (unready := await self._prepare()) is not None:
            return unready
        while (turn := await self._find_turn()) is not None:
            self._turn = turn
            try:
                await turn.run()
            except Suspended as suspended:
                return Paused([suspended])
            self._turn = None
        return Paused([MessagePending("a message")])

    async def _find_turn(self) -> "ConversationTurn | None":
        """Return the turn under way, or a new one for what was said since."""
        events = await self._scope.read_events()
        conversation = Conversation.of(events)
        last = conversation.turns[-1] if conversation.turns else None
        if last is not None and not last.is_over:
            return ConversationTurn(self._scope, events, conversation, last)
        if not conversation.waiting:
            return None
        number = last.number + 1 if last else 1
        turn = TurnRecord(number, [message.seq for message in conversation.waiting], conversation.last_seq)
        return ConversationTurn(self._scope, events, conversation, turn)

    async def _pause(self) -> RunStatus:
        """Interrupt the answer: a paused conversation goes on with the next message, not with that one."""
        if self._turn is not None:
            await stop_commands(self._scope)
            await self._turn.interrupt()
        return await finish(self._scope, Paused([MessagePending("a message")]))


class ConversationTurn:
    def __init__(self, scope: RunScope, events: list[Event], conversation: Conversation, turn: TurnRecord) -> None:
        persona = conversation.persona_at(turn.messages, scope.personas[ROLE])
        prompt = f"{persona.system_prompt.rstrip()}\n{_RULES}"
        self._persona = persona.model_copy(update={"system_prompt": prompt})
        self._scope = scope
        self._events = events
        self._conversation = conversation
        self._turn = turn
        self._phase = scope.template.phase(PHASE)
        self._lane_id = f"{PHASE}/{turn.number}"
        self._is_answered = False

    async def run(self) -> None:
        """Bring the turn to its end. Raises `Suspended` while a person must answer something first."""
        pinned = await self._pin()
        error = await self._answer(pinned)
        self._is_answered = True
        await self._close(error)

    async def interrupt(self) -> None:
        """End the turn where it stands; what it has done so far is part of the conversation."""
        await self._pin()
        error = None
        if not self._is_answered:
            error = _INTERRUPTED
            key = f"{self._lane_id}/turn1"
            await self._scope.log.append(
                self._scope.log.event(EventKind.AGENT_ERROR, self._lane_id, key=key, phase=PHASE, error=error)
            )
        # crash: the turn has failed by its record, and whoever is next closes it in the same way.
        await self._close(error)

    # -- the parts, in order ------------------------------------------------------------------------------------------

    async def _pin(self) -> dict[str, Any]:
        """Fix what this turn answers, with which history and by whom."""
        scope = self._scope

        def pin() -> dict[str, Any]:
            instructions = read_workspace_instructions(scope.place).with_skills(self._persona.skills)
            return {
                "messages": self._turn.messages,
                "until": self._turn.until,
                "persona": _with_instructions(self._persona, instructions).model_dump(by_alias=True),
                "instruction_files": instructions.names,
                "skills": [skill.name for skill in instructions.skills],
                "tree": write_tree(scope.place).tree_id,
            }

        row = start_phase(scope.run_id, PHASE, attempt=self._turn.number)
        step = self._step("start", PIN, with_result=lambda _result: SameCommit(rows=[row]))
        pinned: dict[str, Any] = await scope.log.step(step, lambda: scope.on_disk(pin))
        return pinned

    async def _answer(self, pinned: dict[str, Any]) -> dict[str, Any] | None:
        """Let the agent answer; return what kept it from that, if something did."""
        # The persona as it was pinned, whatever this version would make of it.
        scope = replace(self._scope, personas={ROLE: AgentPersona.model_validate(pinned["persona"])})

        async def invoke() -> dict[str, Any]:
            from holdfast.agents.calls.inbox import InboxMiddleware
            from holdfast.engine.conversation.messages import TURN, to_messages

            turn = AgentTurn(
                self._phase,
                self._turn.number,
                TURN,
                to_messages(self._events, self._conversation, self._turn),
                more=lambda journal: [InboxMiddleware(scope.log, journal, self._read_waiting)],
                drain_s=_DRAIN_S,
            )
            try:
                return {"text": last_text(await invoke_agent(scope, turn))}
            except Suspended as suspended:
                if suspended.error is None:
                    raise
                raise suspended.error from suspended  # the person is here: they read it and say it again

        try:
            await scope.log.step(self._step("turn1", AGENT_TURN, has_intent=True), invoke)
        except Exception as error:
            record = scope.log.records.by_key.get(("step", f"{self._lane_id}/turn1"))
            if record is not None and record.error.get("code") == "interrupted":
                return _INTERRUPTED
            return error_facts(error)
        return None

    async def _read_waiting(self) -> list[Message]:
        """Return what was said since this turn began, in order, with what an earlier process brought to the agent."""
        for event in await self._scope.read_events(self._conversation.last_seq):
            if event.kind == EventKind.MESSAGE_RECEIVED:
                self._conversation.add(event)
            self._conversation.last_seq = event.seq
        return [message for seq, message in self._conversation.messages.items() if seq > self._turn.until]

    async def _close(self, error: dict[str, Any] | None) -> None:
        scope = self._scope
        snapshot = await save_files(scope, self._phase, self._turn.number, self._step("snapshot", SAVE_FILES))
        facts: dict[str, Any] = {"phase": PHASE, "attempt": self._turn.number, "tree": snapshot["tree"]}
        if error is not None:
            facts["error"] = error
        event = scope.log.event(EventKind.PHASE_COMPLETED, self._lane_id, **facts, snapshot=snapshot["ref"])
        row = complete_phase(scope.run_id, PHASE, tree=snapshot["tree"], snapshot=snapshot["ref"])
        await scope.log.append(event, rows=[row])

    def _step(self, name: str, kinds: StepKinds, **options: Any) -> Step:
        details = {"phase": PHASE, "attempt_no": self._turn.number}
        return Step(f"{self._lane_id}/{name}", self._lane_id, kinds=kinds, details=details, **options)


def _with_instructions(persona: AgentPersona, instructions: Instructions) -> AgentPersona:
    """Return the persona as it answers here: it follows what the repository says to agents."""
    if not (text := scrub_prompt(instructions.render())):
        return persona
    return persona.model_copy(update={"system_prompt": f"{persona.system_prompt}\n# Project instructions\n\n{text}\n"})
