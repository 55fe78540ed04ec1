"""What a person agreed to at the terminal is what is bound, whatever becomes of the files meanwhile."""

from pathlib import Path

import pytest
from tests.support.engine_world import make_repo

from holdfast.cli.commands import trust
from holdfast.cli.terminal.catalog import get_workflow
from holdfast.cli.terminal.engine import open_engine
from holdfast.engine.run.create import RunRequest
from holdfast.errors import ConsentRequired

PERSONA = """
name: own-agent
version: 1
backend: command
argv: [PROGRAM]
capabilities: [spec_write, code_review, phase_planning, code_write]
"""


@pytest.fixture
def persona_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a persona that runs `true`; another program takes its place while a person is asked."""
    make_repo(tmp_path / "repo")
    file = tmp_path / "repo/.holdfast/personas/own.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(PERSONA.replace("PROGRAM", "'true'"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / "data"))

    def agree_too_late(_question: str) -> bool:
        file.write_text(PERSONA.replace("PROGRAM", "env"))
        return True

    monkeypatch.setattr(trust, "confirm", agree_too_late)
    return file


async def test_what_was_agreed_to_is_what_is_bound(persona_file: Path) -> None:
    repo = persona_file.parents[2]
    entry = get_workflow("spec-and-review", repo)
    roles = {role.id: "own-agent" for role in entry.definition.roles}

    consents, agreed = trust.agree(repo, entry, roles, is_simulated=False, is_yes=False, can_ask=True)

    async with open_engine(repo=repo, consents=consents, agreed=agreed) as opened:
        request = RunRequest(template=entry.definition, repo_path=repo, persona_overrides=roles)
        new = await opened.engine._binder.bind_new(request)
    assert {binding.persona.argv for binding in new.bindings.values()} == {("true",)}
    with pytest.raises(ConsentRequired, match="own-agent runs env"):
        trust.agree(repo, entry, roles, is_simulated=False, is_yes=False, can_ask=False)
