"""Images as requests bring them: base64, decoded before anything is written."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.images import Image, check_images, decode_image

_MAX_LISTED = 100  # what is more than a few is refused by its own code


class ImageData(BaseModel):
    """An image in base64. What it is follows from its bytes; a `media_type` that is given must be right."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(default="image", max_length=200, description="What people call it.", examples=["mock-up.png"])
    media_type: str | None = Field(default=None, max_length=200, examples=["image/png"])
    data: str = Field(description="PNG, JPEG, GIF or WebP in base64.", examples=["iVBORw0KGgo="])


Images = Annotated[
    list[ImageData], Field(description="Images that go with it; 8 at most.", examples=[[]], max_length=_MAX_LISTED)
]


def to_images(images: list[ImageData]) -> tuple[Image, ...]:
    """Decode images. Raises `ImageInvalid`."""
    return check_images(decode_image(image.data, image.name, media_type=image.media_type) for image in images)
