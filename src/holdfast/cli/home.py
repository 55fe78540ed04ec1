"""`holdfast` alone: what waits for you, and what can be said."""

import typer

from holdfast.cli.reading import query


def show_home(help_text: str) -> None:
    typer.echo(help_text)
    waiting = query("SELECT COUNT(*) AS n FROM approvals WHERE state = 'pending'")
    if waiting and waiting[0]["n"]:
        many = "approval waits" if waiting[0]["n"] == 1 else "approvals wait"
        typer.echo(f"\n◔ {waiting[0]['n']} {many} for you: holdfast approvals")
    running = query("SELECT COUNT(*) AS n FROM runs WHERE state = 'running'")
    if running and running[0]["n"]:
        typer.echo(f"● {running[0]['n']} running: holdfast runs list --state running")
