"""`holdfast` alone: a conversation, or without a terminal what waits for you and what can be said."""

import sys

import typer

from holdfast.cli.options import is_interactive
from holdfast.errors import ConfigInvalid
from holdfast.persistence.driven import find_driven
from holdfast.persistence.plain import query

_SHOWN_INTERRUPTED = 5


def open_home(help_text: str, *, resume: str | None, persona: str | None, is_simulated: bool) -> int:
    """A conversation where a person can be spoken with and stands in a repository; else what there is to say."""
    if is_interactive() and sys.stdout.isatty():
        from holdfast.extras import require_extra

        require_extra("agents", "A conversation (holdfast without a command)")
        from holdfast.cli.repl import find_folder, start_repl

        if (repo := find_folder()) is not None:
            return start_repl(repo, resume=resume, persona=persona, is_simulated=is_simulated)
        why = "This folder is in no git repository, so there is nothing to talk about."
    else:
        why = "A conversation needs a terminal."
    if resume is not None or persona is not None or is_simulated:
        raise ConfigInvalid(why, hint="Go to a repository in a terminal, then: holdfast --resume", key="--resume")
    show_home(help_text)
    return 0


def show_home(help_text: str) -> None:
    typer.echo(help_text)
    waiting = query("SELECT COUNT(*) AS n FROM approvals WHERE state = 'pending'")
    if waiting and waiting[0]["n"]:
        many = "approval waits" if waiting[0]["n"] == 1 else "approvals wait"
        typer.echo(f"\n◔ {waiting[0]['n']} {many} for you: holdfast approvals")
    running = [str(row["id"]) for row in query("SELECT id FROM runs WHERE state = 'running'")]
    driven = find_driven(running)
    if driven:
        typer.echo(f"● {len(driven)} running: holdfast runs list --state running")
    for run_id in sorted(set(running) - driven)[:_SHOWN_INTERRUPTED]:
        typer.echo(f"◌ {run_id[:8]} was interrupted: holdfast resume {run_id[:8]}")
