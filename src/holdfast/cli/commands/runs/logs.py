"""The command runs logs: what the commands, checks and coding agents of a run printed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON, RUN_ID, find_run_id
from holdfast.cli.terminal.output import paint, plain, print_text, say, to_json_text
from holdfast.cli.terminal.store import open_configured_store, read_events, undriven_notice
from holdfast.persistence.raw_sql import find_driven, read_phase_keys
from holdfast.presentation.command_log import CommandCall, CommandLog
from holdfast.presentation.format import duration

_POLL_S = 0.5
_MAX_READ_BYTES = 256_000


def list_logs(
    run_id: RUN_ID,
    phase: Annotated[str | None, typer.Option("--phase", help="Only commands of this phase, or of setup.")] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only this command, such as check1 or spec/1/check1.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new output until the run is over.")] = False,
    as_json: JSON = False,
) -> None:
    """Print the output of a run's commands, checks and coding agents, with --json as one object a line.

    Standard output and standard error of a command are one stream, in the order they came.

    Example: holdfast runs logs 3f2a --phase implement --follow
    """
    full_id = find_run_id(run_id)
    _check_phase(full_id, phase)
    matches = _to_filter(phase, step)
    if follow:
        import asyncio

        asyncio.run(_follow(full_id, matches, is_json=as_json))
        return
    calls = [call for call in _read_calls(full_id) if matches(call)]
    is_driven = any(call.ended_at is None for call in calls) and bool(find_driven([full_id]))
    for number, call in enumerate(calls):
        if number and not as_json:
            print_text()
        if call.ended_at is None:
            call.output = read_spool(full_id, call.key)[0] or call.output
        _show(call, is_json=as_json, is_driven=is_driven)
    if not calls and not as_json:
        say("No command was run." if phase is None and step is None else "No command matches.")


def _check_phase(run_id: str, phase: str | None) -> None:
    known = ["setup", *read_phase_keys(run_id)]
    if phase is not None and phase not in known:
        hint = did_you_mean(phase, known) or f" There are {', '.join(known)}."
        raise typer.BadParameter(f"The run has no phase {phase!r}.{hint}", param_hint="--phase")


def _to_filter(phase: str | None, step: str | None) -> Callable[[CommandCall], bool]:
    def matches(call: CommandCall) -> bool:
        return phase in (None, call.phase) and (step is None or call.key == step or call.key.endswith(f"/{step}"))

    return matches


def _read_calls(run_id: str) -> list[CommandCall]:
    log = CommandLog()
    for event in read_events(run_id):
        log.add(event)
    return list(log.calls.values())


def read_spool(run_id: str, key: str, after: int = 0) -> tuple[str, int]:
    """Return what a command has printed after so many bytes, as far as the spool has it, and where that ends."""
    from holdfast.agents.redaction import SECRETS
    from holdfast.config import load_config
    from holdfast.runtime.step import idempotency_key
    from holdfast.workspace import spool_folder

    path: Path = spool_folder(load_config().data_dir / "spool", idempotency_key(run_id, key)) / "out"
    try:
        with path.open("rb") as file:
            file.seek(after)
            piece = file.read(_MAX_READ_BYTES)
    except OSError:
        return "", after
    return SECRETS.scrub_text(piece.decode(errors="replace")), after + len(piece)


def _show(call: CommandCall, *, is_json: bool, is_driven: bool) -> None:
    if is_json:
        print_text(to_json_text(_to_json(call, is_driven=is_driven)))
        return
    print_text(f"{_heading(call)} {paint(f'({_describe_end(call, is_driven=is_driven)})', _find_tone(call))}")
    _print_output(call.output)
    _print_network(call)


def _print_network(call: CommandCall) -> None:
    for line in call.network_lines:
        print_text(paint(f"  network: {plain(line)}", "dim"))


def _heading(call: CommandCall) -> str:
    place = f"{call.phase}/{call.attempt}" if call.phase != "setup" else call.phase
    return f"{paint(place, 'dim')} {paint(f'$ {plain(call.command)}', 'bold')}"


def _print_output(text: str) -> None:
    for line in plain(text.replace("\r\n", "\n")).splitlines():
        print_text(f"  {line}")


def _describe_end(call: CommandCall, *, is_driven: bool) -> str:
    if call.ended_at is None:
        return call.outcome or ("still running" if is_driven else "its end is not recorded")
    how = f"exit code {call.exit_code}" if call.exit_code is not None else call.outcome or "ended"
    return f"{plain(' '.join(how.split()))}, {duration(call.duration_s)}"


def _find_tone(call: CommandCall) -> str:
    if call.ended_at is None:
        return "paused"
    return "dim" if call.exit_code == 0 else "failed"


def _to_json(call: CommandCall, *, is_driven: bool) -> dict[str, Any]:
    is_running = call.ended_at is None and is_driven
    return {**vars(call), "duration_s": call.duration_s, "is_running": is_running}


async def _follow(run_id: str, matches: Callable[[CommandCall], bool], *, is_json: bool) -> None:
    """Print what is recorded, then what comes: of a command that runs, what lies in the spool so far."""
    import asyncio

    from holdfast.runtime.stores import open_journal

    store = open_configured_store()
    log, printer = CommandLog(), _LogPrinter(run_id, is_json=is_json)
    try:
        async with open_journal(store) as journal, undriven_notice(run_id):
            events = aiter(journal.follow(run_id))
            coming = asyncio.ensure_future(anext(events))
            try:
                while True:
                    done, _pending = await asyncio.wait({coming}, timeout=_POLL_S)
                    if not done:
                        printer.print_more()
                        continue
                    event = coming.result()
                    if (call := log.add(event)) is not None and matches(call):
                        printer.take(call)
                    if event.is_terminal:
                        return
                    coming = asyncio.ensure_future(anext(events))
            except StopAsyncIteration:
                return
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
    finally:
        store.close()


class _LogPrinter:
    """Prints commands as they start, print and end; of several at once each piece says whose it is."""

    def __init__(self, run_id: str, *, is_json: bool) -> None:
        self._run_id = run_id
        self._is_json = is_json
        self._running: dict[str, tuple[CommandCall, int]] = {}
        self._rest: dict[str, str] = {}
        self._last = ""

    def take(self, call: CommandCall) -> None:
        """Print that a command has started or ended, with what it printed last."""
        if call.ended_at is None:
            self._running.setdefault(call.key, (call, 0))
        elif self._is_json:
            self._running.pop(call.key, None)
            _show(call, is_json=True, is_driven=True)
        else:
            self._finish(call)
        sys.stdout.flush()

    def print_more(self) -> None:
        """Print what the commands that run have printed since."""
        if self._is_json:
            return
        for key, (call, at) in list(self._running.items()):
            text, end = read_spool(self._run_id, key, at)
            self._running[key] = (call, end)
            self._print_piece(call, text)
        sys.stdout.flush()

    def _finish(self, call: CommandCall) -> None:
        _call, at = self._running.pop(call.key, (call, 0))
        if not at:  # nothing of it was printed: the recorded output is the whole
            _show(call, is_json=False, is_driven=True)
            self._last = ""
            return
        while True:
            text, end = read_spool(self._run_id, call.key, at)
            self._print_piece(call, text)
            if end == at:
                break
            at = end
        self._print_piece(call, "\n" if self._rest.get(call.key) else "")
        _print_network(call)
        print_text(paint(f"  ({_describe_end(call, is_driven=True)})", _find_tone(call)))
        self._last = ""

    def _print_piece(self, call: CommandCall, text: str) -> None:
        """Print whole lines, and keep the beginning of the next one."""
        if not text:
            return
        lines, newline, rest = (self._rest.pop(call.key, "") + text).rpartition("\n")
        self._rest[call.key] = rest
        if newline:
            if self._last != call.key:
                print_text(_heading(call))
            self._last = call.key
            _print_output(lines)
