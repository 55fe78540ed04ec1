"""Parts of a file by `Range: bytes=…`; one part at a time, which is all that downloads and players ask for."""

import re

from starlette.responses import Response

from holdfast.errors import RangeInvalid

_ONE_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})", re.ASCII)


def to_ranged(response: Response, content: bytes, given: str | None) -> Response:
    """The part that was asked for, as 206; the whole if the header is none we know. Raises `RangeInvalid`."""
    found = _ONE_RANGE.fullmatch(given.strip()) if given else None
    if found is None or found.group(0) == "bytes=-":
        return response
    first, last = _to_ends(found.group(1), found.group(2), len(content))
    headers = {key: value for key, value in response.headers.items() if key != "content-length"}
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Response(content[first : last + 1], 206, headers)


def _to_ends(start: str, end: str, size: int) -> tuple[int, int]:
    first = int(start) if start else max(0, size - int(end))
    last = min(int(end), size - 1) if start and end else size - 1
    if first >= size or first > last:
        raise RangeInvalid(f"The file has {size} bytes.")
    return first, last
