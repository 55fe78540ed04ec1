"""One event in words."""

from holdfast.runtime.event_text import describe_event
from holdfast.runtime.events import EventKind, create_event

PERSONA = {"name": "analyst", "version": 1, "system_prompt": "Look closely.", "permissions": {"tools": None}}


def test_a_message_is_who_said_it_and_what() -> None:
    event = create_event("r", EventKind.MESSAGE_RECEIVED, text="What does it do?\nIn short.", by="root")
    assert describe_event(event) == ("message by root", "What does it do?\nIn short.")


def test_a_persona_in_an_event_is_its_name() -> None:
    message = create_event("r", EventKind.MESSAGE_RECEIVED, text="Hello", by="root", persona=PERSONA)
    started = create_event("r", EventKind.PHASE_STARTED, phase="chat", result={"persona": PERSONA, "messages": [5]})
    named = create_event("r", EventKind.PHASE_STARTED, phase="spec", result={"persona": "writer"})

    assert describe_event(message).phrase == "message by root to analyst"
    assert describe_event(started).phrase == "phase chat started, by analyst"
    assert describe_event(named).phrase == "phase spec started, by writer"


def test_a_call_is_described_by_what_its_tool_heeds() -> None:
    args = {"command": "README.md", "file_path": "/" + "x" * 100, "content": "all good"}
    event = create_event("r", EventKind.TOOL_STARTED, key="k", tool="write_file", args=args)
    assert describe_event(event, max_chars=10).phrase == "calls write_file /xxxxxxxx… … (+1 argument)"


def test_a_change_of_a_run_says_what_is_different() -> None:
    facts = {"personas": {"author": PERSONA}, "requirements_md": "Another one", "reopened": ["draft"]}
    changed = create_event("r", EventKind.RUN_CHANGED, by="root", **facts)

    phrase, detail = describe_event(changed)

    assert phrase == "run changed by root: other requirements, author is analyst, starts anew: draft"
    assert detail == "Another one"
