"""`@file` in a message: the file goes along, as it is in the person's own folder, unless it must not be read."""

import re
from pathlib import Path
from typing import NamedTuple

from holdfast.definitions.files import is_plain_file
from holdfast.images import Image, find_media_type, read_image_file
from holdfast.persona import Permissions, Verdict

MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 10
_MENTION = re.compile(r"(?<![\w@/.])@([\w./+-]*[\w/+-])")


class Mentioned(NamedTuple):
    """A message with its files: what the agent is told, which files went along, and why others did not."""

    content: str
    included: list[str]
    refused: list[str]
    images: list[Image]


def include_files(text: str, repo: Path, permissions: Permissions) -> Mentioned:
    """Put the content of each file that is mentioned behind the text; an image goes along as one.

    A word that names no file stays a word. Raises `ImageInvalid` for an image that is too big.
    """
    included: list[str] = []
    refused: list[str] = []
    parts: list[str] = []
    images: list[Image] = []
    for name in dict.fromkeys(_MENTION.findall(text)):
        path = repo / name
        if not is_plain_file(path):
            continue
        if (reason := _why_not(name, path, repo, permissions, len(included))) is not None:
            refused.append(f"@{name} was left out: {reason}")
            continue
        if (image := _read_image(path)) is not None:
            images.append(image)
            included.append(str(image.label))
            continue
        part, note = _read(path)
        included.append(f"{name}{note}")
        parts.append(f'<file path="/{name}"{" cut_short=true" if note else ""}>\n{part}\n</file>')
    return Mentioned("\n\n".join([text, *parts]), included, refused, images)


def _why_not(name: str, path: Path, repo: Path, permissions: Permissions, many: int) -> str | None:
    from holdfast.agents.policy.tool_policy import ToolPolicy

    judgement = ToolPolicy(repo, permissions).judge_path(f"/{name}", is_write=False)
    if judgement.verdict is not Verdict.ALLOW:
        return judgement.reason.rstrip(".").partition(" Ask for")[0] + "."
    if many >= MAX_FILES:
        return f"a message takes {MAX_FILES} files at most."
    with path.open("rb") as file:
        head = file.read(8192)
        if b"\0" in head and find_media_type(head) is None:
            return "it is no text."
    return None


def _read_image(path: Path) -> Image | None:
    """Read a file that is an image; `None` for any other. Raises `ImageInvalid` for one that is too big."""
    with path.open("rb") as file:
        is_image = find_media_type(file.read(16)) is not None
    return read_image_file(path) if is_image else None


def _read(path: Path) -> tuple[str, str]:
    size = path.stat().st_size
    with path.open("rb") as file:
        text = file.read(MAX_FILE_BYTES).decode(errors="replace")
    if size <= MAX_FILE_BYTES:
        return text.rstrip("\n"), ""
    return text, f" (the first {MAX_FILE_BYTES // 1024} of {size // 1024} KiB)"
