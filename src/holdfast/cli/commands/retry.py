"""The command retry: reopen a failed run.

What was done before the phase that failed is not done again.
"""

from holdfast.cli.commands.resume import drive_on
from holdfast.cli.terminal.arguments import JSON, RUN_ID, YES
from holdfast.cli.terminal.requirements import IMAGE, PERSONA, REQUIREMENTS, REQUIREMENTS_FILE, UNSANDBOXED, read_change


def retry(
    run_id: RUN_ID,
    yes: YES = False,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    image: IMAGE = None,
    unsandboxed: UNSANDBOXED = False,
    as_json: JSON = False,
) -> None:
    """Reopen a failed run at the phase that failed.

    Other personas and requirements, and more images, apply from that phase on.

    Example: holdfast retry 3f2a --persona implementer=anthropic-developer
    """
    change = read_change(requirements, requirements_file, personas=persona, images=image, is_unsandboxed=unsandboxed)
    drive_on(run_id, "retry", is_yes=yes, is_json=as_json, change=change)
