"""The `holdfast` command.

Rule: what a command needs is imported when it runs, so that `--help` starts as fast as a bare program. Errors become
exit codes here and nowhere else.
"""

import os
import sys
from typing import Annotated, Any

import typer

from holdfast import __version__
from holdfast.cli.lazy import Entry, LazyGroup, lighten
from holdfast.cli.terminal.streams import open_closed_streams

RUNS = {
    "list": Entry("List runs, newest first.", "commands.runs.list:list_runs"),
    "show": Entry("What a run is doing, made, cost and waits for.", "commands.runs.list:show_run"),
    "events": Entry("The journal of a run, event by event.", "commands.runs.events:list_events"),
    "logs": Entry("What commands, checks and coding agents of a run printed.", "commands.runs.logs:list_logs"),
    "watch": Entry("Watch a run that any process drives, until it ends or waits.", "commands.runs.watch:watch_run"),
    "diff": Entry("What a run changed in the repository.", "commands.runs.diff:show_diff"),
    "rm": Entry("Delete runs for good: journal, files, refs.", "commands.gc:remove"),
}
WORKFLOWS = {
    "list": Entry("The workflows there are, and where each comes from.", "commands.catalog:list_workflows"),
    "show": Entry("The phases of a workflow: roles, risks, approvals and artifacts.", "commands.catalog:show_workflow"),
    "validate": Entry("Check a workflow file of your own.", "commands.catalog:validate_workflow"),
}
PERSONAS = {
    "list": Entry("The personas there are, their models and where each comes from.", "commands.catalog:list_personas"),
    "show": Entry("One persona in full.", "commands.catalog:show_persona"),
}
DATABASE = {
    "upgrade": Entry("Make the database, or bring it up to date. Safe to repeat.", "commands.db:upgrade"),
    "check": Entry("Compare every row with the journal.", "commands.db:check"),
    "backup": Entry("Copy the database while it is in use.", "commands.db:backup"),
}
TOKENS = {
    "create": Entry("Make a token; it is shown once.", "commands.serve:create"),
    "list": Entry("The tokens there are.", "commands.serve:list_all"),
    "revoke": Entry("Make a token useless at once.", "commands.serve:revoke"),
}
APPROVALS = {
    "list": Entry("What waits for a person.", "commands.runs.list:approvals"),
    "show": Entry("What is to be approved, why, and the commands to answer.", "terminal.approval_view:show_approval"),
}
SECTIONS = {
    "Begin": {
        "demo": Entry("Watch a run being killed, resumed and finished; needs no key.", "demo.__main__:demo"),
        "init": Entry("Prepare a repository: settings and an example workflow.", "commands.init:init"),
        "run": Entry("Start a workflow on a repository.", "commands.run:run"),
    },
    "Runs": {
        "runs": Entry("Look at runs: list, show, events, logs, watch, diff; rm deletes.", members=RUNS),
        "resume": Entry("Go on with a run that was interrupted, or that waited for you.", "commands.resume:resume"),
        "pause": Entry("Stop a run durably until someone resumes it.", "commands.resume:pause"),
        "retry": Entry("Open a failed run again at the phase that failed.", "commands.resume:retry"),
        "abort": Entry("End a run for good; what it made is kept.", "commands.resume:abort"),
        "fork": Entry("Start a new run from where another stood before a phase.", "commands.resume:fork"),
        "merge": Entry("Bring a run's result to your branch.", "commands.merge:merge"),
    },
    "What waits for you": {
        "approvals": Entry("What waits for a person; show one in full.", "commands.runs.list:approvals", APPROVALS),
        "approve": Entry("Say yes to what a phase made.", "commands.approvals:approve"),
        "reject": Entry("Say no, or ask for changes.", "commands.approvals:reject"),
        "budget": Entry("What was spent, what may be; give a run more.", "commands.budget:budget"),
    },
    "What there is": {
        "workflows": Entry("Look at workflows, check your own.", members=WORKFLOWS),
        "personas": Entry("Look at personas.", members=PERSONAS),
        "trust": Entry("Agree to what a repository or a persona needs consent for.", "commands.trust:trust"),
    },
    "Looking after it": {
        "serve": Entry("Serve the API and the web pages, and drive runs.", "commands.serve:serve"),
        "token": Entry("Tokens for the API: create, list, revoke.", members=TOKENS),
        "explain": Entry("Explain an error code, or print a page of the documentation.", "commands.explain:explain"),
        "doctor": Entry("Check this machine, with a remedy for what is missing.", "commands.doctor:doctor"),
        "gc": Entry("Clean up after runs that are over: worktrees, or whole runs.", "commands.gc:collect"),
        "db": Entry("Look after the database: upgrade, check, backup.", members=DATABASE),
    },
}


_ELSEWHERE = {
    **dict.fromkeys(("status", "ls", "list", "ps"), "runs list"),
    **{name: f"runs {name}" for name in ("show", "events", "logs", "watch", "diff", "rm")},
    "validate": "workflows validate",
    "chat": "holdfast",
}


class _Root(LazyGroup):
    sections = SECTIONS

    def suggest(self, ctx: Any, word: str) -> str:
        if word in _ELSEWHERE:
            return f" Did you mean {_ELSEWHERE[word]!r}?"
        if " " in word.strip():
            return ' To ask a question: holdfast -p "…"'
        return super().suggest(ctx, word)


app = typer.Typer(
    name="holdfast",
    cls=_Root,
    help="Agent work on a repository that survives what kills its process.",
    epilog="Start with: holdfast demo. Alone in a repository, holdfast is a conversation with an agent about it.",
    rich_markup_mode=None,  # rich help takes three times as long to start
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def holdfast(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="FOLDER", help="Where database and worktrees are.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the log.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Show the log as JSON, one object a line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="[RUN]", help="Go on: choose a conversation, or name it.")
    ] = None,
    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Who to talk with.")] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Talk with the simulated model.")] = False,
    question: Annotated[
        str | None,
        typer.Option("--print", "-p", metavar="[TEXT]", help="Answer this and what is piped in, print it, and exit."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -p: print the answer as JSON.")] = False,
) -> None:
    """Agent work on a repository that survives what kills its process.

    Alone, in a terminal and in a repository, it is a conversation with an agent about it. With -p, or with a
    question piped in, the answer is printed and that is all.

    Example: git diff | holdfast -p "Review this."
    """
    if ctx.invoked_subcommand is None:
        from holdfast.cli.repl.home import HomeOptions, open_home

        options = HomeOptions(resume, persona, simulate, question, as_json)
        raise typer.Exit(open_home(ctx.get_help(), options))
    if resume is not None or persona is not None or simulate or question is not None or as_json:
        ctx.fail(
            "--resume, --persona, --simulate, -p and --json before a command are for a conversation, "
            "which has no command."
        )


_INTERRUPTED = 130


def main() -> None:
    """Run the command of `sys.argv` and exit with its code; the whole program begins here."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without ✓ gets a question mark
    arguments, flags = take_global_options(sys.argv[1:])
    if flags & {"--verbose", "--log-json"}:
        from holdfast.cli.log_output import show_log

        show_log(is_json="--log-json" in flags)
    sys.exit(_run(arguments, is_debug="--debug" in flags))


def _run(arguments: list[str], *, is_debug: bool) -> int:
    try:
        result: Any = lighten(typer.main.get_command(app)).main(
            args=arguments, prog_name="holdfast", standalone_mode=False
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.TyperException as error:
        _tell(f"usage: {_one_line(error.format_message())} Help: {_help_command(error)}")
        return error.exit_code
    except BrokenPipeError:
        # Whoever read this has gone; without a place to go, what is still buffered would be an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except Exception as error:
        if is_debug:
            raise
        _tell(_describe(error))
        return 1


def _tell(text: str) -> None:
    typer.echo(f"holdfast: {text}", err=True)


def _help_command(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'holdfast'} --help"


def _describe(error: Exception) -> str:
    from holdfast.errors import HoldfastError

    if isinstance(error, HoldfastError):
        problem = _one_line(f"{error.code}: {error.message}")
        # A hint of several lines is several ways to go on; every other error is one line.
        first, *others = error.hint.splitlines() or [""]
        return (
            "\n".join([problem, *(f"  {line}" for line in (first, *others))])
            if others
            else _one_line(f"{problem} {first}")
        )
    problem = _one_line(f"internal_error: {type(error).__name__}: {error}")
    return f"{problem} What was acknowledged is safe; --debug shows where it was."


def _one_line(text: str) -> str:
    return " ".join(text.split())


_FLAGS = {"--debug", "--verbose", "--log-json"}


def take_global_options(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Take the options about the whole program out, wherever they stand; return the other arguments and the flags."""
    others: list[str] = []
    flags: set[str] = set()
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            return [*others, argument, *waiting], flags
        if argument in _FLAGS:
            flags.add(argument)
        elif argument == "--data-dir":
            folder = next(waiting, None)
            if folder is None:
                return [*others, argument], flags  # the parser says what is missing
            os.environ["HOLDFAST_DATA_DIR"] = folder
        elif argument.startswith("--data-dir="):
            os.environ["HOLDFAST_DATA_DIR"] = argument.partition("=")[2]
        else:
            others.append(argument)
    return _with_values(_without_words(others)), flags


def _without_words(arguments: list[str]) -> list[str]:
    """Return the options that the words `help` and `version` stand for; other arguments stay as they are."""
    if arguments[:1] == ["help"]:
        return [*arguments[1:], "--help"]
    return ["--version"] if arguments[:1] == ["version"] else arguments


_OPTIONAL = {"--resume": "--resume", "--print": "--print", "-p": "--print"}
_VALUED = {*_OPTIONAL, "--persona"}


def _with_values(arguments: list[str]) -> list[str]:
    """Give `--resume` and `-p` an empty value where theirs is left out; the parser knows no optional values."""
    filled: list[str] = []
    waiting = list(arguments)
    while waiting and waiting[0].startswith("-") and waiting[0] != "--":  # then comes a command, with its own options
        option = waiting.pop(0)
        if option not in _VALUED:
            filled.append(option)
        elif waiting and not (option in _OPTIONAL and waiting[0].startswith("-")):
            filled += [option, waiting.pop(0)]
        else:
            filled.append(f"{_OPTIONAL[option]}=" if option in _OPTIONAL else option)
    return [*filled, *waiting]


if __name__ == "__main__":
    main()
