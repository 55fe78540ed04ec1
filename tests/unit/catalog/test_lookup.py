import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast.binding import BackendAvailability, bind_personas
from holdfast.catalog import PACKAGE_DIR, Catalog, Source, load_model_table
from holdfast.enums import Backend, Capability
from holdfast.errors import ConfigInvalid, PersonaNotFound, TemplateInvalid, TemplateNotFound
from holdfast.persona import AgentPersona, Permissions, load_personas_from_dir
from holdfast.runtime.run_fold.todo_log import TODO_TOOL
from holdfast.workflow import (
    ApprovalRule,
    Phase,
    WorkflowRole,
    WorkflowTemplate,
    check_schemas,
    load_workflows_from_dir,
)

PERSONAS = load_personas_from_dir(PACKAGE_DIR / "personas")
WORKFLOWS = load_workflows_from_dir(PACKAGE_DIR / "workflows")
REGISTRY = Catalog.for_repository().artifact_registry()
ALONE_ENOUGH = [backend for backend in Backend if backend is not Backend.COMMAND]


def get_workflow(name: str) -> WorkflowTemplate:
    return Catalog.for_repository().get_workflow(name).definition


def put_persona(root: Path, **fields: Any) -> None:
    content = {"name": "p", "version": 1, "backend": "ollama", "model": "m", "capabilities": ["debug"], **fields}
    (root / "personas").mkdir(parents=True, exist_ok=True)
    (root / "personas" / f"{content['name']}-{content['version']}.yaml").write_text(json.dumps(content))


def test_every_shipped_workflow_has_a_usable_schema_for_every_phase() -> None:
    assert {"spec-and-review", "bug-fix-with-reproduction", "feature-delivery"} <= {one.name for one in WORKFLOWS}

    for workflow in WORKFLOWS:
        check_schemas(workflow, REGISTRY)


@pytest.mark.parametrize("backend", ALONE_ENOUGH)
@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda one: one.name)
def test_each_backend_alone_can_fill_every_role_without_consent(workflow: WorkflowTemplate, backend: Backend) -> None:
    bindings = bind_personas(workflow, PERSONAS, BackendAvailability(frozenset({backend})))

    assert {binding.backend for binding in bindings.values()} == {backend}


def test_the_agents_of_models_keep_a_to_do_list_that_people_see() -> None:
    without = (Backend.COMMAND, Backend.SIMULATED)
    own = [persona for persona in PERSONAS if persona.backend not in without]

    assert own
    assert [one.name for one in own if TODO_TOOL not in (one.permissions.tools or ())] == []
    shells = [one for one in own if Capability.SHELL in one.capabilities]
    assert [one.name for one in shells if "execute" not in (one.permissions.tools or ())] == []


def test_who_reviews_or_verifies_is_not_who_wrote() -> None:
    for backend in (Backend.OPENROUTER, Backend.OPENAI, Backend.ANTHROPIC):
        availability = BackendAvailability(frozenset({backend}))
        for name, writer, judge in (
            ("feature-delivery", "developer", "reviewer"),
            ("bug-fix-with-reproduction", "developer", "verifier"),
        ):
            bindings = bind_personas(get_workflow(name), PERSONAS, availability)
            assert bindings[writer].persona != bindings[judge].persona


def test_the_personas_cover_every_capability_on_several_backends() -> None:
    assert len(PERSONAS) >= 14
    assert {one.backend for one in PERSONAS} == set(Backend)
    for capability in Capability:
        assert len({one.backend for one in PERSONAS if capability in one.capabilities}) >= 4


def test_a_simulated_persona_can_fill_any_role_there_could_be() -> None:
    simulated = [one for one in PERSONAS if one.backend is Backend.SIMULATED]

    assert any(set(Capability) == set(one.capabilities) for one in simulated)


def test_the_promised_spec_writer_is_there() -> None:
    writer = Catalog.for_repository().get_persona("openrouter-deepseek-spec-writer").definition

    assert {Capability.SPEC_WRITE, Capability.PHASE_PLANNING} <= set(writer.capabilities)
    assert writer.backend is Backend.OPENROUTER


def test_only_command_personas_ask_for_consent() -> None:
    asking = {one.backend for one in PERSONAS if one.requires_consent}

    assert asking == {Backend.COMMAND}


def test_every_model_a_persona_names_is_in_the_table_with_a_date() -> None:
    table = load_model_table()

    for one in PERSONAS:
        if one.backend not in (Backend.COMMAND, Backend.OPENAI_COMPATIBLE):
            for model in (one.model, *one.fallback_models):
                assert table.find_model(one.backend, model), f"{one.name}: {model}"


def test_feature_delivery_asks_a_person_after_the_plan_only_and_reviews_without_writing() -> None:
    workflow = get_workflow("feature-delivery")

    assert workflow.topological_order() == ("spec", "plan", "implement", "review")
    assert [one.key for one in workflow.phases if one.requires_approval] == ["plan"]
    assert workflow.phase("plan").approval is ApprovalRule.ALWAYS
    assert workflow.phase("review").read_only


def test_the_bug_fix_goes_from_reproduction_to_verification() -> None:
    workflow = get_workflow("bug-fix-with-reproduction")

    assert workflow.topological_order() == ("reproduce", "diagnose", "fix", "verify")


def spec(**fields: Any) -> dict[str, Any]:
    return {
        "runId": str(uuid.uuid4()),
        "phaseKey": "spec",
        "requirements": "It greets the user.",
        "acceptance_criteria": ["`hello` prints a greeting"],
        "approach": "One function in one module.",
        "risks": [],
        **fields,
    }


def test_a_specification_needs_exactly_the_promised_fields() -> None:
    assert REGISTRY.validate("dev/spec@1", spec()) == []

    for field in spec():
        short = {key: value for key, value in spec().items() if key != field}
        assert [finding.rule for finding in REGISTRY.validate("dev/spec@1", short)] == ["required"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"runId": "17"},
        {"requirements": "too short"},
        {"acceptance_criteria": []},
        {"approach": "too short"},
        {"extra": 1},
    ],
)
def test_a_specification_with_one_fault_has_one_finding(wrong: dict[str, Any]) -> None:
    assert len(REGISTRY.validate("dev/spec@1", spec(**wrong))) == 1


def test_every_shipped_schema_can_be_used() -> None:
    ids = REGISTRY.list_ids()

    assert {"dev/spec@1", "common/final-report@1"} <= set(ids)
    for schema_id in ids:
        assert REGISTRY.get_schema(schema_id)["title"]


def test_a_final_report_of_a_failed_run_is_valid() -> None:
    report = {
        "runId": str(uuid.uuid4()),
        "workflow": {"name": "w", "version": 1},
        "state": "failed",
        "summary": "Phase plan failed.",
        "phases": [{"key": "plan", "state": "failed", "attempts": 2, "error": {"code": "artifact_missing"}}],
        "cost_usd": 0.5,
        "error": {"code": "artifact_missing", "message": "…"},
    }

    assert REGISTRY.validate("common/final-report@1", report) == []
    assert REGISTRY.validate("common/final-report@1", {**report, "state": "running"}) != []


def test_the_repository_comes_before_the_user_and_the_user_before_the_package(tmp_path: Path) -> None:
    shipped = PERSONAS[0].name
    put_persona(tmp_path / "repo/.holdfast", name="p", model="from-repository")
    put_persona(tmp_path / "user", name="p", model="from-user", version=9)
    put_persona(tmp_path / "user", name=shipped, model="from-user")
    catalog = Catalog.for_repository(tmp_path / "repo", tmp_path / "user")

    sources = {entry.definition.name: entry.source for entry in catalog.list_personas()}

    assert catalog.get_persona("p").definition.model == "from-repository"
    assert sources["p"] is Source.REPOSITORY
    assert sources[shipped] is Source.USER
    assert sources[PERSONAS[1].name] is Source.PACKAGE


def test_of_several_versions_in_one_place_the_highest_is_meant(tmp_path: Path) -> None:
    put_persona(tmp_path, version="1.9")
    put_persona(tmp_path, version="1.10")

    entry = Catalog.for_repository(config_dir=tmp_path).get_persona("p")

    assert (entry.definition.version, entry.file.name) == ("1.10", "p-1.10.yaml")


def test_schemas_of_the_repository_come_first_too(tmp_path: Path) -> None:
    (tmp_path / ".holdfast/artifacts/dev").mkdir(parents=True)
    (tmp_path / ".holdfast/artifacts/dev/spec@1.json").write_text('{"type": "integer"}')

    registry = Catalog.for_repository(tmp_path).artifact_registry()

    assert registry.validate("dev/spec@1", 1) == []
    assert registry.find_path("dev/plan@1")


def test_a_file_works_where_a_name_does(tmp_path: Path) -> None:
    put_persona(tmp_path)
    catalog = Catalog.for_repository()

    entry = catalog.get_persona(str(tmp_path / "personas/p-1.yaml"))
    workflow = catalog.get_workflow(str(PACKAGE_DIR / "workflows/spec-and-review.yaml"))

    assert isinstance(entry.definition, AgentPersona)
    assert (entry.source, workflow.source) == (Source.FILE, Source.FILE)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    catalog = Catalog.for_repository()

    with pytest.raises(TemplateNotFound) as no_workflow:
        catalog.get_workflow("no-such")
    with pytest.raises(PersonaNotFound):
        catalog.get_persona("no-such")

    assert "feature-delivery" in no_workflow.value.hint


def test_a_broken_file_of_the_repository_is_reported_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".holdfast/workflows").mkdir(parents=True)
    (tmp_path / ".holdfast/workflows/mine.yaml").write_text("name: [")

    with pytest.raises(TemplateInvalid, match=r"mine\.yaml"):
        Catalog.for_repository(tmp_path).get_workflow("spec-and-review")


def test_a_call_costs_what_the_table_says_rounded_up_to_a_micro_dollar() -> None:
    card = load_model_table().find_model(Backend.OPENAI, "gpt-6.1-sol")
    assert card is not None

    short = card.cost_micros(input_tokens=1000, cached_tokens=400, output_tokens=10)
    long = card.cost_micros(input_tokens=300_000, output_tokens=0)

    assert short == (600 * 2_000_000 + 400 * 100_000 + 10 * 10_000_000) // 1_000_000
    assert long == 300_000 * 4
    assert card.cost_micros(input_tokens=0, cached_tokens=0, output_tokens=0) == 0
    assert load_model_table().resolve_id(Backend.OPENAI, "something-else") == "something-else"


def test_the_users_own_table_comes_before_the_packaged_one(tmp_path: Path) -> None:
    own = {"backend": "ollama", "id": "mine:7b", "checked": "2030-01-01", "context_tokens": 1, "max_output_tokens": 1}
    (tmp_path / "models.yaml").write_text(
        json.dumps({"models": {"qwen3": {**own, "prices": {"input": 1, "output": 2}}}})
    )

    table = load_model_table(tmp_path)

    assert table.resolve_id(Backend.OLLAMA, "qwen3") == "mine:7b"
    assert table.find_model(Backend.OPENAI, "gpt-6.1-sol")


def test_a_fault_in_the_users_table_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  mine:\n    backend: nowhere\n")

    with pytest.raises(ConfigInvalid, match=r"models\.yaml: line [23]"):
        load_model_table(tmp_path)


DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_names_every_field_workflow_and_schema() -> None:
    workflows = (DOCS / "reference/workflows.md").read_text()
    personas = (DOCS / "reference/personas.md").read_text()

    for model in (WorkflowTemplate, WorkflowRole, Phase):
        for name, field in model.model_fields.items():
            assert f"`{field.alias or name}" in workflows, name
    for name in [*AgentPersona.model_fields, *Permissions.model_fields]:
        assert f"`{name}`" in personas, name
    for one in WORKFLOWS:
        assert f"`{one.name}`" in workflows
    for schema_id in REGISTRY.list_ids():
        assert f"`{schema_id}`" in workflows


def test_the_files_of_the_how_to_work_as_they_are_printed(tmp_path: Path) -> None:
    text = (DOCS / "howto/own-workflow.md").read_text()
    blocks = re.findall(r"```(?:json|yaml)\n(.*?)```", text, flags=re.DOTALL)
    names = ["artifacts/team/notes@1.json", "workflows/release-notes.yaml", "personas/house-writer.yaml"]
    for name, block in zip(names, blocks, strict=True):
        file = tmp_path / ".holdfast" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block)

    catalog = Catalog.for_repository(tmp_path)
    workflow = catalog.get_workflow("release-notes").definition
    pool = [entry.definition for entry in catalog.list_personas()]

    check_schemas(workflow, catalog.artifact_registry())
    bound = bind_personas(workflow, pool, BackendAvailability(frozenset(Backend)), overrides={"writer": "house-writer"})
    assert bound["writer"].persona.base_url
