"""The reference names every route and every code with its status."""

import re
from pathlib import Path

from tests.integration.api.test_roles import LEAST_ROLE, OPEN

from holdfast.api.problems import STATUSES

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text()


def test_every_route_is_in_the_reference_with_its_role() -> None:
    rows = dict(re.findall(r"^\| `([A-Z]+ [^`]+)` \| (\S+) \|", PAGE, re.MULTILINE))
    roles = {**LEAST_ROLE, **dict.fromkeys(OPEN, "–")}

    assert rows == {f"{method} {path}": role for (method, path), role in roles.items()}


def test_every_code_is_in_the_reference_beside_its_status() -> None:
    rows = dict(re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE, re.MULTILINE))

    missing = [code for code, status in STATUSES.items() if f"`{code}`" not in rows[str(status)]]

    assert missing == []
