"""What routes take: ids, text and the server, checked before they reach a query."""

from typing import Annotated

from fastapi import Depends, Header, Path
from pydantic import AfterValidator, StringConstraints

from holdfast.api.server import Server, get_server

ServerDep = Annotated[Server, Depends(get_server)]


def _check_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold NUL")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("must be valid Unicode") from error
    return value


Text = Annotated[str, AfterValidator(_check_text)]
ShortText = Annotated[str, StringConstraints(max_length=200), AfterValidator(_check_text)]
IdempotencyKey = Annotated[ShortText | None, Header(min_length=1)]
BranchName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"^[^-\x00-\x20~^:?*\[\\\x7f][^\x00-\x20~^:?*\[\\\x7f]*$"),
]
RunIdPath = Annotated[
    str,
    Path(description="The id of a run.", max_length=200, examples=["3f2a0b9e-6c1d-4e8f-9a7b-2d5c8e1f0a34"]),
    AfterValidator(_check_text),
]
ApprovalIdPath = Annotated[str, Path(description="The id of an approval.", max_length=200), AfterValidator(_check_text)]
