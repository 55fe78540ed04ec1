"""What the shell offers while a person types: runs, approvals, workflows, personas, topics.

Rule: a completion never fails and never writes; what cannot be read offers nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

_MOST = 50

Completion = tuple[str, str]
"""A word, and what the shell shows beside it."""


def _quiet(find: Callable[[], Iterator[Completion]]) -> Callable[[str], list[Completion]]:
    """Return a completion that offers the words with the typed beginning, and nothing where they cannot be found."""

    def complete(incomplete: str) -> list[Completion]:
        try:
            return [found for found in find() if found[0].startswith(incomplete)]
        except Exception:  # a traceback in the middle of a command line helps nobody
            return []

    return complete


def _find_runs() -> Iterator[Completion]:
    from holdfast.persistence.raw_sql import read_newest_runs

    for row in read_newest_runs(_MOST):
        yield str(row["id"])[:8], f"{row['state']} {row['workflow']}: {row['title']}".rstrip(": ")


def _find_approvals() -> Iterator[Completion]:
    from holdfast.persistence.raw_sql import read_approvals

    for row in read_approvals(state="pending")[:_MOST]:
        yield str(row["approval_id"])[:8], f"{row['phase_key']} of run {str(row['run_id'])[:8]}"


def _find_workflows() -> Iterator[Completion]:
    from holdfast.cli.terminal.catalog import open_catalog

    for entry in open_catalog(Path()).list_workflows():
        yield entry.definition.name, entry.definition.description


def _find_personas() -> Iterator[Completion]:
    from holdfast.cli.terminal.catalog import open_catalog

    for entry in open_catalog(Path()).list_personas():
        yield entry.definition.name, entry.definition.description


def _find_topics() -> Iterator[Completion]:
    from holdfast.cli.commands.explain import find_pages, read_codes

    for name in find_pages():
        yield name, "a page"
    for code, (message, _) in read_codes().items():
        yield code, message


complete_runs = _quiet(_find_runs)
complete_approvals = _quiet(_find_approvals)
complete_workflows = _quiet(_find_workflows)
complete_personas = _quiet(_find_personas)
complete_topics = _quiet(_find_topics)


def complete_role_personas(incomplete: str) -> list[Completion]:
    """Offer personas for the part behind `ROLE=`."""
    role, separator, beginning = incomplete.partition("=")
    return [(f"{role}={name}", text) for name, text in complete_personas(beginning)] if separator else []
