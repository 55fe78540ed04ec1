"""A workflow is checked over HTTP before it is anywhere: every fault with its line and field, and nothing kept."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.api.server_world import WORKFLOW, Api

GOOD = WORKFLOW.format(name="mine", risk="low").lstrip()


async def validate(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.viewer.post("/api/workflows/validate", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_good_workflow_has_no_findings_and_is_kept_nowhere(api: Api) -> None:
    before = sorted(str(path) for path in Path(api.repo).rglob("*"))

    as_text = await validate(api, text=GOOD, repo_path=str(api.repo))
    as_object = await validate(api, definition=yaml.safe_load(GOOD), repo_path=str(api.repo))

    assert (as_text["is_valid"], as_text["name"], as_text["findings"]) == (True, "mine", [])
    assert as_object == as_text
    assert sorted(str(path) for path in Path(api.repo).rglob("*")) == before
    listed = (await api.viewer.get("/api/workflows", params={"repo_path": str(api.repo)})).json()["items"]
    assert "mine" not in [item["name"] for item in listed]


async def test_every_fault_has_its_line_and_field(api: Api) -> None:
    wrong = GOOD.replace("role: author", "role: autor", 1).replace("title: Second note", "titel: Second note")

    found = await validate(api, text=wrong, repo_path=str(api.repo))

    lines = wrong.splitlines()
    places = {finding["field"]: lines[finding["line"] - 1].strip() for finding in found["findings"]}
    assert not found["is_valid"]
    assert places["phases[1].titel"] == "titel: Second note"
    assert "phases[1].title" in places


async def test_a_schema_that_is_not_there_is_found_where_it_is_named(api: Api) -> None:
    found = await validate(api, text=GOOD)

    lines = GOOD.splitlines()
    assert [finding["field"] for finding in found["findings"]] == [
        "phases[0].expected_artifact.schema",
        "phases[1].expected_artifact.schema",
    ]
    assert all("t/note@1" in lines[finding["line"] - 1] for finding in found["findings"])
    assert found["name"] == "mine"


async def test_an_object_has_fields_and_no_lines(api: Api) -> None:
    found = await validate(api, definition={"name": "mine"})

    assert {finding["line"] for finding in found["findings"]} == {None}
    assert "phases" in {finding["field"] for finding in found["findings"]}


@pytest.mark.parametrize(
    "text",
    ["", "/etc/passwd", "- a\n- b\n", "a: &a [*a]", "{", "a: !!python/object/apply:os.getcwd []", "\t", "[" * 5000],
)
async def test_what_is_no_workflow_is_a_finding(api: Api, text: str) -> None:
    found = await validate(api, text=text)

    assert not found["is_valid"]
    assert found["findings"]


@pytest.mark.parametrize(
    "body", [{}, {"text": "a", "definition": {}}, {"text": "a" * 200_001}, {"text": "a", "file": "b"}, {"text": 1}]
)
async def test_a_request_that_makes_no_sense_is_refused(api: Api, body: dict[str, Any]) -> None:
    answer = await api.viewer.post("/api/workflows/validate", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


async def test_the_schemas_of_a_foreign_folder_are_not_looked_at(api: Api, tmp_path: Path) -> None:
    answer = await api.viewer.post("/api/workflows/validate", json={"text": GOOD, "repo_path": str(tmp_path)})

    assert (answer.status_code, answer.json()["code"]) == (403, "repository_not_allowed")


async def test_a_workflow_that_is_too_big_to_be_one_is_not_looked_through(api: Api) -> None:
    big = {"name": "x", "phases": [{"key": f"p{number}"} for number in range(20_000)]}

    refused = [
        await api.viewer.post("/api/workflows/validate", json={"definition": big}),
        await api.viewer.post("/api/workflows/validate", json={"text": "a: b\n" * 40_000}),
    ]
    wrong = {"definition": {f"k{number}": 1 for number in range(300)}}
    many = await api.viewer.post("/api/workflows/validate", json=wrong)

    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(422, "request_invalid")] * 2
    assert len(many.json()["findings"]) == 100
