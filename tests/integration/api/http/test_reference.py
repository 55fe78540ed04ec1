"""The reference names every route and every code with its status."""

import re
from pathlib import Path

from tests.integration.api.http.test_auth import LEAST_ROLE, OPEN

from holdfast.api.http.problems import STATUSES
from holdfast.cli.app import SECTIONS

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "http.md").read_text()


def test_every_route_is_in_the_reference_with_its_role() -> None:
    rows = dict(re.findall(r"^\| `([A-Z]+ [^`]+)` \| (\S+) \|", PAGE, re.MULTILINE))
    roles = {**LEAST_ROLE, **dict.fromkeys(OPEN, "–")}

    assert rows == {f"{method} {path}": role for (method, path), role in roles.items()}


def test_every_code_is_in_the_reference_beside_its_status() -> None:
    rows = dict(re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE, re.MULTILINE))

    missing = [code for code, status in STATUSES.items() if f"`{code}`" not in rows[str(status)]]

    assert missing == []


def test_every_command_has_a_route_that_is_there_or_is_said_to_have_none() -> None:
    _, _, table = PAGE.partition("## Commands and their routes")
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table.partition("\n## ")[0], re.MULTILINE)
    routes_by_command = {command: route for cell, route in rows for command in re.findall(r"`([a-z ]+)`", cell)}
    commands = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
    spoken = {f"{name} {member}" for name, entry in commands.items() for member in entry.members or ()}
    spoken |= {name for name, entry in commands.items() if not entry.members}
    routes = {path for _, path in LEAST_ROLE}

    named = {path for route in routes_by_command.values() for path in re.findall(r"`[A-Z]+ (\S+?)/?`", route)}

    assert set(routes_by_command) == spoken | {"holdfast"}
    assert named <= routes
