"""`holdfast` alone in a terminal: a durable conversation with a persona on the repository one stands in."""

import asyncio
import contextlib
import shutil
import time
from dataclasses import replace
from pathlib import Path

from holdfast.agents.simulated.conversation import HOW_TO_TRY
from holdfast.cli.commands.run import describe_uncommitted
from holdfast.cli.repl.commands import Commands, Leave
from holdfast.cli.repl.conversation import Talk
from holdfast.cli.repl.conversation_list import choose_conversation, find_conversation
from holdfast.cli.repl.prompt import INTERRUPT, TalkCompleter, TalkPrompt
from holdfast.cli.repl.shell import ShellCommands
from holdfast.cli.repl.start import OpenTalk, TalkOptions, open_talk
from holdfast.cli.terminal.output import folded, paint, plain, print_text
from holdfast.cli.terminal.questions import in_rows, list_replies, parse_reply
from holdfast.enums import Backend
from holdfast.errors import HoldfastError, WorkspaceError
from holdfast.persistence.raw_sql import find_run
from holdfast.workspace.instruction_files import read_folder_instructions
from holdfast.workspace.user_checkout import list_files

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TICK_S = 0.125
_FILES_AGE_S = 5.0
_LIVE_ROWS = 10


def start_repl(repo: Path, options: TalkOptions, *, resume: str | None) -> int:
    """Talk until the person leaves. `resume` is a run's id, or the empty text for one of the old conversations."""
    run_id = None
    if resume is not None:
        run_id = find_conversation(resume, repo) if resume else choose_conversation(repo, _tell)
        if run_id is None:
            return 0
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_talk(repo, replace(options, run_id=run_id)))
    return 0


async def _talk(repo: Path, options: TalkOptions) -> None:
    async with open_talk(repo, options, _tell) as opened:
        repl = _Repl(opened)
        with repl.prompt.held():
            _greet(opened.talk, is_chosen=options != TalkOptions())
            if options.run_id is not None:
                await opened.talk.take_up(options.run_id, keeps_persona=options.is_persona_named)
            await repl.run()


class _Repl:
    """The loop: read, act, and keep what is under way in sight."""

    def __init__(self, opened: OpenTalk) -> None:
        talk = opened.talk
        self._talk = talk
        self._loading = opened.loading
        self._shell = ShellCommands(_tell, Path.cwd())
        self.prompt: TalkPrompt
        self._commands = Commands(
            talk, opened.catalog, start_anew=self._start_anew, lent=lambda: self.prompt.lent(), shell=self._shell
        )
        self._files: tuple[float, list[str]] = (0.0, [])
        self._sending: asyncio.Task[None] | None = None
        table = self._commands.table
        completer = TalkCompleter(
            {name: command.summary for name, command in table.items()},
            {name: command.complete for name, command in table.items()},
            self._list_files,
        )
        self.prompt = TalkPrompt(
            completer=completer,
            above=self._above,
            below=self._below,
            is_busy=lambda: talk.is_busy or self._shell.is_running,
        )

    async def run(self) -> None:
        ticking = asyncio.create_task(self._tick())
        try:
            with contextlib.suppress(EOFError, Leave):
                while True:
                    await self._act(await self.prompt.read())
        finally:
            ticking.cancel()
            await self._shell.stop()
            await self._wait_until_sent()
            was_busy, run_id = self._talk.is_busy, self._talk.run_id
            await self._talk.leave()
            if run_id is not None:
                stopped = "The answer was not finished. " if was_busy else ""
                _tell(paint(f"{stopped}Go on: holdfast --resume {run_id[:8]}", "dim"))

    async def _act(self, line: str) -> None:
        try:
            if line == INTERRUPT:
                await self._interrupt()
            elif line.startswith("!"):
                self._shell.start(line[1:].strip(), worktree=self._find_worktree())
            elif self._talk.question is not None and not line.startswith("/"):
                await self._answer_question(line)
            elif line.startswith("/"):
                _tell(f"\n{paint(f'› {plain(line)}', 'bold')}")
                await self._wait_until_sent()
                await self._commands.do(line)
            elif line.strip():
                # Not waited for: the first message makes a worktree, and the prompt says so meanwhile.
                self._sending = asyncio.create_task(self._send(line, after=self._sending))
        except HoldfastError as error:
            _tell_error(error)

    async def _send(self, text: str, after: "asyncio.Task[None] | None") -> None:
        try:
            if after is not None:
                await after
            await self._talk.say(text, attachment=self._shell.take())
        except HoldfastError as error:
            _tell_error(error)
        except Exception as error:  # a full disk, say; the person must know that it may not have been recorded
            _tell(
                f"  {paint('✕', 'failed')} The message could not be sent: {type(error).__name__}: {plain(str(error))}"
            )

    async def _wait_until_sent(self) -> None:
        if self._sending is not None:
            await self._sending

    def _find_worktree(self) -> Path | None:
        """Return where the agent of this conversation works, for a command that looks there."""
        if self._talk.run_id is None:
            return None
        run = find_run(self._talk.run_id)
        return Path(run["worktree_root"]) if run and run["worktree_root"] else None

    async def _interrupt(self) -> None:
        # Not waited for: the prompt stays, and says that it is under way.
        if self._shell.is_running:
            self._interrupting = asyncio.create_task(self._shell.stop())
        elif self._talk.is_busy:
            self._interrupting = asyncio.create_task(self._talk.interrupt())
        elif self._talk.question is not None:
            self._put_off()
        else:
            _tell(paint("  Ctrl-D leaves; nothing is lost.", "dim"))

    async def _answer_question(self, line: str) -> None:
        question = self._talk.question
        assert question is not None
        try:
            answer = parse_reply(question, line)
        except ValueError as error:
            _tell(f"  {error}")
            return
        if answer is None:
            self._put_off()
        else:
            await self._talk.decide(question, answer)

    def _put_off(self) -> None:
        question, self._talk.question = self._talk.question, None
        if question is not None:
            _tell(paint(f"  It stays open: /approve {question['approval_id'][:8]}", "dim"))

    async def _start_anew(self) -> None:
        await self._talk.leave()
        self._talk.reset()
        _tell(paint("  A new conversation; it begins with what you say next.", "dim"))

    # -- what is under way --------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        was_live = False
        while True:
            await asyncio.sleep(_TICK_S)
            is_live = self._talk.is_busy or bool(self._talk.notice) or self._shell.is_running
            if is_live or was_live:  # once more at the end, which may print nothing that would draw the prompt anew
                self.prompt.refresh()
            was_live = is_live

    def _above(self) -> list[tuple[str, str]]:
        talk, lines = self._talk, []
        room = max(min(shutil.get_terminal_size().lines // 3, _LIVE_ROWS), 1)
        lines += [("live", f"  {row}") for row in talk.view.text.last_rows(room)]
        if talk.is_busy or talk.notice:
            frame = _FRAMES[int(time.time() / _TICK_S) % len(_FRAMES)]
            doing = talk.notice or talk.view.activity or ("loads" if not self._loading.done() else "thinks")
            began = talk.view.turn_began
            took = f" · {max(time.time() - began, 0):.0f} s" if began and not talk.notice else ""
            hint = " · Ctrl-C interrupts" if talk.is_busy and not talk.notice else ""
            lines.append(("working", f"{frame} {doing}{took}{hint}"))
        if self._shell.is_running:
            lines.append(("working", f"! {plain(self._shell.command)[:60]} · Ctrl-C ends it"))
        elif self._shell.waiting:
            many = f"{self._shell.waiting} outputs" if self._shell.waiting > 1 else "the output"
            lines.append(("live", f"  with your next message: {many} of ! · /drop leaves it out"))
        if talk.question is not None:
            lines.append(("question", in_rows(list_replies(talk.question))))
        return lines

    def _below(self) -> str:
        talk = self._talk
        played = " simulated" if talk.view.is_simulated else ""
        cost = f" · ${talk.view.cost_micros / 1_000_000:.4f}{played}" if talk.view.cost_micros else ""
        run = f" · {talk.run_id[:8]}" if talk.run_id else ""
        return f" {talk.persona.name} · {talk.persona.model or 'own model'}{cost} · {talk.branch}{run} · /help"

    def _list_files(self) -> list[str]:
        read_at, files = self._files
        if time.monotonic() - read_at > _FILES_AGE_S:
            files = list_files(self._talk.repo)
            self._files = (time.monotonic(), files)
        return files


def _greet(talk: Talk, *, is_chosen: bool) -> None:
    persona = talk.persona
    _tell(f"{paint('holdfast', 'bold')} · {persona.name} on {talk.repo.name} ({talk.branch})")
    if persona.backend is Backend.SIMULATED:
        _tell(paint(folded("This is a rehearsal: a simulated model answers, and costs nothing."), "paused"))
        if not is_chosen:
            _tell(paint(folded("Nobody else is ready: export OPENROUTER_API_KEY=…, or see /personas."), "paused"))
        _tell(paint(folded(HOW_TO_TRY), "dim"))
    if files := _name_instructions(talk):
        _tell(paint(folded(f"Project instructions: {files}"), "dim"))
    if named := describe_uncommitted(talk.repo):
        note = f"Not committed, so not in the agent's worktree: {named}. Mention a file with @."
        _tell(paint(folded(note), "dim"))
    _tell(paint("  /help shows what can be said; Ctrl-D leaves.", "dim"))


def _name_instructions(talk: Talk) -> str:
    """Name the instruction files that the agent gets, of the commit it starts from."""
    try:
        return ", ".join(plain(name) for name in read_folder_instructions(talk.repo).names)
    except WorkspaceError:
        return ""  # the first message says what is wrong with it


def _tell_error(error: HoldfastError) -> None:
    _tell(f"  {paint('✕', 'failed')} {error.message} {error.hint}".rstrip())


def _tell(text: str) -> None:
    print_text(text)
