"""The `holdfast` command.

Rule: what a command needs is imported when it runs, so that `--help` starts as fast as a bare program. Errors become
exit codes here and nowhere else.
"""

import contextlib
import os
import sys
from typing import Annotated, Any

import typer

from holdfast import __version__
from holdfast.cli.lazy import Entry, LazyGroup, lighten
from holdfast.cli.terminal.streams import open_closed_streams

RUNS = {
    "list": Entry("List runs, newest first.", "commands.runs.list:list_runs"),
    "show": Entry("Show one run: progress, results, cost and what it waits for.", "commands.runs.show:show_run"),
    "events": Entry("Print the journal of a run, event by event.", "commands.runs.events:list_events"),
    "logs": Entry("Print the output of a run's commands, checks and agents.", "commands.runs.logs:list_logs"),
    "watch": Entry("Watch a run until it ends or waits, whichever process drives it.", "commands.runs.watch:watch_run"),
    "diff": Entry("Show what a run changed in the repository.", "commands.runs.diff:show_diff"),
    "rm": Entry("Delete runs for good: journal, files and refs.", "commands.runs.rm:remove"),
}
WORKFLOWS = {
    "list": Entry("List workflows and where each comes from.", "commands.workflows:list_workflows"),
    "show": Entry(
        "Show the phases of a workflow: roles, risks, approvals, artifacts.", "commands.workflows:show_workflow"
    ),
    "validate": Entry("Check a workflow file of your own.", "commands.workflows:validate_workflow"),
}
PERSONAS = {
    "list": Entry(
        "List personas: who is ready, their models, where each comes from.", "commands.personas.list:list_personas"
    ),
    "show": Entry("Show one persona in full.", "commands.personas.show:show_persona"),
    "new": Entry("Make a persona of a coding agent, and try it.", "commands.personas.new:new_persona"),
}
FLOWS = {
    "check": Entry("Replay open runs against the code of now.", "commands.flows:check"),
    "prune": Entry("Delete runs of flows that were over long ago.", "commands.flows:prune"),
}
DATABASE = {
    "upgrade": Entry("Create the database, or bring it up to date. Safe to repeat.", "commands.db:upgrade"),
    "check": Entry("Compare every row with the journal.", "commands.db:check"),
    "backup": Entry("Copy the database while it is in use.", "commands.db:backup"),
}
TOKENS = {
    "create": Entry("Create a token and print it. It is not shown again.", "commands.token:create"),
    "list": Entry("List tokens, revoked ones too.", "commands.token:list_all"),
    "revoke": Entry("Revoke a token; it stops working at once.", "commands.token:revoke"),
}
WORKERS = {
    "list": Entry("List the workers and what they drive.", "commands.worker:list_all"),
    "drain": Entry("Let a worker take nothing more, and end.", "commands.worker:drain"),
}
SCHEDULES = {
    "add": Entry("Start a workflow or a flow again and again, by a cron line.", "commands.schedule:add"),
    "list": Entry("List schedules, and when each comes next.", "commands.schedule:list_schedules"),
    "show": Entry(
        "Show one schedule: what it starts, when, and what became of the last time.", "commands.schedule:show"
    ),
    "pause": Entry("Pause a schedule, or with --off let it go on.", "commands.schedule:pause"),
    "remove": Entry("Remove a schedule. Its runs stay.", "commands.schedule:remove"),
    "run": Entry("Start a run of a schedule now.", "commands.schedule:run_now"),
}
LIMITS = {
    "set": Entry("Set a limit that holds for all processes.", "commands.limits:set_limit"),
    "list": Entry("List the limits that hold for all processes.", "commands.limits:show_limits"),
    "remove": Entry("Remove a limit.", "commands.limits:remove"),
}
APPROVALS = {
    "list": Entry("List what waits for a person.", "commands.approvals:approvals"),
    "show": Entry("Show what is to be approved, why, and how to answer.", "commands.approvals:show_approval"),
}
SECTIONS = {
    "Start": {
        "demo": Entry("Watch a run being killed, resumed and finished. Needs no key.", "demo.__main__:demo"),
        "init": Entry("Prepare a repository: settings and an example workflow.", "commands.init:init"),
        "run": Entry("Start a workflow on a repository.", "commands.run:run"),
    },
    "Runs": {
        "runs": Entry("List, show, follow and delete runs.", members=RUNS),
        "resume": Entry("Continue a run that was interrupted, or that waited for you.", "commands.resume:resume"),
        "pause": Entry("Pause a run until someone resumes it.", "commands.pause:pause"),
        "retry": Entry("Reopen a failed run at the phase that failed.", "commands.retry:retry"),
        "abort": Entry("End a run for good. What it made stays.", "commands.abort:abort"),
        "fork": Entry("Start a new run from where another stood before a phase.", "commands.fork:fork"),
        "restore": Entry("Put a run's files back as they were before a call.", "commands.restore:restore"),
        "merge": Entry("Merge a run's result into your branch.", "commands.merge:merge"),
        "export": Entry("Write a run into one file that can be checked anywhere.", "commands.export:export"),
        "verify": Entry("Check an exported file, or a run, against what was recorded.", "commands.verify:verify"),
    },
    "Approvals and budget": {
        "approvals": Entry(
            "List what waits for a person, or show one approval in full.", "commands.approvals:approvals", APPROVALS
        ),
        "approve": Entry("Approve what a phase made, or a tool call.", "commands.approvals:approve"),
        "reject": Entry("Reject what a phase made, or a tool call; or request changes.", "commands.approvals:reject"),
        "budget": Entry("Show what was spent and may be spent, or raise a run's limit.", "commands.budget:budget"),
    },
    "Catalog": {
        "workflows": Entry("List and show workflows, validate your own.", members=WORKFLOWS),
        "personas": Entry("List and show personas, make your own.", members=PERSONAS),
        "crashtest": Entry(
            "Kill a workflow at one step after the other, and see that nothing is lost.", "commands.crashtest:crashtest"
        ),
        "trust": Entry("Agree to what a repository or a persona needs consent for.", "commands.trust:trust"),
    },
    "Server and maintenance": {
        "serve": Entry("Serve the API and the web pages, and drive runs.", "commands.serve:serve"),
        "worker": Entry("Drive runs and flows from Postgres, beside other workers.", "commands.worker:worker"),
        "workers": Entry(
            "List the workers of the database, or let one end.", "commands.worker:list_all", members=WORKERS
        ),
        "schedule": Entry("Start runs by a cron line and a time zone.", members=SCHEDULES),
        "limits": Entry("Set limits that hold for all processes.", members=LIMITS),
        "token": Entry("Manage tokens for the API.", members=TOKENS),
        "explain": Entry("Explain an error code, or print a page of the documentation.", "commands.explain:explain"),
        "doctor": Entry("Check this machine and name a remedy for what is missing.", "commands.doctor:doctor"),
        "gc": Entry("Clean up after runs that are over: worktrees, or whole runs.", "commands.gc:collect"),
        "flows": Entry("Check a flow's open runs before a deploy, delete old ones.", members=FLOWS),
        "db": Entry("Upgrade, check or back up the database.", members=DATABASE),
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
    help="Run agents on a repository. Whatever kills their process, the work goes on where it stopped.",
    epilog="New here? Try: holdfast demo",
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
        str | None, typer.Option("--data-dir", metavar="FOLDER", help="The folder of the database and the worktrees.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the log.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Show the log as JSON, one object a line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="[RUN]", help="Continue a conversation: the named one, or one you choose."),
    ] = None,
    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Talk with this persona.")] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Talk with the simulated model.")] = False,
    unsandboxed: Annotated[
        bool, typer.Option("--unsandboxed", help="Let the agent's commands run without a sandbox; it is recorded.")
    ] = False,
    question: Annotated[
        str | None,
        typer.Option(
            "--print", "-p", metavar="[TEXT]", help="Print the answer to this and to what is piped in, and exit."
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="FILE", help="With -p: an image that goes with it; can be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -p: print the answer as JSON.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="With -p: keep the conversation open for --resume, though nothing changed.")
    ] = False,
) -> None:
    """Run agents on a repository. Whatever kills their process, the work goes on where it stopped.

    Without a command, in a terminal and in a repository, holdfast starts a conversation with an agent. With -p, or
    with a question piped in, it prints the answer and exits.

    Example: git diff | holdfast -p "Review this."
    """
    if ctx.invoked_subcommand is None:
        from holdfast.cli.repl.home import HomeOptions, open_home

        options = HomeOptions(resume, persona, simulate, question, as_json, unsandboxed, keep, tuple(image or ()))
        raise typer.Exit(open_home(ctx.get_help(), options))
    is_set = any((simulate, as_json, unsandboxed, keep, image))
    if is_set or any(option is not None for option in (resume, persona, question)):
        ctx.fail(
            "--resume, --persona, --simulate, --unsandboxed, -p, --image, --keep and --json before a command are for a "
            "conversation, which has no command."
        )


_INTERRUPTED = 130
_USAGE_CODES = (
    *("queue_unknown", "limit_invalid", "schedule_invalid", "schedule_not_found", "time_passed", "worker_not_found"),
)


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
        message, hint = _one_line(error.format_message()), f"Help: {_help_command(error)}"
        _report({"code": "usage", "message": message, "hint": hint}, f"usage: {message} {hint}", arguments)
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
        _report(_to_facts(error), _describe(error), arguments)
        return 2 if getattr(error, "code", "") in _USAGE_CODES else 1


def _report(facts: dict[str, Any], text: str, arguments: list[str]) -> None:
    """Say on standard error what went wrong; where JSON was asked for, standard output gets it as one object."""
    if "--json" in arguments:
        import json

        with contextlib.suppress(OSError):
            typer.echo(json.dumps({"error": facts}, ensure_ascii=False))
    typer.echo(f"holdfast: {text}", err=True)


def _to_facts(error: Exception) -> dict[str, Any]:
    from holdfast.errors import HoldfastError

    if isinstance(error, HoldfastError):
        return error.to_dict()
    return {"code": "internal_error", "message": f"{type(error).__name__}: {error}", "hint": ""}


def _help_command(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'holdfast'} --help"


def _describe(error: Exception) -> str:
    from holdfast.errors import HoldfastError

    if isinstance(error, HoldfastError):
        problem = _one_line(f"{error.code}: {error.message}")
        ways = error.hint.splitlines()
        if len(ways) > 1 and sys.stderr.isatty():  # several ways to go on; for programs every error is one line
            return "\n".join([problem, *(f"  {way}" for way in ways)])
        return _one_line(f"{problem} {error.hint}")
    problem = _one_line(f"internal_error: {type(error).__name__}: {error}")
    return f"{problem} What was acknowledged is safe; --debug shows where it was."


def _one_line(text: str) -> str:
    from holdfast.cli.terminal.output import plain

    return plain(" ".join(text.split()))


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
_VALUED = {*_OPTIONAL, "--persona", "--image"}


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
