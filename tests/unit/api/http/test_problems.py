"""An error as a problem: what it says of itself is in the body, whatever error has it."""

import json
from typing import Any

import pytest

from holdfast.api.http.problems import from_error
from holdfast.errors import HoldfastError, PersonaIneligible, WorkspaceTooLarge


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (
            PersonaIneligible("x", role_id="author", missing=["spec_write"]),
            {"role_id": "author", "missing": ["spec_write"]},
        ),
        (WorkspaceTooLarge("x", missing="the files of its last step"), {"missing": "the files of its last step"}),
    ],
)
def test_what_is_missing_is_in_the_body_with_or_without_a_role(error: HoldfastError, facts: dict[str, Any]) -> None:
    body = json.loads(bytes(from_error(error, "r").body))
    assert {name: body[name] for name in ("role_id", "missing") if name in body} == facts
