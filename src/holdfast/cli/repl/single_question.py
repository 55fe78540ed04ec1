"""`holdfast -p`, and a question by pipe: a conversation of one message whose answer is what standard output gets.

It is a conversation like any other, so a kill loses nothing of it and `holdfast --resume` goes on with it. Once it is
answered and has changed no file it is over, unless it is to be kept: a hundred questions leave no worktree behind.
"""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.repl.conversation import Talk
from holdfast.cli.repl.start import OpenTalk, TalkOptions, open_talk
from holdfast.cli.repl.view import TalkView
from holdfast.cli.terminal.markdown import can_draw, draw, text_width
from holdfast.cli.terminal.output import EXIT_DONE, EXIT_FAILED, EXIT_WAITING, paint, print_json, print_text, say
from holdfast.engine.conversation.journal import read_conversation
from holdfast.enums import Backend
from holdfast.errors import PersonaIneligible
from holdfast.images import Image
from holdfast.runtime.events import Event


@dataclass(frozen=True)
class SingleQuestion:
    text: str
    piped: str = ""
    """What came on standard input beside the question. Without a text, what waits for an answer is gone on with."""
    stays_open: bool = False
    """Whether the conversation stays open, to be gone on with."""
    images: tuple[Image, ...] = ()

    @property
    def attachment(self) -> str:
        return f"<stdin>\n{self.piped.rstrip()}\n</stdin>" if self.piped.strip() else ""


def answer_once(repo: Path, question: SingleQuestion, options: TalkOptions, *, is_json: bool) -> int:
    """Have one question answered, and return the exit code: 0 answered, 3 a person must do something first, 1 failed.

    Raises `HoldfastError` where nobody can answer, and `KeyboardInterrupt` when the answer was interrupted.
    """
    return asyncio.run(_answer(repo, question, options, is_json=is_json))


class ProgressView(TalkView):
    """What the agent does, for standard error; what it says is kept for standard output."""

    def _on_message(self, event: Event) -> None:
        self.turn_began = event.ts

    def _write(self, key: str, text: str) -> None:
        self._said[key] = self._said.get(key, "") + text


async def _answer(repo: Path, question: SingleQuestion, options: TalkOptions, *, is_json: bool) -> int:
    async with open_talk(repo, options, say, view=ProgressView, can_ask=False) as opened:
        talk = opened.talk
        if talk.persona.backend is Backend.SIMULATED and not options.is_persona_named and options.run_id is None:
            raise PersonaIneligible(
                "Nobody is ready to answer: no key is set and no model server was found.",
                hint='Set a key (holdfast personas list says which), or rehearse: holdfast --simulate -p "…"',
            )
        _greet(opened)
        try:
            if options.run_id is not None:
                await talk.join(options.run_id, keeps_persona=options.is_persona_named)
            if question.text:
                talk.view.answer = ""
                await talk.say(question.text, attachment=question.attachment, images=question.images)
            else:
                talk.answer()
            await talk.wait()
            ends = options.run_id is None and not question.stays_open
            return await _finish(talk, is_json=is_json, ends=ends)
        except asyncio.CancelledError:
            await asyncio.shield(_interrupt(talk))
            raise
        finally:
            await talk.leave()


async def _interrupt(talk: Talk) -> None:
    await talk.interrupt()
    await talk.wait()
    if talk.run_id is not None:
        say(f"Interrupted. Go on: holdfast --resume {talk.run_id[:8]}")


def _greet(opened: OpenTalk) -> None:
    persona = opened.talk.persona
    say(paint(f"{persona.name} · {persona.model or 'own model'} on {opened.talk.repo.name}", "dim", sys.stderr))


async def _finish(talk: Talk, *, is_json: bool, ends: bool) -> int:
    assert talk.run_id is not None
    result = await talk.engine.result(talk.run_id)
    conversation = await read_conversation(talk.db, talk.run_id)
    is_answered = result.waiting_for == "message" and not conversation.waiting
    error: Mapping[str, Any] | None = result.error.to_dict() if result.error else None
    if is_answered and conversation.turns and conversation.turns[-1].error:
        error = conversation.turns[-1].error
    error = error or talk.last_error
    if ends and is_answered and error is None:
        # crash: before it the conversation waits and can be gone on with, as one that is kept.
        result = await talk.engine.end_conversation(talk.run_id)
    if is_json:
        facts = {"run_id": talk.run_id, "state": result.state.value, "waiting_for": result.waiting_for}
        money = {"cost_usd": result.cost_usd, "is_simulated": talk.persona.backend is Backend.SIMULATED}
        print_json(facts | {"answer": talk.view.answer, **money, "error": error})
    elif is_answered and error is None:
        _print_answer(talk.view.answer)
    if error is None and is_answered:
        _tell_end(talk.run_id[:8], is_over=result.state.is_terminal, has_changes=ends)
        return EXIT_DONE
    if error is not None:
        return EXIT_FAILED
    _tell_waiting(talk, result.waiting_for)
    return EXIT_WAITING


def _tell_end(short: str, *, is_over: bool, has_changes: bool) -> None:
    """Say what became of the conversation: it is over, or is kept because of the files that it changed."""
    if not is_over and has_changes:
        say(f"It changed files, so the conversation is kept. See them: holdfast runs diff {short}")
        say(f"Take them: holdfast merge {short}   Give it up: holdfast abort {short}")
    if not is_over:
        say(paint(f"Go on: holdfast --resume {short}", "dim", sys.stderr))


def _tell_waiting(talk: Talk, reason: str | None) -> None:
    short = (talk.run_id or "")[:8]
    if talk.question is not None:
        approval = talk.question["approval_id"][:8]
        say(f"It waits for your approval. See it: holdfast approvals; answer: holdfast approve {approval}")
        say(f"Then go on: holdfast --resume {short} -p")
    elif reason == "budget":
        say(f"Its budget is used up. More: holdfast budget {short} --add 1; then: holdfast --resume {short} -p")
    else:
        say(f"It is not answered yet ({reason or 'running'}). Go on: holdfast --resume {short}")


def _print_answer(answer: str) -> None:
    if not answer.strip():
        say("The agent has said nothing.")
        return
    with contextlib.suppress(BrokenPipeError):
        print_text("\n".join(draw(answer, text_width(0))) if can_draw() else _to_output(answer))


def _to_output(answer: str) -> str:
    from holdfast.cli.terminal.output import plain

    return plain(answer).rstrip() if sys.stdout.isatty() else answer.rstrip()
