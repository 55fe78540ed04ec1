"""Images in what an agent is told: a reference by hash everywhere, the bytes only in the request that goes out.

So replay compares hashes, summaries and prices see no base64, and nothing of it is recorded.
"""

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.images import ImageLabel

_MARK = "sha256:"
# Providers count an image by its pixels, after making it smaller: the dearest published bound is below this.
IMAGE_TOKENS = 5_000
# What every provider takes in one request; of more, the last ones are sent.
_MAX_SENT = 20
_MAX_SENT_BYTES = 20_000_000
ReadImage = Callable[[str], Awaitable[bytes]]


def to_content(text: str, images: Sequence[ImageLabel]) -> str | list[Any]:
    """Return the content of a message with images; without any it is the text."""
    return [{"type": "text", "text": text}, *map(_to_reference, images)] if images else text


def _to_reference(label: ImageLabel) -> dict[str, Any]:
    return {
        "type": "image",
        "file_id": f"{_MARK}{label.digest}",
        "mime_type": label.media_type,
        "extras": {"name": label.name, "size": label.size},
    }


def find_label(block: Any) -> ImageLabel | None:
    """Return the image that a block of a message refers to; `None` for any other block."""
    file_id = block.get("file_id") if isinstance(block, Mapping) and block.get("type") == "image" else None
    if not isinstance(file_id, str) or not file_id.startswith(_MARK):
        return None
    return ImageLabel.from_dict(
        {"digest": file_id.removeprefix(_MARK), "media_type": block.get("mime_type"), **(block.get("extras") or {})}
    )


def list_references(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """List the references to images in messages, each image once."""
    blocks = (block for message in messages for block in _blocks_of(message))
    found = {label.digest: block for block in blocks if (label := find_label(block)) is not None}
    return list(found.values())


def measure_images(content: Any) -> tuple[int, int]:
    """Return how many images a content has, and how many characters of it are their bytes."""
    blocks = content if isinstance(content, list) else []
    images = [block for block in blocks if isinstance(block, Mapping) and block.get("type") in ("image", "image_url")]
    return len(images), sum(len(text) for block in images for text in _find_data(block))


def _find_data(block: Mapping[str, Any]) -> list[str]:
    url = block.get("image_url")
    found = (block.get("base64"), url.get("url") if isinstance(url, Mapping) else url)
    return [text for text in found if isinstance(text, str)]


async def with_bytes(messages: Sequence[Any], read_image: ReadImage, *, model: Any) -> list[Any]:
    """Return the messages with the bytes of their images, in the form that every client translates.

    A model that is known not to take images gets a line in the place of each.
    """
    room = _MAX_SENT_BYTES
    chosen: set[str] = set()
    for label in map(find_label, reversed(list_references(messages)) if takes_images(model) else ()):
        if label is not None and len(chosen) < _MAX_SENT and label.size <= room:
            chosen.add(label.digest)
            room -= label.size
    return [await _fill(message, read_image, chosen) for message in messages]


def takes_images(model: Any) -> bool:
    profile = getattr(model, "profile", None)
    return not (isinstance(profile, Mapping) and profile.get("image_inputs") is False)


async def _fill(message: Any, read_image: ReadImage, chosen: set[str]) -> Any:
    blocks = _blocks_of(message)
    if not any(find_label(block) for block in blocks):
        return message
    content: list[Any] = []
    for block in blocks:
        label = find_label(block)
        if label is None:
            content.append(block)
        elif label.digest not in chosen:
            content.append({"type": "text", "text": f"[{label}: it is not shown here]"})
        else:
            data = base64.b64encode(await read_image(label.digest)).decode()
            content.append({"type": "image", "base64": data, "mime_type": label.media_type})
    return message.model_copy(update={"content": content})


def _blocks_of(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", None)
    return content if isinstance(content, list) else []
