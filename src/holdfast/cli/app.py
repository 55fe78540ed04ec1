"""The `holdfast` command.

Rule: what a command needs is imported when it runs, so that `--help` starts as fast as a bare program. Errors become
exit codes here and nowhere else.
"""

import os
import sys
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import database, deciding, describing, listing, results, running
from holdfast.errors import HoldfastError

app = typer.Typer(
    name="holdfast",
    help="Agent work on a repository that survives what kills its process.",
    epilog="Start with: holdfast demo",
    rich_markup_mode=None,  # rich help takes three times as long to start
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(listing.runs)
app.add_typer(describing.workflows)
app.add_typer(describing.personas)
app.add_typer(database.db)
for command in (
    running.run,
    running.resume,
    running.retry,
    running.abort,
    running.fork,
    listing.approvals,
    deciding.approve,
    deciding.reject,
    results.merge,
):
    app.command()(command)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="Where database and worktrees are; works anywhere on the line.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; works anywhere on the line.")] = False,
) -> None:
    """Agent work on a repository that survives what kills its process."""


@app.command()
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause for reading.")] = False,
) -> None:
    """Watch a run being killed, resumed and finished."""
    from holdfast.cli.demo import play

    raise typer.Exit(play(is_fast=fast))


def main() -> None:
    arguments, is_debug = _take_global_options(sys.argv[1:])
    try:
        app(args=arguments, prog_name="holdfast")
    except Exception as error:
        if is_debug:
            raise
        typer.echo(f"holdfast: {_to_line(error)}", err=True)
        sys.exit(1)


def _to_line(error: Exception) -> str:
    if isinstance(error, HoldfastError):
        return f"{error.code}: {error.message} {error.hint}".rstrip()
    told = " ".join(str(error).split())
    return f"internal_error: {type(error).__name__}: {told} What was acknowledged is safe; --debug shows where it was."


def _take_global_options(arguments: list[str]) -> tuple[list[str], bool]:
    """`--data-dir` and `--debug` count wherever they stand, as users expect of options that are about the whole."""
    kept: list[str] = []
    is_debug = False
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            return [*kept, argument, *waiting], is_debug
        if argument == "--debug":
            is_debug = True
        elif argument == "--data-dir":
            folder = next(waiting, None)
            if folder is None:
                return [*kept, argument], is_debug  # the parser says what is missing
            os.environ["HOLDFAST_DATA_DIR"] = folder
        elif argument.startswith("--data-dir="):
            os.environ["HOLDFAST_DATA_DIR"] = argument.partition("=")[2]
        else:
            kept.append(argument)
    return kept, is_debug


if __name__ == "__main__":
    main()
