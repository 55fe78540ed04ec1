import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from holdfast.definitions.model_settings import ModelSettings
from holdfast.enums import Backend, Capability
from holdfast.errors import PersonaInvalid
from holdfast.persona import AgentPersona, Permissions, Verdict, load_persona_file, load_personas_from_dir


def persona(**fields: Any) -> dict[str, Any]:
    return {
        "name": "writer",
        "version": 1,
        "backend": "openrouter",
        "model": "some/model",
        "capabilities": ["spec_write"],
        **fields,
    }


def load(**fields: Any) -> AgentPersona:
    return AgentPersona.model_validate(persona(**fields))


def test_what_is_left_out_has_a_careful_default() -> None:
    loaded = load()

    assert (loaded.requires_consent, loaded.fallback_models, loaded.system_prompt) == (False, (), "")
    assert loaded.permissions.tools is None
    assert loaded.permissions.network is Verdict.ASK


def test_the_dump_is_plain_json_data_and_becomes_the_same_persona_again() -> None:
    loaded = load(permissions={"tools": ["read_file"], "write": {"deny": ["*.pem"]}, "commands": {"ask": ["git push"]}})

    dumped = loaded.model_dump(by_alias=True)

    assert json.loads(json.dumps(dumped)) == dumped
    assert AgentPersona.model_validate(dumped) == loaded


def test_capabilities_are_a_set_whose_order_does_not_matter() -> None:
    one = load(capabilities=["spec_write", "debug", "spec_write"])
    other = load(capabilities={"debug", "spec_write"})

    assert one.capabilities == (Capability.DEBUG, Capability.SPEC_WRITE)
    assert one.content_hash == other.content_hash


def test_any_change_that_matters_changes_the_hash() -> None:
    hashes = {
        load(**change).content_hash
        for change in (
            {},
            {"model": "x"},
            {"system_prompt": "x"},
            {"version": 2},
            {"permissions": {"network": "allow"}},
        )
    }

    assert len(hashes) == 5


def test_the_content_hash_of_a_known_persona_never_changes() -> None:
    # Consents and stored bindings are found by this hash.
    known = load(system_prompt="Write.", permissions={"write": {"deny": ["*.pem"]}})

    assert known.content_hash == "2cd311a85b50df590f9811f9719c62975f843f5587775937e53289cf0e18654d"


@pytest.mark.parametrize(
    ("fields", "variable"),
    [
        ({}, "OPENROUTER_API_KEY"),
        ({"api_key_env": "MY_KEY"}, "MY_KEY"),
        ({"backend": "anthropic"}, "ANTHROPIC_API_KEY"),
        ({"backend": "ollama"}, None),
        ({"backend": "simulated"}, None),
    ],
)
def test_the_variable_of_the_key_follows_from_the_backend_unless_named(fields: dict[str, Any], variable: str) -> None:
    loaded = load(**fields)

    assert loaded.key_variable == variable


def test_a_command_persona_needs_no_model() -> None:
    loaded = AgentPersona.model_validate(
        {
            "name": "c",
            "version": 1,
            "backend": "command",
            "capabilities": ["code_write"],
            "argv": ["agent", "{workspace}"],
        }
    )

    assert (loaded.backend, loaded.model) == (Backend.COMMAND, "")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"colour": "red"}, "colour"),
        ({"capabilities": []}, "capabilities"),
        ({"capabilities": ["flying"]}, "capabilities.0"),
        ({"model": ""}, "model"),
        ({"argv": ["x"]}, "argv"),
        ({"backend": "command", "model": ""}, "argv"),
        ({"backend": "command", "argv": ["x", "{secret}"]}, "argv.1"),
        ({"backend": "openai_compatible"}, "base_url"),
        ({"backend": "simulated", "base_url": "http://x"}, "base_url"),
        ({"script": {"plan": [{"say": "Hello."}]}}, "script"),
        ({"backend": "simulated", "script": {"plan": [{"calls": [{"ls": {}, "glob": {}}]}]}}, "script.plan.0.calls"),
        ({"backend": "simulated", "script": {"plan": [{"shout": "Hello."}]}}, "script.plan.0.shout"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "http://x:65536/v1"}, "base_url"),
        ({"base_url": "http://x:0/v1"}, "base_url"),
        ({"base_url": "http://x:port/v1"}, "base_url"),
        ({"base_url": "http://[x/v1"}, "base_url"),
        ({"base_url": "https://me:secret@x/v1"}, "base_url"),
        ({"api_key_env": "sk-abc123"}, "api_key_env"),
        ({"answer_timeout_s": 0}, "answer_timeout_s"),
        ({"idle_timeout_s": float("inf")}, "idle_timeout_s"),
        ({"idle_timeout_s": 86_401}, "idle_timeout_s"),
        ({"tries": 0}, "tries"),
        ({"tries": 1.5}, "tries"),
        ({"max_wait_s": -1}, "max_wait_s"),
        ({"backend": "command", "argv": ["x"], "tries": 2}, "tries"),
        ({"permissions": {"write": {"allow": ["/etc/*"]}}}, "permissions.write.allow.0"),
        ({"permissions": {"read": {"allow": ["../*"]}}}, "permissions.read.allow.0"),
        ({"permissions": {"commands": {"deny": ["git 'push"]}}}, "permissions.commands.deny.0"),
        ({"permissions": {"tools": ["rm -rf"]}}, "permissions.tools.0"),
        ({"permissions": {"network": "maybe"}}, "permissions.network"),
    ],
)
def test_a_persona_that_cannot_work_is_refused_at_the_field_that_is_wrong(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        load(**fields)

    assert place in [".".join(map(str, error["loc"])) for error in refused.value.errors()]


@pytest.mark.parametrize("field", ["api_key_env", "base_url"])
def test_a_key_pasted_into_the_wrong_field_does_not_come_back_in_the_error(tmp_path: Path, field: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(persona(**{field: "https://me:sk-planted@x"})))

    with pytest.raises(PersonaInvalid) as refused:
        load_persona_file(file)

    assert "sk-planted" not in refused.value.message
    assert "sk-planted" not in str(refused.value.facts)
    assert "sk-planted" not in str(refused.value.__cause__.__cause__)  # type: ignore[union-attr]


def test_a_fault_in_a_file_is_reported_with_file_line_and_field(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: p\nversion: 1\nbackend: openruter\nmodel: x\ncapabilities: [spec_write]\n")

    with pytest.raises(PersonaInvalid) as refused:
        load_personas_from_dir(tmp_path)

    assert refused.value.code == "persona_invalid"
    assert refused.value.message.startswith(f"{file}: line 3: backend: ")


def test_one_name_may_stand_in_a_folder_in_several_versions(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps(persona(version=1)))
    (tmp_path / "b.yaml").write_text(json.dumps(persona(version=2)))

    loaded = load_personas_from_dir(tmp_path)

    assert [one.version for one in loaded] == [1, 2]


def test_the_script_of_the_reference_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/simulated.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert list(AgentPersona.model_validate(yaml.safe_load(block)).script) == ["plan"]


def test_a_phases_settings_take_the_place_of_the_personas_one_by_one() -> None:
    own = {"temperature": 0.2, "thinking_tokens": 2048}
    writer = load(model_settings=own)

    changed = writer.with_settings(ModelSettings.model_validate({"effort": "low", "max_output_tokens": 99}))

    assert changed.model_settings.model_dump(exclude_none=True) == {
        "temperature": 0.2,
        "effort": "low",
        "max_output_tokens": 99,
    }
    assert changed.output_limit == 99
    assert writer.with_settings(None) is writer


def test_new_fields_change_no_hash_that_is_stored() -> None:
    assert load().content_hash == load(model_settings={}, subagents=[], skills=None).content_hash


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_settings", {"effort": "low", "thinking_tokens": 2048}),
        ("model_settings", {"temperature": 3}),
        ("subagents", [{"name": "a", "description": "x"}, {"name": "a", "description": "y"}]),
        ("subagents", [{"name": "a", "description": ""}]),
    ],
)
def test_settings_and_subagents_that_contradict_themselves_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        load(**{field: value})


@pytest.mark.parametrize("backend", ["openai", "openai_compatible", "ollama"])
def test_a_number_of_tokens_to_think_is_refused_where_it_would_not_be_sent(backend: str) -> None:
    with pytest.raises(ValidationError, match=f"backend {backend} takes no number; set effort instead"):
        load(backend=backend, base_url="http://localhost:1/v1", model_settings={"thinking_tokens": 2048})


def test_a_list_of_hosts_is_all_the_network_there_is() -> None:
    rules = Permissions.model_validate({"network": ["PyPI.org", "*.npmjs.org:443"]})

    assert (rules.network, rules.hosts) == (Verdict.ALLOW, ("pypi.org", "*.npmjs.org:443"))
    assert Permissions.model_validate(rules.model_dump()) == rules
    assert Permissions.model_validate({"network": []}).network is Verdict.DENY


@pytest.mark.parametrize("host", ["https://pypi.org", "pypi.org/simple", "*", "a b", "*.", "a..b", "x:y"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        Permissions.model_validate({"network": [host]})


def test_limits_are_given_to_the_sandbox_in_its_own_units() -> None:
    rules = Permissions.model_validate(
        {"limits": {"memory_mb": 512, "processes": 64}, "readable": ["~/data", "/srv/x"]}
    )

    assert rules.limits.to_bytes() == {"memory": 512 * 1024**2, "processes": 64}
    with pytest.raises(ValidationError):
        Permissions.model_validate({"readable": ["data"]})


def test_a_command_persona_names_its_adapter_and_the_variables_it_gets() -> None:
    loaded = load(backend="command", argv=["claude"], adapter="claude-code", env=["HTTPS_PROXY", "MY_OPTION"])

    assert (loaded.adapter, loaded.env) == ("claude-code", ("HTTPS_PROXY", "MY_OPTION"))
    assert AgentPersona.model_validate(loaded.model_dump(by_alias=True)) == loaded


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"backend": "command", "argv": ["x"], "adapter": "nobody"}, "adapter"),
        ({"backend": "command", "argv": ["x"], "env": ["sk-ant-0123456789"]}, "env"),
        ({"adapter": "codex"}, "adapter"),
        ({"env": ["HTTPS_PROXY"]}, "env"),
    ],
)
def test_an_adapter_that_nobody_knows_and_a_key_for_a_name_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        load(**fields)

    assert caught.value.errors()[0]["loc"][0] == field
    assert "sk-ant" not in str(caught.value)
