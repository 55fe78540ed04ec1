import os
from pathlib import Path

import pytest

from holdfast.catalog import PACKAGE_DIR, Catalog, Source
from holdfast.definitions import yaml_file
from holdfast.definitions.yaml_file import MAX_PROBLEMS, check_definition
from holdfast.errors import PersonaInvalid, TemplateInvalid
from holdfast.persona import AgentPersona
from holdfast.workflow import WorkflowTemplate, load_workflow_file

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
FLAWED = [
    *("!!bool x", "name: !!bool x", 'version: !!int ""', "version: !!int '-'", "version: !!timestamp x"),
    *("version: !!float ''", "a: !!binary x=", "a: !!set x", "a: !!omap [1]", "a: !!pairs {a: b}", "a: !!seq x"),
    *("? [a]\n: b", "? {a: b}\n: c", "<<: 1", "a: &a [*a]", "a: &x {<<: *x}", "a: 2001-99-99", "a: \x00", "\ud800"),
    *(
        "a: !!python/object/apply:os.system [ls]",
        "%YAML 9.9\n---\na: 1",
        "a: 1\n---\nb: 2",
        "[" * 100_000,
        "- " * 50_000,
    ),
    *(f"version: {'1:' * 50_000}1", f"backend: 0x{'f' * 50_000}", f"backend: 0x{'f' * 90}", "name: .nan", "a: 1e400"),
    *(BOMB, "name: !!int '1::2'", "x" * 200_000, "{" * 40 + "}" * 40),
]


@pytest.mark.parametrize("text", FLAWED, ids=range(len(FLAWED)))
@pytest.mark.parametrize("model", [WorkflowTemplate, AgentPersona])
def test_text_that_is_no_definition_is_a_problem_and_no_crash(
    text: str, model: type[WorkflowTemplate] | type[AgentPersona]
) -> None:
    definition, problems = check_definition(text, model, lambda _found: ())

    assert definition is None
    assert problems


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"k{number}: 1\n" for number in range(18_000)),
        f"name: x\nversion: 1\nroles: [{','.join(['1'] * 19_000)}]\n",
    ],
)
def test_a_text_that_is_wrong_all_over_is_told_its_first_problems_only(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = 0

    def count(model: type[WorkflowTemplate]) -> dict[str, object]:
        nonlocal schemas
        schemas += 1
        return model.model_json_schema(by_alias=True)

    monkeypatch.setattr(yaml_file, "_json_schema", count)

    _, problems = check_definition(text, WorkflowTemplate, lambda _found: ())

    assert len(problems) == MAX_PROBLEMS
    assert schemas <= 20  # one for each of eighteen thousand took a minute


def test_no_pipe_or_device_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "device.yaml").symlink_to("/dev/zero")

    for name in ("pipe.yaml", "device.yaml"):
        with pytest.raises(TemplateInvalid, match="no plain file"):
            load_workflow_file(tmp_path / name)


@pytest.mark.parametrize("link", [".holdfast/personas/x.yaml", ".holdfast/personas", ".holdfast"])
def test_a_link_of_a_repository_that_leads_out_of_it_is_not_opened(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    for folder in ("", "personas", "personas/personas"):
        (outside / folder).mkdir()
        (outside / folder / "x.yaml").write_text("root:x:0:0:secret\n")
    target = {"x.yaml": outside / "x.yaml", "personas": outside / "personas", ".holdfast": outside}
    (tmp_path / "repo" / link).parent.mkdir(parents=True)
    (tmp_path / "repo" / link).symlink_to(target[Path(link).name])

    with pytest.raises(PersonaInvalid, match="leads out of") as refused:
        Catalog.for_repository(tmp_path / "repo").list_personas()

    assert "secret" not in str(refused.value)


def test_a_folder_of_more_files_than_anybody_writes_is_refused(tmp_path: Path) -> None:
    personas = tmp_path / ".holdfast/personas"
    personas.mkdir(parents=True)
    for number in range(501):
        (personas / f"{number}.yaml").touch()

    with pytest.raises(PersonaInvalid, match="more than 500 files"):
        Catalog.for_repository(tmp_path).list_personas()


def test_a_link_to_another_place_of_the_same_checkout_is_followed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".holdfast/personas").mkdir(parents=True)
    shipped = next(PACKAGE_DIR.joinpath("personas").glob("*.yaml"))
    (tmp_path / ".holdfast/personas/own.yaml").write_text(shipped.read_text())
    (tmp_path / "part").mkdir()
    (tmp_path / "part/.holdfast").symlink_to(tmp_path / ".holdfast")

    entries = Catalog.for_repository(tmp_path / "part").list_personas()

    assert [entry.file.name for entry in entries if entry.source is Source.REPOSITORY] == ["own.yaml"]
