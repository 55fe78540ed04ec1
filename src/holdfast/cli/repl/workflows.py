"""`/run`: from what was discussed to a workflow. Requirements are drafted and shown; a person starts it."""

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

from holdfast.catalog import Catalog, CatalogEntry
from holdfast.cli.commands.trust import agree
from holdfast.cli.lazy import did_you_mean
from holdfast.cli.repl.conversation import Talk
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.drive import drive, restoring_interrupts
from holdfast.cli.terminal.editor import review_text
from holdfast.cli.terminal.output import finish, paint
from holdfast.engine.conversation.journal import read_conversation
from holdfast.enums import Backend
from holdfast.errors import ConfigInvalid, TemplateNotFound
from holdfast.workflow import WorkflowTemplate

_DRAFT = (
    "Write down what is to be done, as requirements for someone who has not read this conversation: what is wanted and "
    "why, what is decided, what is out of scope, how it is checked. Markdown, no introduction, nothing made up."
)


async def start_workflow(
    talk: Talk, catalog: Catalog, name: str, *, lent: Callable[[], AbstractContextManager[None]]
) -> None:
    """Draft requirements from the conversation, have them confirmed, and run the workflow in front of the person.

    Whatever reads from the terminal here does so while it is `lent`.
    """
    entry = _get_workflow(catalog, name)
    if talk.run_id is None:
        raise ConfigInvalid("Nothing was discussed yet.", hint="Say first what you want.", key="/run")
    is_simulated = talk.persona.backend is Backend.SIMULATED
    with lent():
        agree(talk.repo, entry, {}, is_simulated=is_simulated, is_yes=False, can_ask=True)
    template = entry.definition
    draft = await draft_requirements(talk)
    with lent():
        requirements = review_text(draft, paint(f"\nRequirements for {template.name}:", "bold"), accept="start")
        if requirements is None:
            talk.tell("  Nothing was started.")
        else:
            await _run(talk, template, requirements)


async def _run(talk: Talk, template: WorkflowTemplate, requirements: str) -> None:
    run_id = str(uuid.uuid4())
    with restoring_interrupts():
        end = await drive(
            talk.engine,
            talk.db,
            run_id,
            lambda: talk.engine.run(
                template,
                repo_path=talk.repo,
                base_branch=talk.branch,
                requirements_md=requirements,
                pre_allocated_run_id=run_id,
                started_by=get_user(),
            ),
            phase_keys=[phase.key for phase in template.phases],
            can_ask=True,
        )
    finish(end.result, is_json=False)


def _get_workflow(catalog: Catalog, name: str) -> CatalogEntry[WorkflowTemplate]:
    known = [entry.definition.name for entry in catalog.list_workflows()]
    if not name:
        raise ConfigInvalid("Name the workflow.", hint=f"There are {', '.join(known)}.", key="/run")
    try:
        return catalog.get_workflow(name)
    except TemplateNotFound as error:
        error.hint = did_you_mean(name, known).strip() or error.hint
        raise


async def draft_requirements(talk: Talk) -> str:
    """Have the agent sum up what was discussed; of a simulated one, who cannot, return what the person has said."""
    assert talk.run_id is not None
    if talk.persona.backend is Backend.SIMULATED:
        conversation = await read_conversation(talk.db, talk.run_id)
        return "\n\n".join(message.text for message in conversation.messages.values())
    await talk.say(_DRAFT)
    await talk.wait()
    return talk.view.answer
