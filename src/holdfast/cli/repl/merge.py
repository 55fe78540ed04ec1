"""`/merge`: what it would do, shown first; a person says yes, and under which message."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from holdfast.cli.repl.conversation import Talk
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.editor import review_text
from holdfast.cli.terminal.output import paint, plain
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.engine.merge_preview import MergePreview, preview_merge

_MOST_FILES = 30
_NOTHING = "  Nothing was changed; there is nothing to merge."


async def merge(talk: Talk, message: str, *, lent: Callable[[], AbstractContextManager[None]]) -> None:
    """Show what would be merged, ask, and do it. `message` is the person's own, if they have given one."""
    preview = None if talk.run_id is None else await preview_merge(talk.db, talk.config, talk.run_id)
    if preview is None or talk.run_id is None or not preview.files:
        talk.tell(_NOTHING)
        return
    for line in _describe(preview):
        talk.tell(line)
    with lent():
        heading, text = "  Commit message:", (message or preview.message).strip()
        chosen = review_text(text, heading, accept="merge", edit="edit the message", indent="    ", suffix=".txt")
    if chosen is None:
        talk.tell("  Nothing was merged.")
        return
    merged = await merge_run(
        talk.db, talk.config, talk.run_id, MergeRequest(message=f"{chosen.strip()}\n"), by=get_user()
    )
    talk.tell(f"  {merged['message']}")


def _describe(preview: MergePreview) -> list[str]:
    many = f"{len(preview.files)} file{'s' if len(preview.files) != 1 else ''}"
    lines = [f"  {many} to {paint(plain(preview.target), 'bold')}:"]
    for file in preview.files[:_MOST_FILES]:
        counts = "binary" if file.added is None else f"+{file.added} −{file.removed}"
        lines.append(f"    {preview.kinds.get(file.path, 'M')} {plain(file.path)}  {paint(counts, 'dim')}")
    if len(preview.files) > _MOST_FILES:
        lines.append(paint(f"    and {len(preview.files) - _MOST_FILES} more: /diff shows all", "dim"))
    return [*lines, f"  {plain(preview.others)}"] if preview.others else lines
