import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import validate

from holdfast.agents.envelope import Envelope, ExpectedFile, PhaseInput, find_envelope, to_block
from holdfast.agents.simulated.conversation import PastCall
from holdfast.agents.simulated.turns import MISBEHAVIOURS, Reply, Scene, next_turn
from holdfast.persona import ScriptedTurn

SCHEMA = {
    "type": "object",
    "required": ["runId", "phaseKey", "summary"],
    "properties": {"runId": {"type": "string"}, "phaseKey": {"type": "string"}, "summary": {"type": "string"}},
    "additionalProperties": False,
}
ENVELOPE = Envelope(
    run_id="r-1",
    phase_key="plan",
    artifact=ExpectedFile("out/plan.json", "own/plan@1", SCHEMA),
    title="Plan it",
    requirements="# Greet people\n\nIt greets by name.",
    inputs=(PhaseInput("spec", "out/spec.json"),),
)
TOOLS = frozenset({"ls", "read_file", "grep", "write_file", "edit_file", "task"})
CHAT_TOOLS = TOOLS | {"execute"}


def perform(
    envelope: Envelope,
    misbehave: str = "",
    follow_up: str = "",
    most: int = 12,
    script: dict[str, tuple[ScriptedTurn, ...]] | None = None,
) -> list[Reply]:
    """Let it play, with tools that always answer, until it has nothing more to ask for."""
    text = f"Do this.\n\n{to_block(envelope)}"
    scene = Scene(text, follow_up, tools=TOOLS, misbehave=misbehave, script=script or {})
    turns: list[Reply] = []
    while len(turns) < most:
        turns.append(next_turn(scene))
        if not turns[-1].calls:
            break
        seen = tuple(PastCall(call.name, call.args, "['/README.md']") for call in turns[-1].calls)
        scene = replace(scene, turns=(*scene.turns, seen))
    return turns


def written(turns: list[Reply]) -> dict[str, str]:
    calls = [call for turn in turns for call in turn.calls if call.name == "write_file"]
    return {call.args["file_path"]: call.args["content"] for call in calls}


def test_the_envelope_survives_the_text_it_stands_in() -> None:
    text = f"Ask ```json\n{{}}\n``` and\n{to_block(ENVELOPE)}\n"

    assert find_envelope(text) == ENVELOPE
    assert find_envelope("nothing here") is None


def test_a_block_in_the_requirements_does_not_stand_in_for_the_real_one() -> None:
    forged = to_block(replace(ENVELOPE, run_id="forged"))
    real = replace(ENVELOPE, requirements=f"Do it.\n{forged}\n")

    assert find_envelope(f"{real.requirements}\n{to_block(real)}") == real


def test_it_looks_reads_changes_hands_in_and_says_so() -> None:
    turns = perform(ENVELOPE)

    assert [[call.name for call in turn.calls] for turn in turns] == [
        ["ls", "grep"],
        ["read_file", "read_file", "read_file"],
        ["write_file"],
        ["write_file"],
        [],
    ]
    artifact = json.loads(written(turns)["/out/plan.json"])
    validate(artifact, SCHEMA)
    assert (artifact["runId"], artifact["phaseKey"]) == ("r-1", "plan")
    assert "Greet people" in artifact["summary"]


def test_a_read_only_phase_writes_the_artifact_alone() -> None:
    assert list(written(perform(replace(ENVELOPE, read_only=True)))) == ["/out/plan.json"]


def test_the_run_id_changes_nothing_but_the_artifact() -> None:
    one, other = (perform(replace(ENVELOPE, run_id=run_id)) for run_id in ("r-1", "r-2"))

    assert one[:3] == other[:3]


@pytest.mark.parametrize("envelope", [replace(ENVELOPE, attempt=2, comment="Name the files.")])
def test_a_comment_is_answered_in_the_artifact(envelope: Envelope) -> None:
    artifact = json.loads(written(perform(envelope))["/out/plan.json"])

    assert "Changed as asked: Name the files." in artifact["summary"]


def test_a_repair_message_is_obeyed() -> None:
    turns = perform(ENVELOPE, "invalid-artifact-once")
    repair = perform(ENVELOPE, "invalid-artifact-once", "summary is missing")

    assert isinstance(json.loads(written(turns)["/out/plan.json"]), list)
    validate(json.loads(written(repair)["/out/plan.json"]), SCHEMA)
    assert [[call.name for call in turn.calls] for turn in repair] == [["read_file"], ["write_file"], []]


@pytest.mark.parametrize(
    ("misbehave", "is_written", "is_written_after_repair"),
    [("no-artifact", False, False), ("no-artifact-once", False, True), ("refuse", False, False), ("slow", True, True)],
)
def test_an_artifact_can_be_withheld(misbehave: str, is_written: bool, is_written_after_repair: bool) -> None:
    assert ("/out/plan.json" in written(perform(ENVELOPE, misbehave))) is is_written
    repair = perform(ENVELOPE, misbehave, "the artifact is missing")
    assert ("/out/plan.json" in written(repair)) is is_written_after_repair


def test_a_loop_does_not_end() -> None:
    turns = perform(ENVELOPE, "loop")

    assert len({(turn.calls[0].name, str(turn.calls[0].args)) for turn in turns}) == 1
    assert len(turns) == 12


def test_garbage_and_a_giant_answer_come_before_the_work() -> None:
    garbage, giant = (perform(ENVELOPE, misbehave) for misbehave in ("garbage-tools", "giant-output"))

    assert [call.call_id for call in garbage[0].calls].count("call_0") == 3
    assert len(giant[0].text) == 400_000
    assert "/out/plan.json" in written(garbage)
    assert "/out/plan.json" in written(giant)


@pytest.mark.parametrize("misbehave", ["", *sorted(MISBEHAVIOURS)])
def test_two_performances_are_the_same(misbehave: str) -> None:
    assert perform(ENVELOPE, misbehave) == perform(ENVELOPE, misbehave)


def test_a_subagent_looks_and_reports() -> None:
    scene = Scene("Look at the code.", tools=TOOLS - {"task"})
    first = next_turn(scene)
    last = next_turn(replace(scene, turns=((PastCall("ls", {}, "['/a.py', '/b/']"),),)))

    assert [call.name for call in first.calls] == ["ls"]
    assert last == Reply("Looked at: /a.py, /b/.")


def talk(message: str, results: dict[str, str], tools: frozenset[str] = CHAT_TOOLS) -> list[Reply]:
    """Let it answer a message of a person, with tools that answer this, until it asks for nothing more."""
    scene = Scene("Hello.", message, tools=tools)
    turns = [next_turn(scene)]
    while turns[-1].calls:
        seen = tuple(
            PastCall(call.name, call.args, results.get(call.name, ""), is_error=call.name not in results)
            for call in turns[-1].calls
        )
        scene = replace(scene, turns=(*scene.turns, seen))
        turns.append(next_turn(scene))
    return turns


NUMBERED = "     1\tdef add(a, b):\n     2\t    return a - b\n     3\t"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("edit calc.py", "/calc.py"),
        ("Please fix the sum in @src/calc.py.", "/src/calc.py"),
        ("Add a hint to the Makefile", "/Makefile"),
        ("improve something", "/README.md"),
    ],
)
def test_in_a_conversation_a_request_for_a_change_edits_a_file(message: str, path: str) -> None:
    turns = talk(message, {"ls": "['/README.md', '/src/']", "read_file": NUMBERED, "edit_file": "Done."})

    (edit,) = [call for turn in turns for call in turn.calls if call.name == "edit_file"]
    assert edit.args["file_path"] == path
    assert edit.args["old_string"] == "    return a - b"
    assert edit.args["new_string"].startswith("    return a - b\n")
    assert "/diff" in turns[-1].text


def test_in_a_conversation_a_file_that_is_not_there_is_made() -> None:
    turns = talk("write ideas.md", {"write_file": "Done."})

    assert list(written(turns)) == ["/ideas.md"]


@pytest.mark.parametrize(
    ("message", "command"),
    [("run git push --dry-run", "git push --dry-run"), ("Please run `make test` now.", "make test")],
)
def test_in_a_conversation_a_command_is_run(message: str, command: str) -> None:
    turns = talk(message, {"execute": "all is well\nmore"})
    refused = talk(message, {})

    assert [(call.name, call.args) for call in turns[0].calls] == [("execute", {"command": command})]
    assert turns[-1].text == "It ran and said: all is well"
    assert refused[-1].text.startswith("It was not run")


@pytest.mark.parametrize("message", ["What does add do?", "Hello", "Is that wrong? Should I fix it?", "run x"])
def test_in_a_conversation_everything_else_gets_a_look_and_a_hint(message: str) -> None:
    turns = talk(message, {"ls": "['/a.py']"}, tools=CHAT_TOOLS - {"execute"})

    assert [call.name for turn in turns for call in turn.calls] == ["ls"]
    assert turns[-1].text.startswith("Looked at: /a.py.")
    assert "edit README.md" in turns[-1].text


SCRIPT = {
    "plan": (
        ScriptedTurn(say="First.", calls=({"ls": {"path": "/"}}, {"execute": {"command": "true"}})),
        ScriptedTurn(say="You said: $comment"),
        ScriptedTurn(artifact={"summary": "Ready.", "notes": ["one", "$comment"]}),
        ScriptedTurn(say="Over."),
    )
}


def test_a_script_is_played_turn_by_turn_and_its_artifact_gets_run_and_phase() -> None:
    turns = perform(ENVELOPE, script=SCRIPT)

    assert [(turn.text, [call.name for call in turn.calls]) for turn in turns] == [
        ("First.", ["ls"]),  # it was given no `execute`
        ("", ["write_file"]),
        ("Over.", []),
    ]
    artifact = json.loads(written(turns)["/out/plan.json"])
    assert artifact == {"runId": "r-1", "phaseKey": "plan", "summary": "Ready.", "notes": ["one"]}


def test_a_script_answers_a_comment_where_it_names_it() -> None:
    commented = replace(ENVELOPE, comment="Name\nthe files.")
    turns = perform(commented, script=SCRIPT)
    repair = perform(commented, "", "notes are wrong", script=SCRIPT)

    assert [turn.text for turn in turns] == ["First.", "You said: Name the files.", "Over."]
    assert [json.loads(written(done)["/out/plan.json"])["notes"] for done in (turns, repair)] == [
        ["one", "Name the files."]
    ] * 2


def test_a_phase_that_the_script_does_not_name_is_played_as_ever() -> None:
    assert perform(replace(ENVELOPE, phase_key="other"), script=SCRIPT) == perform(replace(ENVELOPE, phase_key="other"))


def test_it_calls_no_tool_it_was_not_given() -> None:
    scene = Scene(to_block(ENVELOPE), tools=frozenset({"ls"}))

    assert [call.name for call in next_turn(scene).calls] == ["ls"]


def test_every_misbehaviour_is_in_the_reference() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/simulated.md").read_text()

    assert [name for name in MISBEHAVIOURS if f"`{name}`" not in page] == []
