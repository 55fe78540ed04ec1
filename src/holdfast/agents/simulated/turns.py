"""What the simulated model does, turn by turn, as a pure function of what it has seen.

It looks around, reads what is likely to matter, changes a little where the phase may change anything, writes the
artifact its phase asks for, and says so. Where its tools fail it goes on, as far as the artifact. In a phase that its
persona has a script for, it plays that.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.agents.envelope import Envelope, find_envelope
from holdfast.agents.simulated.conversation import PastCall, answer, list_names
from holdfast.agents.simulated.products import Topic, find_topic, make_artifact, make_changes, notes_path
from holdfast.agents.simulated.script import fill_in, find_artifact
from holdfast.persona import ScriptedTurn

SLOW_S = 5.0
_GIANT_CHARS = 400_000
MISBEHAVIOURS = {
    "invalid-artifact": "writes an artifact that breaks its schema, after a repair message too",
    "invalid-artifact-once": "does so until it is told",
    "no-artifact": "never writes the artifact",
    "no-artifact-once": "does not write the artifact until it is told",
    "loop": "asks for the same listing for ever",
    "refuse": "declines and does nothing",
    "slow": f"takes {SLOW_S:g} s for each answer",
    "garbage-tools": "begins with calls of unknown tools, with wrong arguments, bad paths and repeated ids",
    "giant-output": f"begins with an answer of {_GIANT_CHARS} characters",
    "delegate": "no misbehaviour: lets two subagents look around at the same time",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make. With `None` as its id the model plays a server that sends no ids."""

    name: str
    args: Mapping[str, Any]
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model: a text, and calls unless it is the last one."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """The conversation so far. `turns` are its own since it was last spoken to."""

    first: str
    follow_up: str = ""
    turns: tuple[tuple[PastCall, ...], ...] = ()
    tools: frozenset[str] = frozenset()
    misbehave: str = ""
    script: Mapping[str, tuple[ScriptedTurn, ...]] = field(default_factory=dict)

    def results(self, name: str) -> Iterator[PastCall]:
        return (seen for turn in self.turns for seen in turn if seen.name == name and not seen.is_error)


@dataclass(frozen=True, slots=True)
class _Play:
    """What is known once the envelope was read."""

    scene: Scene
    envelope: Envelope
    topic: Topic
    files: tuple[str, ...] = field(default=())

    @property
    def script(self) -> tuple[ScriptedTurn, ...]:
        """What the phase's script says, with the comment in it; nothing if there is none."""
        return fill_in(self.scene.script.get(self.envelope.phase_key, ()), self.envelope.comment)


def next_turn(scene: Scene) -> Reply:
    """Decide the model's next answer. Calls of tools it does not have are left out, unless it misbehaves."""
    turn = _decide(scene)
    position = len(scene.turns)
    if scene.misbehave == "garbage-tools" and position == 0:
        return turn
    known = [call for call in turn.calls if call.name in scene.tools]
    calls = tuple(
        Call(call.name, call.args, call.call_id or f"call_{position}_{index}") for index, call in enumerate(known)
    )
    return Reply(turn.text, calls)


def _decide(scene: Scene) -> Reply:
    if scene.misbehave == "refuse":
        return Reply("I cannot help with that.")
    if scene.misbehave == "loop":
        return Reply("Let me look once more.", (Call("ls", {"path": "/"}),))
    envelope = find_envelope(scene.first)
    if envelope is None:
        return _play_helper(scene)
    play = _Play(scene, envelope, find_topic(envelope.requirements, envelope.title), _listed(scene))
    acts = _repair(play) if scene.follow_up else _work(play)
    return acts[len(scene.turns)]() if len(scene.turns) < len(acts) else _farewell(play)


def _play_helper(scene: Scene) -> Reply:
    """Play a conversation, or a subagent (which has no subagents of its own): it looks around and reports."""
    if "task" in scene.tools:
        done = (past for turn in scene.turns for past in turn)
        text, calls = answer(scene.follow_up or scene.first, done, scene.tools)
        return Reply(text, tuple(Call(name, args) for name, args in calls))
    if not scene.turns:
        return Reply("I will look.", (Call("ls", {"path": "/"}),))
    names = ", ".join(_listed(scene)[:5]) or "nothing"
    return Reply(f"Looked at: {names}.")


# -- the acts ---------------------------------------------------------------------------------------------------------


def _work(play: _Play) -> list[Callable[[], Reply]]:
    if play.script:
        return [partial(_play_turn, play, turn) for turn in play.script]
    acts: list[Callable[[], Reply]] = [lambda: _look_around(play), lambda: _read(play)]
    if play.scene.misbehave in ("garbage-tools", "giant-output"):
        acts.insert(0, lambda: _begin_badly(play))
    if play.scene.misbehave == "delegate":
        acts.insert(1, lambda: _delegate(play))
    if not play.envelope.read_only:
        acts.append(lambda: _change(play))
    return acts if play.scene.misbehave.startswith("no-artifact") else [*acts, lambda: _hand_in(play)]


def _repair(play: _Play) -> list[Callable[[], Reply]]:
    if play.scene.misbehave == "no-artifact":
        return []
    look = Reply("I will look at what I wrote.", (Call("read_file", {"file_path": _absolute(play)}),))
    return [lambda: look, lambda: _hand_in(play)]


def _play_turn(play: _Play, turn: ScriptedTurn) -> Reply:
    """Play one turn of the script; it may break off as it likes, as long as the artifact is not withheld."""
    calls = [Call(name, args) for call in turn.calls for name, args in call.items()]
    if turn.artifact is not None and not play.scene.misbehave.startswith("no-artifact"):
        calls += _hand_in(play).calls
    return Reply(turn.say, tuple(calls))


def _look_around(play: _Play) -> Reply:
    begin = f"Phase {play.envelope.phase_key}: {play.topic.title}. First I look around."
    return Reply(begin, (Call("ls", {"path": "/"}), Call("grep", {"pattern": play.topic.keyword, "path": "/"})))


def _delegate(play: _Play) -> Reply:
    kinds = ("the code", "the documentation")
    return Reply(
        "Two helpers look at it side by side.",
        tuple(
            Call("task", {"description": f"Look at {kind} of this project.", "subagent_type": "general-purpose"})
            for kind in kinds
        ),
    )


def _read(play: _Play) -> Reply:
    """Read what came before, what the project says of itself, and the notes of earlier phases if there are any."""
    paths = ["/" + item.path.lstrip("/") for item in play.envelope.inputs]
    paths += [path for path in play.files if path.lower().endswith((".md", ".toml", ".json", ".py"))][:2]
    if not play.envelope.read_only:
        paths.append(notes_path(play.topic))
    calls = tuple(Call("read_file", {"file_path": path}) for path in dict.fromkeys(paths))
    return Reply("Now I read what matters.", calls or (Call("ls", {"path": "/"}),))


def _change(play: _Play) -> Reply:
    read = {str(seen.args.get("file_path")): seen.result for seen in play.scene.results("read_file")}
    notes = read.get(notes_path(play.topic))
    calls = tuple(Call(name, args) for name, args in make_changes(play.envelope, play.topic, notes=notes))
    return Reply("I make the change.", calls)


def _hand_in(play: _Play) -> Reply:
    is_spoilt = play.scene.misbehave == "invalid-artifact" or (
        play.scene.misbehave == "invalid-artifact-once" and not play.scene.follow_up and play.envelope.attempt == 1
    )
    scripted = find_artifact(play.script, play.envelope)
    artifact: Any = scripted or make_artifact(play.envelope, play.topic, remark=play.scene.follow_up)
    content = json.dumps(
        ["not", "what", "was", "asked", "for"] if is_spoilt else artifact, ensure_ascii=False, indent=2
    )
    return Reply(
        "I write the artifact.", (Call("write_file", {"file_path": _absolute(play), "content": content + "\n"}),)
    )


def _farewell(play: _Play) -> Reply:
    path = play.envelope.artifact.path
    is_written = any(seen.args.get("file_path") == _absolute(play) for seen in play.scene.results("write_file"))
    return Reply(f"Done: {path} is written." if is_written else "I am done.")


def _begin_badly(play: _Play) -> Reply:
    if play.scene.misbehave == "giant-output":
        line = f"Thinking about {play.topic.title} at length. "
        return Reply((line * (_GIANT_CHARS // len(line) + 1))[:_GIANT_CHARS], (Call("ls", {"path": "/"}),))
    return Reply(
        "I try some things.",
        (
            Call("no_such_tool", {"x": 1}, "call_0"),
            Call("read_file", {"offset": "many"}, "call_0"),
            Call("read_file", {"file_path": "/../outside.txt"}, None),
            Call("write_file", {"file_path": "/.git/config", "content": "x"}, None),
            Call("ls", {"path": "/"}, "call_0"),
        ),
    )


def _absolute(play: _Play) -> str:
    return "/" + play.envelope.artifact.path.lstrip("/")


def _listed(scene: Scene) -> tuple[str, ...]:
    """Return the paths of the first listing, as far as it is one."""
    return list_names(next((seen.result for seen in scene.results("ls")), ""))
