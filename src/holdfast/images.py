"""Images that a person gives with requirements or a message: what they are is decided by their content.

The bytes are stored once, as a row of the run. Events, requests and pages have an `ImageLabel` in their place.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ImageInvalid
from holdfast.quantities import format_size

MAX_IMAGES = 8
# What the strictest provider takes of one image.
MAX_IMAGE_BYTES = 5_000_000
MAX_TOTAL_BYTES = 20_000_000
_MAX_NAME_CHARS = 120
_KINDS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WebP"}
_ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}


@dataclass(frozen=True, slots=True)
class ImageLabel:
    """What is known of an image without its bytes."""

    digest: str
    media_type: str
    size: int
    name: str

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ImageLabel":
        digest, media_type, name = (str(fields.get(key) or "") for key in ("digest", "media_type", "name"))
        size = fields.get("size")
        return cls(digest, media_type, size if isinstance(size, int) else 0, name)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def file_name(self) -> str:
        """A name for its file that nobody outside has chosen."""
        return f"{self.digest[:16]}{_ENDINGS.get(self.media_type, '')}"

    def __str__(self) -> str:
        return f"image {self.name} ({_KINDS.get(self.media_type, self.media_type)}, {format_size(self.size)})"


@dataclass(frozen=True, slots=True)
class Image:
    """An image with its bytes."""

    label: ImageLabel
    data: bytes


def read_labels(facts: object) -> tuple[ImageLabel, ...]:
    """Read the labels that an event holds; what is none is left out."""
    entries = facts if isinstance(facts, list) else []
    return tuple(ImageLabel.from_dict(entry) for entry in entries if isinstance(entry, Mapping))


def unite_labels(labels: Iterable[ImageLabel]) -> tuple[ImageLabel, ...]:
    """Return the labels in their order, each image once."""
    return tuple({label.digest: label for label in labels}.values())


def find_media_type(data: bytes) -> str | None:
    """Tell by its first bytes what kind of image this is; `None` for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def to_image(data: bytes, name: str, *, media_type: str | None = None) -> Image:
    """Make an image of bytes. Raises `ImageInvalid` if they are none, too many, or another kind than is said."""
    plain = "".join(char if char.isprintable() else "?" for char in name)[:_MAX_NAME_CHARS] or "image"
    if len(data) > MAX_IMAGE_BYTES:
        raise ImageInvalid(f"{plain} is too big; an image has at most {format_size(MAX_IMAGE_BYTES)}.")
    found = find_media_type(data)
    if found is None:
        raise ImageInvalid(f"{plain} is no image that can be sent: PNG, JPEG, GIF and WebP are.")
    if media_type is not None and media_type != found:
        raise ImageInvalid(f"{plain} is {found}, not {media_type[:60]!r}.", hint="Say what it is, or leave it out.")
    return Image(ImageLabel(hashlib.sha256(data).hexdigest(), found, len(data), plain), data)


def decode_image(text: str, name: str, *, media_type: str | None = None) -> Image:
    """Make an image of base64. Raises as `to_image` does."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageInvalid(f"The data of {name[:_MAX_NAME_CHARS]!r} is not base64.") from error
    return to_image(data, name, media_type=media_type)


def read_image_file(path: Path) -> Image:
    """Read an image from a file. Raises `ImageInvalid`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImageInvalid(f"{path} cannot be read: {reason}.", hint="Name a file that is there.") from error
    return to_image(data, path.name)


def check_images(images: Iterable[Image]) -> tuple[Image, ...]:
    """Return the images, each once. Raises `ImageInvalid` if they are too many, or too big together."""
    unique = tuple({image.label.digest: image for image in images}.values())
    if len(unique) > MAX_IMAGES:
        raise ImageInvalid(f"There are {len(unique)} images; {MAX_IMAGES} go along at most.")
    total = sum(image.label.size for image in unique)
    if total > MAX_TOTAL_BYTES:
        limit = format_size(MAX_TOTAL_BYTES)
        raise ImageInvalid(f"The images have {format_size(total)} together; {limit} go along at most.")
    return unique


def list_labels(images: Sequence[Image]) -> list[dict[str, Any]]:
    """Return the labels of images as events hold them."""
    return [image.label.to_dict() for image in images]
