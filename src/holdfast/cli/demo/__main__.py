"""`holdfast demo`, and `python -m holdfast.cli.demo`: one of two demonstrations with real processes and real kills."""

import os
import sys
from typing import Annotated

import typer

from holdfast.cli.terminal.streams import open_closed_streams


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause for reading, and ask nothing.")] = False,
    flow: Annotated[bool, typer.Option("--flow", help="Show the durable steps of plain Python code instead.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder, to look around in it.")] = False,
) -> None:
    """Watch a run being killed, resumed and finished. Needs no key.

    The demo makes a small project with a bug in a temporary folder. A workflow fixes it with a model that plays a
    script. Its process is killed, another one continues, you approve, and a third one finishes.

    Example: holdfast demo
    """
    raise typer.Exit(play(is_fast=fast, is_flow=flow, keeps_folder=keep))


def play(*, is_fast: bool = False, is_flow: bool = False, keeps_folder: bool = False) -> int:
    """Play one of the two and return the exit code, 0 only if everything it claims held, 130 after Ctrl-C."""
    try:
        if is_flow:
            from holdfast.cli.demo.flow_story import play as play_flow

            return play_flow(is_fast=is_fast)
        from holdfast.extras import require_extra

        require_extra("agents", "holdfast demo")
        from holdfast.cli.demo.workflow_story import play as play_workflow

        return play_workflow(is_fast=is_fast, keeps_folder=keeps_folder)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read this has gone; without a place to go, what is still buffered would be an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    open_closed_streams()
    sys.exit(play(is_fast="--fast" in sys.argv, is_flow="--flow" in sys.argv, keeps_folder="--keep" in sys.argv))
