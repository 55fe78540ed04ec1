"""The file tools: what they may touch, what a kill leaves, and how an unknown outcome is found out."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.phase import ARTIFACT, LANE, Phase, open_log
from tests.support.agents.scripted_model import ScriptedModel, asks, says

from holdfast.agents.policy.file_policy import SCRATCH_ROUTE, FilePolicy
from holdfast.agents.tools.files import WholeFileBackend
from holdfast.agents.tools.rules import ToolCall, file_tool_rules
from holdfast.runtime.outcomes.unknown_outcomes import Done, NotDone


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "src/a.py").write_text("x = 1\n")
    (folder / "out").symlink_to(tmp_path)
    (folder / "hooks").symlink_to(folder / ".git")
    (folder / "round").symlink_to(folder / "round")
    return folder


@pytest.mark.parametrize(
    "path", ["/src/a.py", "src/a.py", "/", "/new/file.txt", f"{SCRATCH_ROUTE}large_tool_results/x"]
)
def test_reading_inside_the_workspace_is_allowed(root: Path, path: str) -> None:
    assert FilePolicy(root)("read_file", {"file_path": path}) is None


@pytest.mark.parametrize(
    "path",
    [
        "/../x",
        "src/../../x",
        "~/x",
        "/out/x",
        "/.git/config",
        "/.GIT/config",
        "/hooks/pre-commit",
        "/src/.git",
        "/round/x",
        "/a\0b",
        f"{SCRATCH_ROUTE}x",
        "/",
    ],
)
def test_writing_elsewhere_is_denied_with_a_reason(root: Path, path: str) -> None:
    assert FilePolicy(root)("write_file", {"file_path": path, "content": ""})


def test_the_workspaces_own_place_on_the_machine_is_understood(root: Path, tmp_path: Path) -> None:
    path = f"{root}/src/a.py"
    call = ToolCall("edit_file", {"file_path": path, "old_string": "1"})
    look = file_tool_rules(root)["edit_file"].look
    backend = WholeFileBackend(root, staging_dir=tmp_path / "staged")

    assert FilePolicy(root)("write_file", {"file_path": path}) is None
    assert FilePolicy(root)("write_file", {"file_path": f"{root}/.git/config"})
    assert FilePolicy(root, only_write="src/a.py")("write_file", {"file_path": path}) is None
    assert look is not None
    assert look(call).startswith("1:")
    assert backend.write(path, "x = 5\n").error is None
    assert (root / "src/a.py").read_text() == "x = 5\n"


def test_a_read_only_phase_writes_its_artifact_alone(root: Path) -> None:
    policy = FilePolicy(root, only_write=ARTIFACT)

    assert policy("write_file", {"file_path": f"/{ARTIFACT}"}) is None
    assert policy("read_file", {"file_path": "/src/a.py"}) is None
    for name in ("write_file", "edit_file", "delete"):
        assert "only reads" in (policy(name, {"file_path": "/src/a.py"}) or "")


async def test_a_read_only_phase_is_played_without_a_change(tmp_path: Path) -> None:
    phase = Phase(tmp_path, read_only=True).prepare()
    before = phase.files()

    await phase.play()

    assert {path: text for path, text in phase.files().items() if path != ARTIFACT} == before
    assert ARTIFACT in phase.files()


async def test_a_denied_write_goes_back_to_the_agent(phase: Phase) -> None:
    model = ScriptedModel(script=[asks(("write_file", {"file_path": "/.git/config", "content": "x"})), says("oh")])

    messages = await phase.play(build={"model": model})

    assert messages[2].status == "error"
    assert "belongs to git" in messages[2].content
    assert not (phase.root / ".git").exists()


EDIT = {"file_path": "/src/a.py", "old_string": "1", "new_string": "2"}


@pytest.mark.parametrize(
    ("args", "text_after", "answer"),
    [
        (EDIT, "x = 2\n", "Successfully replaced 1 instance(s) of the string in '/src/a.py'"),
        (EDIT, "x = 1\n", None),
        (EDIT, "someone else was here\n", None),
        (
            {**EDIT, "old_string": "x", "new_string": "yx", "replace_all": True},
            "yx = 1\n",
            "Successfully replaced 1 instance(s) of the string in '/src/a.py'",
        ),
        (
            {**EDIT, "old_string": " = 1", "new_string": ""},
            "x\n",
            "Successfully replaced 1 instance(s) of the string in '/src/a.py'",
        ),
    ],
)
async def test_an_edit_in_doubt_is_looked_for(root: Path, args: Any, text_after: str, answer: str | None) -> None:
    rule = file_tool_rules(root)["edit_file"]
    call = ToolCall("edit_file", args)
    assert rule.look is not None
    assert callable(rule.on_unknown)
    before = rule.look(call)
    (root / "src/a.py").write_text(text_after)

    assert await rule.on_unknown(call, before) == (NotDone() if answer is None else Done(answer))


async def test_a_delete_in_doubt_is_looked_for(root: Path) -> None:
    rule = file_tool_rules(root)["delete"]
    call = ToolCall("delete", {"file_path": "/src/a.py"})
    assert rule.look is not None
    assert callable(rule.on_unknown)
    before = rule.look(call)

    assert await rule.on_unknown(call, before) == NotDone()
    (root / "src/a.py").unlink()
    assert await rule.on_unknown(call, before) == Done("Deleted /src/a.py")
    assert await rule.on_unknown(call, "absent") == NotDone()


async def test_a_reconciled_edit_is_told_in_the_tools_own_words(phase: Phase) -> None:
    edit = {"file_path": "/src/app.py", "old_string": "hello", "new_string": "good day"}
    script = [asks(("edit_file", edit)), says("done")]
    undisturbed = Phase(phase.folder / "undisturbed").prepare()
    expected = await undisturbed.play(build={"model": ScriptedModel(script=script)})
    await _die_after_effect(phase, script)

    messages = await phase.play(build={"model": ScriptedModel(script=script)})

    assert messages[2].content == expected[2].content
    assert phase.files() == undisturbed.files()
    result = next(event.payload for event in phase.events() if event.kind == "tool.result")
    assert (result["key"], result["resolved"]) == (f"{LANE}/m0.t0", "reconciled")


async def _die_after_effect(phase: Phase, script: list[Any]) -> None:
    """Leave what a kill between the effect and its record leaves."""

    class Died(BaseException):
        pass

    async def die() -> dict[str, Any]:
        raise Died

    with pytest.raises(Died):
        await phase.play(build={"model": ScriptedModel(script=script)}, after_mutation=die)
    async with open_log(phase.store) as log:
        assert log.records.by_key["step", f"{LANE}/m0.t0"].state == "started"


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(root: Path, tmp_path: Path) -> None:
    backend = WholeFileBackend(root, staging_dir=tmp_path / "staged")
    (root / "src/a.py").chmod(0o755)
    reader = (root / "src/a.py").open()

    backend.write("/src/a.py", "y = 2\n")
    edited = backend.edit("/src/a.py", "2", "3")

    with reader:
        assert reader.read() == "x = 1\n"  # whoever had it open sees the old file, never half of the new one
    assert edited.occurrences == 1
    assert (root / "src/a.py").read_text() == "y = 3\n"
    assert os.stat(root / "src/a.py").st_mode & 0o777 == 0o755
    assert list((tmp_path / "staged").iterdir()) == []


def test_what_cannot_be_written_is_told_without_a_path_of_the_machine(root: Path, tmp_path: Path) -> None:
    backend = WholeFileBackend(root, staging_dir=tmp_path / "staged")

    errors = [
        backend.write("/src", "x").error,
        backend.write("/src/a.py/b", "x").error,
        backend.edit("/src/a.py", "nowhere", "x").error,
        backend.edit("/none.py", "a", "b").error,
    ]

    assert all(errors)
    assert not any(str(tmp_path) in str(text) or "staged" in str(text) for text in errors)


@pytest.mark.parametrize("target", [".env", ".git/config", "config/server.pem"])
def test_a_link_that_came_after_the_call_was_judged_is_not_followed_to_a_secret(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    (root / target).parent.mkdir(parents=True)
    (root / target).write_text("canary\n")
    (root / "a.txt").symlink_to(target)
    backend = WholeFileBackend(root, staging_dir=tmp_path / "staging")

    read = backend.read("/a.txt")
    written = backend.write("/a.txt", "x")

    assert read.error
    assert "canary" not in str(read)
    assert written.error
    assert (root / target).read_text() == "canary\n"
