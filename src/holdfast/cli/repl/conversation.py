"""One conversation behind the prompt: what is typed becomes a message in the journal, and someone answers it.

The journal is the only way in and out. Messages are written before anything else happens, the answer is made by driving
the run like any other, and everything shown is read back from it. So whatever dies, `--resume` finds the same place.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.repl.view import TalkView
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.engine import OpenEngine
from holdfast.cli.terminal.output import paint, plain
from holdfast.cli.terminal.questions import ApprovalInput, find_question, notify_of_question, send_answer, show_question
from holdfast.engine.conversation.journal import (
    ROLE,
    Conversation,
    conversation_template,
    read_conversation,
    send_message,
)
from holdfast.engine.conversation.mentioned_files import include_files
from holdfast.engine.results import RunResult
from holdfast.engine.run.create import check_seen
from holdfast.enums import RunStatus
from holdfast.errors import ApprovalNotFound, ApprovalStale, HoldfastError, RunBusy
from holdfast.images import Image, check_images
from holdfast.persistence import raw_sql
from holdfast.persona import AgentPersona
from holdfast.runtime.stores import open_journal

LAST_TURNS = 3
_OTHER_LOOK_S = 0.2
_LAST_RECORD_S = 2.0


class Talk:
    """A conversation with a persona on a repository. Without `run_id` it begins with the first message."""

    def __init__(
        self,
        opened: OpenEngine,
        *,
        repo: Path,
        branch: str,
        persona: AgentPersona,
        tell: Callable[[str], None],
        loading: "asyncio.Task[Any]",
        view: type[TalkView] = TalkView,
        can_ask: bool = True,
    ) -> None:
        self.engine, self.db, self.config = opened
        self.repo, self.branch = repo, branch
        self.persona = persona
        self.tell = tell
        self._can_ask = can_ask
        self._loading = loading
        self.run_id: str | None = None
        self.is_unsandboxed = False
        """Whether the person chose that the commands of a conversation begun here run without a sandbox."""
        self._view_class = view
        self.view = view(tell)
        self.question: dict[str, Any] | None = None
        self.notice = ""
        self.last_error: dict[str, str] | None = None
        """Why the last answer could not be made at all."""
        self._journal_persona = ""
        self._answering: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._moved = asyncio.Condition()

    @property
    def is_busy(self) -> bool:
        return self._answering is not None and not self._answering.done()

    # -- a person speaks ----------------------------------------------------------------------------------------------

    async def say(self, text: str, *, attachment: str = "", images: Sequence[Image] = ()) -> None:
        """Send a message. On return it is in the journal, and someone answers it.

        The agent reads `attachment` behind the text and the files it mentions, and sees the images. Raises
        `ImageInvalid`, `ImageUnsupported`.
        """
        mentioned = await asyncio.to_thread(include_files, text, self.repo, self.persona.permissions)
        images = check_images([*images, *mentioned.images])
        check_seen(images, [self.persona], self.config)
        if self.run_id is None:
            await self._begin(text)
        assert self.run_id is not None
        changed = self.persona if self.persona.content_hash != self._journal_persona else None
        content = f"{mentioned.content}\n\n{attachment}" if attachment else mentioned.content
        await send_message(self.db, self.run_id, text, content=content, persona=changed, by=get_user(), images=images)
        # crash: the message stands; whoever resumes the conversation answers it.
        self._journal_persona = self.persona.content_hash
        for line in (*(f"with {name}" for name in mentioned.included), *mentioned.refused):
            self.tell(paint(f"  {line}", "dim"))
        self.answer()

    async def _begin(self, text: str) -> None:
        self.notice = "prepares a worktree"
        try:
            result = await self.engine.run(
                conversation_template(),
                repo_path=self.repo,
                base_branch=self.branch,
                title=" ".join(text.split())[:60],
                persona_overrides={ROLE: self.persona.name},
                started_by=get_user(),
                is_unsandboxed=self.is_unsandboxed,
            )
        finally:
            self.notice = ""
        if result.error is not None:
            raise HoldfastError(result.error.message, hint=result.error.hint)
        self.run_id = str(result.run_id)
        self._journal_persona = self.persona.content_hash
        self.follow()

    def answer(self) -> None:
        """Have what was said answered, unless that is under way."""
        if not self.is_busy and self.question is None:
            self._answering = asyncio.create_task(self._answer_all())

    async def _answer_all(self) -> None:
        self.last_error = None
        try:
            await self._drive_on()
        except HoldfastError as error:
            self.last_error = {"code": error.code, "message": error.message, "hint": error.hint}
        except Exception as error:  # the prompt goes on, and so does the conversation
            problem = f"{type(error).__name__}: {error}"
            self.last_error = {"code": "internal_error", "message": problem, "hint": "What was recorded is safe."}
        if self.last_error is not None:
            text = plain(" ".join(self.last_error[name] for name in ("message", "hint")).strip())
            self.tell(f"  {paint('✕', 'failed')} {self.last_error['code']}: {text}")

    async def _drive_on(self) -> None:
        assert self.run_id is not None
        while True:
            result = await self._drive()
            await self._see_all()
            if result.waiting_for in ("approval", "outcome") and not self._put_question():
                continue  # someone else has answered it
            if self.question is not None or result.waiting_for == "budget" or result.state.is_terminal:
                return
            if not (await read_conversation(self.db, self.run_id)).waiting:
                return

    async def _drive(self) -> RunResult:
        assert self.run_id is not None
        # An import that two threads make at once can give one of them half a module.
        await asyncio.shield(self._loading)
        try:
            return await self.engine.resume(self.run_id)
        except RunBusy:
            self.notice = "another process answers"
            try:
                return await self._wait_for_other()
            finally:
                self.notice = ""

    async def _wait_for_other(self) -> RunResult:
        """Wait for the process that drives the conversation; what it does is shown here all the same."""
        assert self.run_id is not None
        while True:
            await asyncio.sleep(_OTHER_LOOK_S)
            result = await self.engine.result(self.run_id)
            if result.state not in (RunStatus.RUNNING, RunStatus.PENDING):
                return result
            with contextlib.suppress(RunBusy):
                return await self.engine.resume(self.run_id)

    async def interrupt(self) -> None:
        """End the answer under way; the conversation stays, and so does what was done."""
        if self.run_id is not None and self.is_busy:
            self.notice = "interrupting; what is in flight is recorded first"
            try:
                await self.engine.pause(self.run_id, by=get_user())
            finally:
                self.notice = ""

    # -- questions ----------------------------------------------------------------------------------------------------

    def _put_question(self) -> bool:
        assert self.run_id is not None
        self.question = find_question(self.run_id)
        if self.question is None:
            return False
        if self._can_ask:
            notify_of_question(self.question)
            with contextlib.suppress(KeyboardInterrupt):  # in the pager: enough was read
                show_question(self.question)
        return True

    async def decide(self, question: dict[str, Any], answer: ApprovalInput) -> None:
        """Answer a question, and let the conversation go on if it is its own."""
        try:
            await send_answer(self.engine, question, answer)
        except (ApprovalStale, ApprovalNotFound) as error:
            self.tell(f"  {error.message}")
        if self.question is not None and self.question["approval_id"] == question["approval_id"]:
            self.question = None
        if question["run_id"] == self.run_id:
            self.answer()

    # -- what is shown ------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Show what happens in the journal from now on, whoever makes it happen."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        assert self.run_id is not None
        async with open_journal(self.db.store) as journal:
            async for event in journal.follow(self.run_id, self.view.last_seq):
                self.view.apply(event)
                async with self._moved:
                    self._moved.notify_all()

    async def _see_all(self) -> None:
        """Wait until what is committed by now is on the screen."""
        assert self.run_id is not None
        async with open_journal(self.db.store) as journal:
            head = await journal.read_head(self.run_id)
        async with self._moved:
            await self._moved.wait_for(lambda: self.view.last_seq >= head)

    async def take_up(self, run_id: str, *, keeps_persona: bool = False) -> None:
        """Go on with a conversation: show how it stood, and have answered what was not."""
        conversation = await self.join(run_id, last_turns=LAST_TURNS, keeps_persona=keeps_persona)
        result = await self.engine.result(run_id)
        if result.waiting_for in ("approval", "outcome"):
            self._put_question()
        if result.state in (RunStatus.RUNNING, RunStatus.PENDING) or conversation.waiting:
            self.tell(paint("  goes on with the answer that was under way", "dim"))
            self.answer()

    async def join(self, run_id: str, *, last_turns: int = 0, keeps_persona: bool = False) -> Conversation:
        """Make a conversation this one: read how it stands, show its last turns, and follow it from there.

        Who answered there goes on, unless the persona here was named: then it answers from the next message on.
        """
        self.run_id = run_id
        async with open_journal(self.db.store) as journal:
            events = await journal.read(run_id)
        conversation = Conversation.of(events)
        turns = conversation.turns[-last_turns:] if last_turns else []
        last_seq = events[-1].seq if events else 0
        first = min((seq for turn in turns for seq in turn.messages), default=last_seq + 1 if not last_turns else 0)
        if last_turns and len(conversation.turns) > len(turns):
            self.tell(paint(f"  {len(conversation.turns) - len(turns)} earlier turns: /history", "dim"))
        for event in events:
            self.view.is_muted = event.seq < first
            self.view.apply(event)
        self.view.is_muted = False
        known = conversation.persona_at(conversation.messages, find_bound_persona(run_id) or self.persona)
        self._journal_persona = known.content_hash
        if not keeps_persona:
            self.persona = known
        self.follow()
        return conversation

    async def is_quiet(self) -> bool:
        """Return whether no answer is under way; one whose end is on the screen has only its last record to write."""
        if self._answering is not None and not self.view.is_answering:
            await asyncio.wait({self._answering}, timeout=_LAST_RECORD_S)
        return not self.is_busy

    async def wait(self) -> None:
        """Wait until the answer under way has ended, however it did."""
        if self._answering is not None:
            with contextlib.suppress(Exception):
                await asyncio.shield(self._answering)

    def reset(self) -> None:
        """Forget which conversation this is; the next message begins another."""
        self.run_id, self.question, self.view = None, None, self._view_class(self.tell)

    async def leave(self) -> None:
        """Give the conversation up as it is; an answer under way can be gone on with."""
        for task in (self._answering, self._following):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        self._answering = self._following = None


def find_bound_persona(run_id: str) -> AgentPersona | None:
    """Return the persona that answers in a conversation until a message names another."""
    definition = raw_sql.find_bound_persona(run_id, ROLE)
    return AgentPersona.model_validate(definition) if definition is not None else None
