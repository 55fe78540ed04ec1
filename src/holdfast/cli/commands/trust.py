"""Consent: the command that gives it, and the question before a run that needs it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.answer_input import confirm
from holdfast.cli.terminal.arguments import JSON, find_repository, get_user, is_interactive
from holdfast.cli.terminal.completion import complete_personas
from holdfast.cli.terminal.output import plain, print_json, print_text, say

if TYPE_CHECKING:
    from holdfast.catalog import CatalogEntry
    from holdfast.consent import Agreeable, PersonaConsentStore
    from holdfast.readiness import AgreedDefinitions
    from holdfast.workflow import WorkflowTemplate


def trust(
    persona: Annotated[
        str | None,
        typer.Argument(metavar="PERSONA", help="A persona that asks for consent.", autocompletion=complete_personas),
    ] = None,
    repo: Annotated[Path, typer.Option("--repo", metavar="PATH", help="The repository.")] = Path(),
    revoke: Annotated[bool, typer.Option("--revoke", help="Take your consent back.")] = False,
    as_json: JSON = False,
) -> None:
    """Agree, once, to a persona, or to what a repository's own workflows and personas run.

    Your consent holds until one of them changes, or until you revoke it. Read them first: holdfast workflows show,
    holdfast personas show.

    Example: holdfast trust --repo .
    """
    from holdfast.catalog import Catalog, find_demands
    from holdfast.cli.terminal.catalog import get_persona
    from holdfast.config import load_config
    from holdfast.consent import open_consents

    config = load_config()
    catalog = Catalog.for_repository(repo, config.config_dir)
    entries: list[CatalogEntry[Any]] = [*catalog.list_workflows(), *catalog.list_personas()]
    named: list[Agreeable] = []
    if persona is not None:
        entries = [get_persona(persona, repo)]
        named = [entries[0].definition]
    demands = find_demands(repo, entries)
    lines = [plain(line) for one in demands for line in one.lines]
    lines += [f"persona {plain(persona)} may work"] if persona is not None else []
    consents = open_consents(config)
    if revoke:
        count = sum(consents.revoke(one.content_hash) for one in (*named, *demands))
        _print_lines("revoked", lines if count else [], "You had not agreed to anything there.", as_json=as_json)
        return
    for one in (*named, *demands):
        consents.grant(one, by=get_user())
    _print_lines("agreed", lines, "Nothing there needs consent.", as_json=as_json)


def _print_lines(key: str, lines: list[str], nothing: str, *, as_json: bool) -> None:
    if as_json:
        print_json({key: lines})
        return
    sign = "✓" if key == "agreed" else "✗"
    print_text("\n".join(f"{sign} {line}" for line in lines) or nothing)


def agree(
    repo: Path | None,
    workflow: "CatalogEntry[WorkflowTemplate]",
    overrides: Mapping[str, str],
    *,
    is_simulated: bool,
    is_yes: bool,
    can_ask: bool,
    is_elsewhere: bool = False,
) -> "tuple[PersonaConsentStore, AgreedDefinitions]":
    """Return the consents to run a workflow with, and the personas as they were read for that, once.

    A person who can be asked is asked for what is missing; `--yes` is consent. `is_elsewhere` if others drive the run.

    Raises `ConsentRequired` if the repository's own definitions need a consent that there is not.
    """
    from holdfast.catalog import Catalog, list_used
    from holdfast.config import load_config
    from holdfast.consent import AnyConsent, open_consents
    from holdfast.readiness import AgreedDefinitions, find_available, open_readiness

    config = load_config()
    consents = AnyConsent() if is_yes else open_consents(config)
    catalog = Catalog.for_repository(repo, config.config_dir)
    entries = catalog.list_personas()
    readiness = open_readiness(entries, config, repo=repo, consents=consents, is_elsewhere=is_elsewhere)
    agreed = AgreedDefinitions(entries, readiness)
    if is_yes:
        return consents, agreed
    available = find_available(is_simulated=is_simulated, readiness=readiness.before_trust())
    used = list_used(catalog, workflow, available, overrides, entries=entries)
    return _settle(repo, used, used[1:], consents, can_ask=can_ask), agreed


def agree_to_personas(repo: Path | None, names: set[str], *, is_yes: bool, can_ask: bool) -> "PersonaConsentStore":
    """Return the consents to give a run these personas with, as `agree` does. A name that nobody has is passed over."""
    from holdfast.catalog import Catalog
    from holdfast.config import load_config
    from holdfast.consent import AnyConsent, open_consents

    if is_yes:
        return AnyConsent()
    config = load_config()
    catalog = Catalog.for_repository(repo, config.config_dir)
    used = [entry for entry in catalog.list_personas() if entry.definition.name in names]
    return _settle(repo, used, used, open_consents(config), can_ask=can_ask)


def agree_to_change(
    run_id: str, change: Mapping[str, Any], *, is_yes: bool, is_json: bool
) -> "PersonaConsentStore | None":
    """Ask for consent to the personas of a change; return where consents are found, `None` for the usual place."""
    repo = find_repository(run_id)
    if not change.get("persona_overrides"):
        return None
    can_ask = is_interactive() and not is_json
    return agree_to_personas(repo, set(change["persona_overrides"].values()), is_yes=is_yes, can_ask=can_ask)


def _settle(
    repo: Path | None,
    used: "Sequence[CatalogEntry[Any]]",
    personas: "Sequence[CatalogEntry[Any]]",
    consents: "PersonaConsentStore",
    *,
    can_ask: bool,
) -> "PersonaConsentStore":
    """Ask for what is missing where a person can be asked. Raises `ConsentRequired` for what is missing then."""
    from holdfast.catalog import check_trust, find_demands

    if can_ask:
        for demands in find_demands(repo, used):
            _ask(consents, demands, *demands.lines)
        for persona in (entry.definition for entry in personas if entry.definition.requires_consent):
            _ask(consents, persona, f"the persona asks for consent: {persona.description}")
    check_trust(repo, used, consents)
    return consents


def _ask(consents: "PersonaConsentStore", subject: "Agreeable", *lines: str) -> None:
    if consents.has_consent(subject):
        return
    say(f"Nobody here has agreed to this yet ({plain(subject.name)}):")
    for line in lines:
        say(f"  {plain(line)}")
    if confirm("Agree to it, until it changes?"):
        consents.grant(subject, by=get_user())
