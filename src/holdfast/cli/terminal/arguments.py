"""Options and arguments that several commands share.

Reading rows is imported where it is done: `--help` of a command reads none.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.cli.terminal.completion import complete_runs
from holdfast.errors import ApprovalNotFound, RunNotFound

JSON = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
YES = Annotated[bool, typer.Option("--yes", help="Approve everything.")]
DETACH = Annotated[
    bool,
    typer.Option("--detach", help="Leave the run to holdfast serve, or a worker; its questions wait, also with --yes."),
]
RUN_ID = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.", autocompletion=complete_runs),
]
REPO = Annotated[
    Path, typer.Option("--repo", metavar="PATH", help="The repository whose .holdfast folder is read too.")
]


def _use_store(store: str | None) -> str | None:
    """Point this process at another store: whatever reads the settings finds it."""
    if store is not None:
        from holdfast.errors import ConfigInvalid

        if "://" not in store:
            path = Path(store).absolute()
            if not path.exists():
                raise ConfigInvalid(f"There is no store {store}.", hint="Name the file that run_flow wrote, or a URL.")
            store = f"sqlite+aiosqlite:///{path}"
        os.environ["HOLDFAST_DATABASE_URL"] = store
    return store


FLOWS = Annotated[
    list[str] | None,
    typer.Option("--flows", metavar="MODULE", help="The module of the flow, or a file that ends in .py."),
]
STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        help="The store to look into, such as a flow's holdfast.db; without it the configured database.",
        callback=_use_store,
        is_eager=True,
    ),
]


def get_user() -> str:
    """Return who is typing, as far as the machine knows."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def is_interactive() -> bool:
    """Return whether a person can be asked something: what they read and what they type is a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


_MIN_PREFIX_CHARS = 4  # shorter ones are typing errors more often than ids
_MORE = f"Give at least {_MIN_PREFIX_CHARS} characters of it."


def check_detached(*, is_yes: bool, flows: list[str] | None = None) -> None:
    """Say what `--yes` does not do for a run that is left to others, and refuse to be told the module of its flow."""
    if flows:
        raise typer.BadParameter("With --detach whoever takes the run knows its flow.", param_hint="--flows")
    if is_yes:
        from holdfast.cli.terminal.output import say

        say("With --detach, --yes answers no question of the run: see holdfast approvals.")


def find_run_id(prefix: str) -> str:
    """Return the full id for an unambiguous beginning of one. Raises `RunNotFound`."""
    ids = _find_ids("runs", prefix)
    if not ids and len(prefix) < _MIN_PREFIX_CHARS:
        raise RunNotFound(f"{prefix!r} is too short for the beginning of a run's id.", hint=_MORE)
    if len(ids) > 1:
        raise RunNotFound(f"{prefix!r} is the beginning of several runs.", hint=f"Give more of it: {', '.join(ids)}.")
    if not ids:
        raise RunNotFound(
            f"There is no run {prefix!r} in {_name_store()}.", hint="See which there are: holdfast runs list"
        )
    return ids[0]


def _name_store() -> str:
    """Return the file or the address of the configured database, without a password."""
    from holdfast.config import load_config

    config = load_config()
    if config.database_path is not None:
        return str(config.database_path)
    from holdfast.runtime.checkpoint.postgres.session import parse_url

    return parse_url(config.database_url).label


def find_approval(prefix: str) -> tuple[str, str]:
    """Return the ids of an approval and its run, for an unambiguous beginning. Raises `ApprovalNotFound`."""
    from holdfast.persistence.raw_sql import read_approvals

    ids = _find_ids("approvals", prefix)
    if not ids and len(prefix) < _MIN_PREFIX_CHARS:
        raise ApprovalNotFound(f"{prefix!r} is too short for the beginning of an approval's id.", hint=_MORE)
    if len(ids) != 1:
        what = "is the beginning of several approvals" if ids else "is no approval"
        raise ApprovalNotFound(f"{prefix!r} {what}.", hint="See what waits: holdfast approvals")
    (row,) = read_approvals(approval_id=ids[0])
    return ids[0], str(row["run_id"])


def find_approval_id(prefix: str) -> str:
    """Return the id of an approval for the beginning of its id, or of the id of the one run that waits for it.

    Raises `ApprovalNotFound`, also where a run waits for several.
    """
    from holdfast.persistence.raw_sql import read_approvals

    runs = [] if _find_ids("approvals", prefix) else _find_ids("runs", prefix)
    if len(runs) != 1:
        return find_approval(prefix)[0]
    ids = sorted(str(row["approval_id"]) for row in read_approvals(runs[0], state="pending"))
    if not ids:
        raise ApprovalNotFound(f"Run {runs[0]} waits for no approval.", hint="See what waits: holdfast approvals")
    if len(ids) > 1:
        shorts = ", ".join(each[:8] for each in ids)
        raise ApprovalNotFound(f"Run {runs[0]} waits for {len(ids)} approvals.", hint=f"Name one of them: {shorts}.")
    return ids[0]


def _find_ids(table: Literal["runs", "approvals"], prefix: str) -> list[str]:
    from holdfast.persistence.raw_sql import find_ids

    ids = find_ids(table, prefix)
    if table == "runs":
        from holdfast.persistence.flow_listings import find_flow_ids

        ids += find_flow_ids(prefix)
    if prefix in ids:
        return [prefix]
    return ids if len(prefix) >= _MIN_PREFIX_CHARS else []


def find_repository(run_id: str) -> Path | None:
    """Return the folder that a run's repository is; `None` for a URL, and if there is no such run."""
    from holdfast.persistence.raw_sql import find_run
    from holdfast.workspace.transfer.remotes import to_folder

    run = find_run(run_id)
    return to_folder(run["repo_path"]) if run else None
