"""The slash commands of a conversation: everything the command line does, without leaving it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from holdfast.catalog import Catalog
from holdfast.cli.commands.approvals import approvals
from holdfast.cli.commands.personas.list import describe_readiness, read_personas
from holdfast.cli.commands.runs.diff import read_diff
from holdfast.cli.commands.runs.list import list_runs
from holdfast.cli.lazy import did_you_mean
from holdfast.cli.repl.conversation import Talk
from holdfast.cli.repl.conversation_list import find_conversation, list_conversations, to_table
from holdfast.cli.repl.merge import merge
from holdfast.cli.repl.shell import ShellCommands
from holdfast.cli.repl.view import TalkView
from holdfast.cli.repl.workflows import start_workflow
from holdfast.cli.terminal.arguments import find_approval, get_user
from holdfast.cli.terminal.output import Cell, describe_cost, folded, paint, paint_diff, plain, table
from holdfast.cli.terminal.questions import ApprovalInput
from holdfast.consent import open_consents
from holdfast.engine.conversation.persona_choice import Entries, get_persona, with_model
from holdfast.errors import ConfigInvalid
from holdfast.persistence.raw_sql import read_approvals, sum_costs, sum_unanswered

_MOST_RUNS = 10
_EXPANDED_LINES = 60
_HINTS = (
    "!command runs in your folder ($AGENT_WORKTREE is the agent's); its output goes along with your next message.",
    "@file puts a file into the message · Esc Enter, or \\ at the end, begins a new line · Ctrl-C interrupts",
    "What you type while the agent works reaches it before its next step.",
)


class Leave(Exception):
    """The person has had enough for now."""


@dataclass(frozen=True)
class Command:
    usage: str
    summary: str
    act: Callable[[str], Awaitable[None]]
    complete: Callable[[], Iterable[str]] = tuple


class Commands:
    """Does what a line that begins with a slash says."""

    def __init__(
        self,
        talk: Talk,
        catalog: Catalog,
        *,
        start_anew: Callable[[], Awaitable[None]],
        lent: Callable[[], AbstractContextManager[None]],
        shell: ShellCommands,
    ) -> None:
        self._talk = talk
        self._catalog = catalog
        self._start_anew = start_anew
        self._lent = lent
        self._shell = shell
        self.personas: Entries = catalog.list_personas()
        self.table = {
            "/help": Command("", "what can be said here", self._help),
            "/run": Command("WORKFLOW", "start a workflow from what was discussed", self._run, self._workflows),
            "/diff": Command("", "what was changed in this conversation", self._diff),
            "/merge": Command("[MESSAGE]", "bring it to your branch; shows what, and asks", self._merge),
            "/expand": Command("[N]", "the last tool call in full, or the N-th last; Ctrl-O", self._expand),
            "/drop": Command("", "leave the output of ! out of your next message", self._drop),
            "/history": Command("", "this conversation from its beginning", self._history),
            "/runs": Command("", "the last runs", self._runs),
            "/approvals": Command("", "what waits for you", self._approvals),
            "/approve": Command("[ID]", "say yes", self._approve, self._open_approvals),
            "/reject": Command("[ID] [WHY]", "say no", self._reject, self._open_approvals),
            "/personas": Command("", "who could answer", self._personas),
            "/persona": Command("NAME", "let someone else answer from here on", self._persona, self._names),
            "/model": Command("[NAME]", "let another model answer from here on", self._model, self._models),
            "/budget": Command("[add USD]", "what may be spent; more of it", self._budget),
            "/cost": Command("", "what each turn has cost", self._cost),
            "/resume": Command(
                "[N|ID]", "go on with another conversation; alone it lists them", self._resume, self._past
            ),
            "/new": Command("", "begin another conversation", self._new),
            "/quit": Command("", "leave; Ctrl-D", self._quit),
        }

    async def do(self, line: str) -> None:
        """Do what a line says. Raises `Leave`, and `HoldfastError` for what cannot be done."""
        name, _, rest = line.strip().partition(" ")
        command = self.table.get(name)
        if command is None:
            hint = did_you_mean(name, list(self.table)).strip() or "See what there is: /help"
            raise ConfigInvalid(f"There is no command {name}.", hint=hint, key=name)
        await command.act(rest.strip())

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _help(self, _rest: str) -> None:
        rows: list[list[str | Cell]] = [
            [Cell(f"  {name} {command.usage}".rstrip(), "bold"), command.summary]
            for name, command in self.table.items()
        ]
        self._talk.tell(table(rows))
        for hint in _HINTS:
            self._talk.tell(paint(folded(hint), "dim"))

    async def _runs(self, _rest: str) -> None:
        await asyncio.to_thread(list_runs, None, None, None, None, _MOST_RUNS, False)

    async def _approvals(self, _rest: str) -> None:
        await asyncio.to_thread(approvals, False)

    async def _personas(self, _rest: str) -> None:
        current = self._talk.persona.name
        rows: list[list[str | Cell]] = [
            [
                Cell(f"{'›' if entry.definition.name == current else ' '} {entry.definition.name}", "bold"),
                describe_readiness(entry.definition, missing),
                entry.definition.backend.value,
                entry.definition.model or "",
            ]
            for entry, missing in await asyncio.to_thread(read_personas, self._talk.repo)
        ]
        self._talk.tell(table(rows))

    async def _expand(self, rest: str) -> None:
        calls = self._talk.view.calls
        number = int(rest) if rest.isdigit() else 1
        if not 1 <= number <= len(calls):
            self._talk.tell("  There is no such tool call.")
            return
        call = calls[-number]
        self._talk.tell(paint(f"  {call.title}", "bold"))
        args = call.args if isinstance(call.args, dict) else {}
        lines = [f"{name}: {value}" for name, value in args.items()] + call.result.splitlines()
        for line in plain("\n".join(lines)).splitlines()[:_EXPANDED_LINES]:
            self._talk.tell(f"    {line}")
        if len(lines) > _EXPANDED_LINES:
            self._talk.tell(paint(f"    … {len(lines) - _EXPANDED_LINES} more lines", "dim"))

    async def _history(self, _rest: str) -> None:
        if self._talk.run_id is None:
            return
        again = TalkView(self._talk.tell)
        for event in await asyncio.to_thread(self._talk.db.store.list_events, self._talk.run_id):
            again.apply(event)

    async def _diff(self, _rest: str) -> None:
        text = await asyncio.to_thread(read_diff, self._talk.run_id) if self._talk.run_id else ""
        self._talk.tell(paint_diff(plain(text)).rstrip() if text else "  No file was changed.")

    async def _cost(self, _rest: str) -> None:
        rows = sum_costs(self._talk.run_id or "", "attempt", "is_simulated")
        for row in rows:
            calls = f"{row['calls']} model call{'s' if row['calls'] != 1 else ''}"
            played = " simulated" if row["is_simulated"] else ""
            self._talk.tell(f"  turn {row['attempt']}: {calls}, {_usd(row['total'])}{played}")
        real, simulated = (
            sum(int(row["total"] or 0) for row in rows if bool(row["is_simulated"]) is kind) for kind in (False, True)
        )
        perhaps_paid = sum(sum_unanswered([self._talk.run_id or ""]).values()) / 1_000_000
        spent = describe_cost(real / 1_000_000, simulated / 1_000_000, perhaps_paid, perhaps_paid)
        self._talk.tell(f"  in all {spent}")

    async def _drop(self, _rest: str) -> None:
        self._talk.tell("  It is left out." if self._shell.take() else "  There is no output that would go along.")

    # -- changing -----------------------------------------------------------------------------------------------------

    async def _persona(self, rest: str) -> None:
        if not rest:
            await self._personas(rest)
            return
        self._talk.persona = get_persona(self.personas, self._talk.repo, open_consents(self._talk.config), rest)
        self._talk.tell(f"  {rest} answers from your next message on.")

    async def _model(self, rest: str) -> None:
        if not rest:
            self._talk.tell(
                f"  {self._talk.persona.model or 'no model'}; others: {', '.join(self._models()) or 'none'}"
            )
            return
        self._talk.persona = with_model(self._talk.persona, rest)
        self._talk.tell(f"  {rest} answers from your next message on.")

    async def _budget(self, rest: str) -> None:
        from holdfast.cli.commands.budget import budget

        word, _, amount = rest.partition(" ")
        if not rest or self._talk.run_id is None:
            await asyncio.to_thread(budget, self._talk.run_id, None, False)
            return
        try:
            added = float(amount if word == "add" else "")
        except ValueError:
            raise ConfigInvalid(
                f"{rest!r} is no amount.", hint="Say for example: /budget add 2.50", key="add"
            ) from None
        await self._talk.engine.top_up(self._talk.run_id, added, by=get_user())
        self._talk.tell(f"  ${added:.2f} more may be spent.")
        if self._talk.view.reason == "budget":
            self._talk.answer()

    async def _approve(self, rest: str) -> None:
        prefix, _, comment = rest.partition(" ")
        await self._decide(prefix, "approve", comment)

    async def _reject(self, rest: str) -> None:
        prefix, _, comment = rest.partition(" ")
        await self._decide(prefix, "reject", comment)

    async def _decide(self, prefix: str, action: str, comment: str) -> None:
        waiting = read_approvals(self._talk.run_id, state="pending") if self._talk.run_id and not prefix else []
        if prefix:
            approval_id, run_id = find_approval(prefix)
            waiting = [row for row in read_approvals(run_id) if row["approval_id"] == approval_id]
        if not waiting:
            self._talk.tell("  Nothing in this conversation waits for you; /approvals shows all.")
            return
        await self._talk.decide(waiting[0], ApprovalInput(action, comment))
        if waiting[0]["run_id"] != self._talk.run_id:
            self._talk.tell(f"  Recorded. Go on with that run: holdfast resume {waiting[0]['run_id'][:8]}")

    async def _merge(self, rest: str) -> None:
        await self._check_quiet()
        await merge(self._talk, rest, lent=self._lent)

    async def _run(self, rest: str) -> None:
        await self._check_quiet()
        await start_workflow(self._talk, self._catalog, rest, lent=self._lent)

    async def _new(self, _rest: str) -> None:
        await self._check_quiet()
        await self._start_anew()

    async def _resume(self, rest: str) -> None:
        if not rest:
            known = await asyncio.to_thread(list_conversations, self._talk.repo)
            self._talk.tell(to_table(known, self._talk.run_id) or "  There is none yet.")
            if known:
                self._talk.tell(paint("  Go on with one: /resume N", "dim"))
            return
        await self._check_quiet()
        run_id = await asyncio.to_thread(find_conversation, rest, self._talk.repo)
        if run_id == self._talk.run_id:
            self._talk.tell("  This is that conversation.")
            return
        await self._talk.leave()
        self._talk.reset()
        await self._talk.take_up(run_id)

    async def _quit(self, _rest: str) -> None:
        raise Leave

    async def _check_quiet(self) -> None:
        if not await self._talk.is_quiet():
            raise ConfigInvalid("An answer is under way.", hint="Wait for it, or interrupt it with Ctrl-C.", key="")

    # -- completion ---------------------------------------------------------------------------------------------------

    def _workflows(self) -> list[str]:
        return [entry.definition.name for entry in self._catalog.list_workflows()]

    def _names(self) -> list[str]:
        return [entry.definition.name for entry in self.personas]

    def _models(self) -> list[str]:
        from holdfast.catalog.model_table import load_model_table

        known = load_model_table(self._talk.config.config_dir).models
        return sorted(name for name, card in known.items() if card.backend is self._talk.persona.backend)

    def _past(self) -> list[str]:
        return [item.run_id[:8] for item in list_conversations(self._talk.repo)]

    def _open_approvals(self) -> list[str]:
        return [row["approval_id"][:8] for row in read_approvals(state="pending")]


def _usd(micros: Any) -> str:
    return f"${int(micros or 0) / 1_000_000:.4f}"
