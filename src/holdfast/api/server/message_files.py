"""What goes along with a message that came by HTTP: its images, and the files of the repository that it mentions."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.api.image_data import ImageData, to_images
from holdfast.engine.conversation.mentioned_files import include_files
from holdfast.images import Image, check_images
from holdfast.persona import AgentPersona


class MessageContent(NamedTuple):
    """A message as the agent is told it; the text is empty where that is what the person wrote."""

    text: str
    images: tuple[Image, ...]


async def include_mentioned(
    text: str, images: Sequence[ImageData], *, folder: Path | None, persona: AgentPersona | None
) -> MessageContent:
    """Return a message with the files that it mentions, as far as its persona may read them; images among them too.

    Without a folder the repository is not on this machine: then the agent has the files in its own. Raises
    `ImageInvalid`.
    """
    sent = to_images(list(images))
    if "@" not in text or persona is None or folder is None:
        return MessageContent("", sent)
    mentioned = await asyncio.to_thread(include_files, text, folder, persona.permissions)
    return MessageContent("\n".join([mentioned.content, *mentioned.refused]), check_images([*sent, *mentioned.images]))
