import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.enums import Backend, Capability, RiskLevel
from holdfast.errors import TemplateInvalid
from holdfast.workflow import WorkflowTemplate, check_schemas, load_workflow_file, load_workflows_from_dir


def phase(key: str, **fields: Any) -> dict[str, Any]:
    return {
        "key": key,
        "title": key.title(),
        "risk": "low",
        "role": "author",
        "instructions": "Do it well.",
        "timeout_seconds": 60,
        "expected_artifact": {"path": f"out/{key}.json", "schema": "dev/spec@1"},
        **fields,
    }


def template(*phases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "name": "sample",
        "version": 1,
        "description": "",
        "roles": [{"id": "author", "required_capabilities": ["spec_write"], "preferred_backends": ["openrouter"]}],
        "phases": list(phases) or [phase("spec")],
        **fields,
    }


def load(*phases: dict[str, Any], **fields: Any) -> WorkflowTemplate:
    return WorkflowTemplate.model_validate(template(*phases, **fields))


def places(refused: pytest.ExceptionInfo[ValidationError]) -> list[str]:
    return [".".join(map(str, error["loc"])) for error in refused.value.errors()]


def test_a_dictionary_becomes_a_typed_template() -> None:
    loaded = load(phase("spec", risk="high"), copy=[".env"], setup=[["make", "deps"]])

    assert loaded.phase("spec").risk is RiskLevel.HIGH
    assert loaded.role("author").required_capabilities == (Capability.SPEC_WRITE,)
    assert loaded.role("author").preferred_backends == (Backend.OPENROUTER,)
    assert loaded.phase("spec").expected_artifact.schema_id == "dev/spec@1"
    assert (loaded.copy_files, loaded.setup) == ((".env",), (("make", "deps"),))


def test_the_dump_is_plain_json_data_and_becomes_the_same_template_again() -> None:
    loaded = load(phase("spec"), phase("plan", approval="always", budget_usd=0.25, checks=[["true"]]), copy=["a/.env"])

    dumped = loaded.model_dump(by_alias=True)

    assert json.loads(json.dumps(dumped)) == dumped
    assert type(dumped["phases"][0]["risk"]) is str
    assert dumped["phases"][0]["expected_artifact"] == {"path": "out/spec.json", "schema": "dev/spec@1"}
    assert dumped["copy"] == ["a/.env"]
    assert WorkflowTemplate.model_validate(dumped) == loaded
    assert WorkflowTemplate.model_validate(dumped).content_hash == loaded.content_hash


def test_a_template_cannot_be_changed() -> None:
    loaded = load()

    with pytest.raises(ValidationError):
        loaded.name = "other"


def test_without_needs_a_phase_needs_the_one_before_it() -> None:
    loaded = load(phase("a"), phase("b"), phase("c", needs=[]), phase("d"))

    assert [loaded.needs_of(key) for key in "abcd"] == [(), ("a",), (), ("c",)]


def test_writing_the_default_needs_out_changes_no_hash() -> None:
    left_out = load(phase("a"), phase("b"))

    written = load(phase("a", needs=[]), phase("b", needs=["a"]))

    assert written == left_out
    assert written.content_hash == left_out.content_hash


def test_writing_a_default_out_changes_no_hash_but_a_new_value_does() -> None:
    plain = load()

    assert load(phase("spec", attempts=1, approval="auto", read_only=False)).content_hash == plain.content_hash
    assert load(phase("spec", attempts=2)).content_hash != plain.content_hash
    assert load(description="for people").content_hash != plain.content_hash


def test_the_content_hash_of_a_known_template_never_changes() -> None:
    # Stored runs are found by this hash: if this test fails, the change breaks every database there is.
    known = load(phase("spec"), phase("plan", risk="high", budget_usd=1.5), version="1.2.0", copy=[".env"])

    assert known.content_hash == "a0b9211aa3f3c9a2ccebadeb7fb02ca7ec72046b4572daccaa92cad7a1b62305"


def test_the_order_of_work_follows_needs_and_then_the_order_written() -> None:
    loaded = load(
        phase("report", needs=["x", "y"]),
        phase("y", needs=["spec"]),
        phase("x", needs=["spec"]),
        phase("spec", needs=[]),
    )

    assert loaded.topological_order() == ("spec", "y", "x", "report")
    assert loaded.upstream_of("report") == ("spec", "y", "x")
    assert loaded.upstream_of("spec") == ()


def test_phases_are_ready_once_all_they_need_is_completed() -> None:
    loaded = load(phase("a"), phase("b", needs=["a"]), phase("c", needs=["a"]), phase("d", needs=["b", "c"]))

    assert loaded.phases_ready([]) == ("a",)
    assert loaded.phases_ready(["a"]) == ("b", "c")
    assert loaded.phases_ready(["a", "c"]) == ("b",)
    assert loaded.phases_ready(["a", "b", "c"]) == ("d",)
    assert loaded.phases_ready(["a", "b", "c", "d"]) == ()


@st.composite
def graphs(draw: st.DrawFn) -> WorkflowTemplate:
    count = draw(st.integers(1, 8))
    keys = [f"p{number}" for number in range(count)]
    phases = [
        phase(key, needs=draw(st.lists(st.sampled_from(keys[:at]), unique=True)) if at else [])
        for at, key in enumerate(keys)
    ]
    return load(*draw(st.permutations(phases)))


@given(graphs())
@settings(max_examples=50, deadline=None)
def test_in_any_graph_every_phase_comes_after_all_it_needs_and_the_dump_round_trips(loaded: WorkflowTemplate) -> None:
    order = loaded.topological_order()

    assert sorted(order) == sorted(one.key for one in loaded.phases)
    for at, key in enumerate(order):
        assert set(loaded.needs_of(key)) <= set(loaded.upstream_of(key)) <= set(order[:at])
    assert WorkflowTemplate.model_validate(loaded.model_dump(by_alias=True)) == loaded


@pytest.mark.parametrize(
    ("risk", "approval", "requires_approval"),
    [
        ("low", "auto", False),
        ("medium", "auto", True),
        ("critical", "auto", True),
        ("low", "always", True),
        ("high", "never", False),
    ],
)
def test_a_person_is_asked_by_risk_unless_the_template_says_otherwise(
    risk: str, approval: str, requires_approval: bool
) -> None:
    loaded = load(phase("spec", risk=risk, approval=approval))

    assert loaded.phase("spec").requires_approval is requires_approval


def test_a_budget_is_counted_in_whole_micro_dollars() -> None:
    loaded = load(phase("spec", budget_usd=0.1))

    assert loaded.phase("spec").budget_micros == 100_000


@pytest.mark.parametrize(
    ("faulty", "place"),
    [
        (template(colour="red"), "colour"),
        (template(phase("spec", colour="red")), "phases.0.colour"),
        (template(phase("spec", risk="tiny")), "phases.0.risk"),
        (template(phase("spec", risk="critical", approval="never")), "phases.0.approval"),
        (template(phase("spec", role="nobody")), "phases.0.role"),
        (template(phase("a"), phase("a")), "phases.1.key"),
        (template(phase("a"), phase("b", needs=["z"])), "phases.1.needs"),
        (template(phase("a", needs=["b"]), phase("b", needs=["a"])), "phases.0.needs"),
        (template(phase("a", needs=["a"])), "phases.0.needs"),
        (template(phase("a/b")), "phases.0.key"),
        (template(phase("a\n")), "phases.0.key"),
        (template(phase("spec", timeout_seconds=0)), "phases.0.timeout_seconds"),
        (template(phase("spec", attempts=0)), "phases.0.attempts"),
        (template(phase("spec", budget_usd=float("nan"))), "phases.0.budget_usd"),
        (template(phase("spec", checks=["make test"])), "phases.0.checks.0"),
        (template(phase("spec", checks=[[]])), "phases.0.checks.0"),
        (template(phase("spec", instructions=" ")), "phases.0.instructions"),
        (template(version=1.1), "version"),
        (template(version=True), "version"),
        (template(name="a/b"), "name"),
        (template(roles=[]), "roles"),
        (template(setup=[["a\0b"]]), "setup.0"),
    ],
)
def test_a_template_that_cannot_work_is_refused_at_the_field_that_is_wrong(faulty: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        WorkflowTemplate.model_validate(faulty)

    assert place in places(refused)


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../../x", "~/x", ".git/config", "sub/.GIT/x", "", ".", "a/", "a\\b", "a\0b", "a\nb"]
)
def test_paths_that_leave_the_workspace_are_refused(path: str) -> None:
    with pytest.raises(ValidationError) as refused:
        load(phase("spec", expected_artifact={"path": path, "schema": "dev/spec@1"}), copy=[path])

    assert set(places(refused)) == {"phases.0.expected_artifact.path", "copy.0"}


def test_phases_side_by_side_cannot_write_the_same_file_but_phases_in_a_row_can() -> None:
    same = {"path": "out/x.json", "schema": "dev/spec@1"}
    assert load(phase("a", expected_artifact=same), phase("b", expected_artifact=same))

    with pytest.raises(ValidationError) as refused:
        load(phase("a", expected_artifact=same), phase("b", expected_artifact=same, needs=[]))

    assert places(refused) == ["phases.1.expected_artifact.path"]


GOOD = """\
name: sample
version: 1
roles:
  - id: author
phases:
  - key: spec
    title: Spec
    risk: low
    role: author
    instructions: |
      Do it.
    expected_artifact:
      path: out/spec.json
      schema: dev/spec@1
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("risk: low", "risk: tiny", 8, "phases[0].risk"),
        ("role: author", "role: nobody", 9, "phases[0].role"),
        ("path: out/spec.json", "path: ../spec.json", 13, "phases[0].expected_artifact.path"),
        ("    title: Spec\n", "", 6, "phases[0].title"),
        ("version: 1", "version: 1\nversion: 2", 3, "version"),
        ("role: author", "role: author\n    role: author", 10, "phases[0].role"),
        ("version: 1", "version: 1.10", 2, "version"),
        ("version: 1", "version: 1\nsetup: [make]", 3, "setup[0]"),
        ("    role: author", "    role: author\n    needs:\n      - spec", 10, "phases[0].needs"),
        ("title: Spec", "title: [", 9, ""),
    ],
)
def test_a_fault_in_a_file_is_reported_with_file_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, field: str
) -> None:
    file = tmp_path / "sample.yaml"
    file.write_text(GOOD.replace(old, new, 1))

    with pytest.raises(TemplateInvalid) as refused:
        load_workflow_file(file)

    problem = refused.value.facts["problems"][0]
    assert refused.value.code == "template_invalid"
    assert (problem.line, problem.field) == (line, field)
    assert refused.value.message.startswith(f"{file}: line {line}: {field}")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a\n- b\n",
        b"a: 1\n---\nb: 2\n",
        b"\xff\xfe\x00",
        b"name: \xc3\x28",
        b"a: &x [*x]\n",
        b"[" * 1500,
        b"{[1]: 2}",
        b"name: !!python/object/apply:os.system [ls]\n",
        b"day: 2024-99-99\n",
        b"x" * 1_000_001,
        b"a0: &a0 {x: 1}\n"
        + b"".join(b"a%d: &a%d {<<: [*a%d, *a%d, *a%d], b: *a%d}\n" % (n, n, *[n - 1] * 4) for n in range(1, 30)),
    ],
    ids=["empty", "list", "two", "utf16", "utf8", "loop", "deep", "key", "tag", "date", "large", "bomb"],
)
def test_a_file_that_is_no_template_at_all_is_refused_quickly_and_clearly(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "odd.yaml"
    file.write_bytes(content)

    with pytest.raises(TemplateInvalid) as refused:
        load_workflow_file(file)

    assert refused.value.message.startswith(f"{file}: line ")


def test_a_folder_gives_its_templates_in_the_order_of_the_file_names(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(GOOD.replace("sample", "first"))
    (tmp_path / "c.yaml").write_text(GOOD.replace("sample", "second"))
    (tmp_path / "notes.txt").write_text("not a template")
    (tmp_path / ".hidden.yaml").write_text("not a template")

    loaded = load_workflows_from_dir(tmp_path)

    assert [one.name for one in loaded] == ["first", "second"]


def test_the_same_name_and_version_in_two_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)

    with pytest.raises(TemplateInvalid) as refused:
        load_workflows_from_dir(tmp_path)

    assert "a.yaml" in refused.value.message
    assert "b.yaml" in refused.value.message


def test_a_folder_or_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for load_it in (load_workflows_from_dir, load_workflow_file):
        with pytest.raises(TemplateInvalid, match="nowhere"):
            load_it(tmp_path / "nowhere")


def test_unknown_and_unusable_schemas_are_reported_phase_by_phase(tmp_path: Path) -> None:
    (tmp_path / "bad@1.json").write_text("{")
    loaded = load(
        phase("a", expected_artifact={"path": "a.json", "schema": "no/such@1"}),
        phase("b", expected_artifact={"path": "b.json", "schema": "bad@1"}),
        phase("c", expected_artifact={"path": "c.json", "schema": "../secret"}),
    )

    with pytest.raises(TemplateInvalid) as refused:
        check_schemas(loaded, ArtifactSchemaRegistry(roots=[tmp_path]))

    assert [problem.partition(":")[0] for problem in refused.value.facts["problems"]] == [
        "phase a",
        "phase b",
        "phase c",
    ]
