"""Big values are stored once, by content: an event over the limit keeps digests in their place.

A stored event may carry `$blobs`: an object (payload key → digest), or one digest for the whole payload.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.errors import JournalCorrupt
from holdfast.runtime.jsondata import from_json, to_json

INLINE_BYTES = 32 * 1024
_WORTH_MOVING_BYTES = 4 * 1024
MARK = "$blobs"


def move_out_big_values(body: bytes, content: Mapping[str, Any]) -> tuple[bytes, dict[str, bytes]]:
    """Return the body to store and the blobs it refers to; a small body comes back as it is."""
    if len(body) <= INLINE_BYTES:
        return body, {}
    blobs: dict[str, bytes] = {}
    moved: dict[str, str] = {}
    for key, value in content["payload"].items():
        text, _ = to_json(value)
        if len(text) > _WORTH_MOVING_BYTES:
            moved[key] = _add(blobs, text)
    inline = {key: value for key, value in content["payload"].items() if key not in moved}
    rest = {key: value for key, value in content.items() if key != "payload"}
    smaller, _ = to_json({**rest, "payload": inline, MARK: moved})
    if len(smaller) <= INLINE_BYTES:
        return smaller, blobs
    blobs = {}
    whole = _add(blobs, to_json(content["payload"])[0])
    return to_json({**rest, "payload": {}, MARK: whole})[0], blobs


def _add(blobs: dict[str, bytes], text: bytes) -> str:
    digest = hashlib.sha256(text).hexdigest()
    blobs[digest] = text
    return digest


def digests_in(contents: Iterable[Mapping[str, Any]]) -> set[str]:
    found: set[str] = set()
    for content in contents:
        mark = content.get(MARK)
        if isinstance(mark, str):
            found.add(mark)
        elif isinstance(mark, dict):
            found.update(mark.values())
    return found


def put_back(content: dict[str, Any], blobs: Mapping[str, bytes], where: str) -> None:
    """Replace the digests in a stored event by what they stand for. Raises `JournalCorrupt`."""
    mark = content.pop(MARK, None)
    if mark is None:
        return
    if isinstance(mark, str):
        content["payload"] = _checked(mark, blobs, where)
        return
    for key, digest in mark.items():
        content["payload"][key] = _checked(digest, blobs, where)


def _checked(digest: str, blobs: Mapping[str, bytes], where: str) -> Any:
    text = blobs.get(digest)
    if text is None or hashlib.sha256(text).hexdigest() != digest:
        raise JournalCorrupt(f"The big value {digest[:12]}… of {where} is {'missing' if text is None else 'damaged'}.")
    return from_json(text)
