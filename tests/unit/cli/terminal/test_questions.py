"""An answer in one line is read the same way wherever it is typed."""

from typing import Any

import pytest

from holdfast.cli.terminal.questions import ApprovalInput, list_replies, parse_reply, send_answer

TOOL_CALL = {"about": "tool", "run_id": "run", "approval_id": "approval", "digest": "digest", "shown": {}}
IN_DOUBT = {**TOOL_CALL, "about": "outcome"}


@pytest.mark.parametrize(
    ("question", "line", "answer"),
    [
        (TOOL_CALL, "a", ApprovalInput("approve", "")),
        (TOOL_CALL, " Yes ", ApprovalInput("approve", "")),
        (TOOL_CALL, "r not that file", ApprovalInput("reject", "not that file")),
        (TOOL_CALL, "later", None),
        (IN_DOUBT, "h it printed 42", ApprovalInput("approve", "", result="it printed 42")),
        (IN_DOUBT, "again", ApprovalInput("approve", "")),
    ],
)
def test_a_word_and_what_belongs_to_it_are_one_answer(
    question: dict[str, Any], line: str, answer: ApprovalInput | None
) -> None:
    assert parse_reply(question, line) == answer


@pytest.mark.parametrize(("question", "line"), [(TOOL_CALL, "h"), (IN_DOUBT, "yes"), (TOOL_CALL, "")])
def test_a_word_that_is_no_answer_is_refused(question: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="is none of these"):
        parse_reply(question, line)


def test_a_call_in_doubt_has_answers_of_its_own() -> None:
    assert list_replies(IN_DOUBT) != list_replies(TOOL_CALL)


async def test_an_answer_is_sent_with_the_digest_of_what_was_shown() -> None:
    sent: dict[str, Any] = {}

    class Engine:
        async def decide(self, run_id: str, approval_id: str, action: str, **options: Any) -> None:
            sent.update(options, ids=(run_id, approval_id), action=action)

    engine: Any = Engine()
    await send_answer(engine, TOOL_CALL, ApprovalInput("reject", "no"))

    assert (sent["ids"], sent["action"], sent["comment"]) == (("run", "approval"), "reject", "no")
    assert sent["digest"] == "digest"
    assert "result" not in sent
