"""`holdfast` alone: a conversation, one answer, or without a terminal what waits for you and what can be said."""

import sys
from dataclasses import dataclass

import typer

from holdfast.cli.agent_command import refuse_inside_agent_command
from holdfast.cli.terminal.arguments import is_interactive
from holdfast.enums import RunStatus
from holdfast.errors import ConfigInvalid
from holdfast.persistence.raw_sql import count_waiting_approvals, find_driven, read_open_runs

_MOST_INTERRUPTED = 5
_NO_REPOSITORY = "This folder is in no git repository, so there is nothing to talk about."
_NO_TERMINAL = "A conversation needs a terminal, or a question: holdfast -p TEXT."


@dataclass(frozen=True)
class HomeOptions:
    """The options of `holdfast` without a command. `question` is the empty text for `-p` alone."""

    resume: str | None = None
    persona: str | None = None
    is_simulated: bool = False
    question: str | None = None
    is_json: bool = False
    is_unsandboxed: bool = False
    stays_open: bool = False
    images: tuple[str, ...] = ()
    """Files."""

    @property
    def is_any(self) -> bool:
        return self != HomeOptions()


def open_home(help_text: str, options: HomeOptions) -> int:
    """Open a conversation where a person is at a terminal and in a repository; else print what waits and the help."""
    if options.is_any or is_interactive():
        refuse_inside_agent_command("A conversation")
    if options.question is not None:
        return _answer(options, options.question, piped=_read_piped())
    why = _NO_TERMINAL
    if is_interactive() and sys.stdout.isatty() and not options.is_json:
        _require_agents()
        from holdfast.cli.repl.conversation_list import find_folder
        from holdfast.cli.repl.loop import start_repl
        from holdfast.cli.repl.start import TalkOptions

        if (repo := find_folder()) is not None:
            talk = TalkOptions(None, options.persona, options.is_simulated, options.is_unsandboxed)
            return start_repl(repo, talk, resume=options.resume)
        why = _NO_REPOSITORY
    elif piped := _read_piped():
        refuse_inside_agent_command("A conversation")
        return _answer(options, piped)
    if options.is_any:
        raise ConfigInvalid(why, hint="Go to a repository in a terminal, then: holdfast --resume", key="--resume")
    show_home(help_text)
    return 0


def _read_piped() -> str:
    from holdfast.cli.terminal.streams import read_stdin

    return read_stdin().strip()


def _require_agents() -> None:
    from holdfast.extras import require_extra

    require_extra("agents", "A conversation (holdfast without a command)")


def _answer(options: HomeOptions, text: str, *, piped: str = "") -> int:
    _require_agents()
    from holdfast.cli.repl.conversation_list import find_conversation, find_folder
    from holdfast.cli.repl.single_question import SingleQuestion, answer_once
    from holdfast.cli.repl.start import TalkOptions
    from holdfast.cli.terminal.requirements import read_images

    texts = (text.strip(), piped) if text.strip() else (piped, "")
    question = SingleQuestion(*texts, stays_open=options.stays_open, images=read_images(options.images))
    repo = find_folder()
    if repo is None:
        raise ConfigInvalid(_NO_REPOSITORY, hint="Go to a repository, then ask again.", key="--print")
    if not question.text and options.resume is None:
        raise ConfigInvalid("There is no question.", hint='Ask one: holdfast -p "What does it do?"', key="--print")
    run_id = None if options.resume is None else find_conversation(options.resume, repo)
    talk = TalkOptions(run_id, options.persona, options.is_simulated, options.is_unsandboxed)
    return answer_once(repo, question, talk, is_json=options.is_json)


def show_home(help_text: str) -> None:
    """Print the help, then what waits for a person, runs, or was interrupted."""
    typer.echo(help_text)
    if waiting := count_waiting_approvals():
        many = "approval waits" if waiting == 1 else "approvals wait"
        typer.echo(f"\n◔ {waiting} {many} for you: holdfast approvals")
    running = [str(row["id"]) for row in read_open_runs() if row["state"] == RunStatus.RUNNING]
    driven = find_driven(running)
    if driven:
        typer.echo(f"● {len(driven)} running: holdfast runs list --state running")
    for run_id in sorted(set(running) - driven)[:_MOST_INTERRUPTED]:
        typer.echo(f"◌ {run_id[:8]} was interrupted: holdfast resume {run_id[:8]}")
