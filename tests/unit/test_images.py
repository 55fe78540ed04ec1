"""What counts as an image, and how much of it."""

import base64
from pathlib import Path

import pytest

from holdfast.errors import ImageInvalid
from holdfast.images import (
    MAX_IMAGE_BYTES,
    ImageLabel,
    check_images,
    decode_image,
    read_image_file,
    read_labels,
    to_image,
)

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PNG + b"rest", "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF\0\0\0\0WEBPrest", "image/webp"),
    ],
)
def test_the_content_decides_what_it_is(data: bytes, expected: str) -> None:
    assert to_image(data, "really.txt").label.media_type == expected


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"%PDF-1.7", b"RIFF\0\0\0\0WAVErest", b"plain text"])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(ImageInvalid):
        to_image(data, "a.png")


def test_one_that_is_too_big_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    with (tmp_path / "big.png").open("wb") as file:
        file.write(PNG)
        file.truncate(10**12)

    with pytest.raises(ImageInvalid, match="too big"):
        read_image_file(tmp_path / "big.png")


@pytest.mark.parametrize("path", ["missing.png", "."])
def test_a_file_that_cannot_be_read_is_a_typed_refusal(tmp_path: Path, path: str) -> None:
    with pytest.raises(ImageInvalid):
        read_image_file(tmp_path / path)


def test_a_wrong_media_type_and_data_that_is_no_base64_are_refused() -> None:
    text = base64.b64encode(PNG).decode()

    assert decode_image(text, "a.png", media_type="image/png").data == PNG
    with pytest.raises(ImageInvalid, match="image/png"):
        decode_image(text, "a.png", media_type="image/jpeg")
    with pytest.raises(ImageInvalid, match="base64"):
        decode_image("data:image/png;base64," + text, "a.png")


def test_the_same_image_counts_once_and_all_together_have_a_limit() -> None:
    assert len(check_images([to_image(PNG, name) for name in ("a.png", "b.png")])) == 1
    big = [to_image(PNG + bytes([number]) * (MAX_IMAGE_BYTES - 8), "a.png") for number in range(5)]
    with pytest.raises(ImageInvalid, match="together"):
        check_images(big)


def test_a_name_is_printable_and_short() -> None:
    assert to_image(PNG, "a\x1b[31m\n.png").label.name == "a?[31m?.png"
    assert len(to_image(PNG, "x" * 10_000).label.name) < 200


def test_labels_of_a_damaged_event_do_not_raise() -> None:
    assert read_labels(None) == read_labels({}) == read_labels([1, "a"]) == ()
    assert read_labels([{"name": 3, "size": "x"}]) == (ImageLabel("", "", 0, "3"),)
