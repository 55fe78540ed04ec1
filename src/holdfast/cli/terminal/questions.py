"""A question to the person at the terminal: what a phase made, what they say to it, and how that is recorded."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cli.terminal.answer_input import read_answer
from holdfast.cli.terminal.approval_text import IN_DOUBT, describe_change, describe_request_in_full, read_content
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.output import paint, plain, say
from holdfast.cli.terminal.pager import show_in_pager
from holdfast.persistence.raw_sql import read_approvals
from holdfast.presentation.values import describe_json
from holdfast.runtime.run_fold.call_line import ask_about_call

if TYPE_CHECKING:
    from holdfast.engine.workflow_engine import WorkflowEngine

_CHOICES = {
    "approve": "approve (a)",
    "edit": "change its arguments (e)",
    "request_changes": "request changes (c)",
    "reject": "reject (r)",
    "diff": "see the diff (d)",
    "later": "later (l)",
}
_KEYS = {"a": "approve", "e": "edit", "c": "request_changes", "r": "reject", "d": "diff", "l": "later"}
_OUTCOME_CHOICES = {
    "happened": "it happened (h)",
    "approve": "run it again (a)",
    "reject": "fail the phase (f)",
    "abort": "abort the run (x)",
    "later": "later (l)",
}
_OUTCOME_KEYS = {"h": "happened", "a": "approve", "f": "reject", "x": "abort", "l": "later"}
_MOST_LINES = 30
# In a conversation the whole answer is one line: a word, and behind it what belongs to it.
_REPLIES = ("approve (a)", "reject (r WHY)", "later (l)")
_REPLY_WORDS = {
    **dict.fromkeys(("a", "approve", "y", "yes"), "approve"),
    **dict.fromkeys(("r", "reject", "n", "no"), "reject"),
    **dict.fromkeys(("l", "later"), "later"),
}
_OUTCOME_REPLIES = ("it happened (h WHAT IT GAVE)", "run it again (a)", "end the answer (r)", "later (l)")
_OUTCOME_REPLY_WORDS = {
    **dict.fromkeys(("h", "happened"), "happened"),
    **dict.fromkeys(("a", "again"), "approve"),
    **dict.fromkeys(("r", "reject"), "reject"),
    **dict.fromkeys(("l", "later"), "later"),
}


class ApprovalInput(NamedTuple):
    """What a person typed to a question."""

    action: str
    comment: str
    args: dict[str, Any] | None = None
    """What a tool call is to be made with instead."""
    result: str | None = None
    """What a call gave that was in flight at a crash, and that has happened."""


def find_question(run_id: str) -> dict[str, Any] | None:
    """Return the approval that a run waits for, or `None` if it no longer does."""
    return next((row for row in read_approvals(run_id, state="pending")), None)


def ask(question: dict[str, Any]) -> ApprovalInput | None:
    """Show what is to be approved and read the answer; `None` is "later", and so is the end of input.

    Raises `KeyboardInterrupt` for Ctrl-C.
    """
    show_question(question)
    if is_in_doubt(question):
        return _ask_what_became()
    choices = {word: label for word, label in _CHOICES.items() if word not in _find_unfit(question)}
    while True:
        action = _choose(choices, _KEYS)
        if action == "diff":
            show_long(str(question["shown"].get("diff") or "No file was changed."))
        elif action == "later":
            return None
        elif action == "approve":
            return ApprovalInput(action, "")
        elif (text := read_answer(_MORE[action])) is None:
            return None
        elif action == "edit":
            if (args := _parse_args(text)) is not None:
                return ApprovalInput("approve", "", args)
        elif text or action == "reject":
            return ApprovalInput(action, text)


def _ask_what_became() -> ApprovalInput | None:
    action = _choose(_OUTCOME_CHOICES, _OUTCOME_KEYS)
    if action == "happened":
        result = read_answer("What did it give? The agent reads this (empty is fine) > ")
        return None if result is None else ApprovalInput("approve", "", result=result)
    return None if action == "later" else ApprovalInput(action, "")


def list_replies(question: dict[str, Any]) -> Sequence[str]:
    """Return the answers that a question takes in one line, for `parse_reply`."""
    return _OUTCOME_REPLIES if is_in_doubt(question) else _REPLIES


def parse_reply(question: dict[str, Any], line: str) -> ApprovalInput | None:
    """Read an answer from one line; `None` is "later". Raises `ValueError` for a word that is none of the answers."""
    word, _, rest = line.strip().partition(" ")
    action = (_OUTCOME_REPLY_WORDS if is_in_doubt(question) else _REPLY_WORDS).get(word.lower())
    if action is None:
        raise ValueError(f"{word!r} is none of these.")
    if action == "happened":
        return ApprovalInput("approve", "", result=rest)
    return None if action == "later" else ApprovalInput(action, rest)


async def send_answer(engine: "WorkflowEngine", question: dict[str, Any], answer: ApprovalInput) -> None:
    """Record a person's answer to the question as it was shown to them.

    Raises `ApprovalStale` if that is no longer what is asked, and `ApprovalAnswered` if someone else was faster.
    """
    result: dict[str, Any] = {} if answer.result is None else {"result": answer.result}
    await engine.decide(
        str(question["run_id"]),
        question["approval_id"],
        answer.action,
        comment=answer.comment,
        by=get_user(),
        digest=question["digest"],
        args=answer.args,
        **result,
    )


def _choose(choices: Mapping[str, str], keys: Mapping[str, str]) -> str:
    """Ask until the answer is one of the choices and return it; the end of input is "later"."""
    while True:
        say()
        answer = read_answer(f"{in_rows(list(choices.values()))} > ")
        if answer is None:
            return "later"
        typed = answer.lower()
        action = keys.get(typed) or next((word for word in choices if typed and word.startswith(typed)), "")
        if action in choices:
            return action
        say(f"{typed!r} is none of these." if typed else "Nothing was chosen yet.")


def in_rows(choices: Sequence[str]) -> str:
    """Lay choices out side by side, in as many rows as a narrow terminal needs."""
    room = shutil.get_terminal_size().columns - len(" > x")
    rows = [choices[0]]
    for choice in choices[1:]:
        if len(rows[-1]) + len(choice) + 2 > room:
            rows.append(choice)
        else:
            rows[-1] += f"  {choice}"
    return "\n".join(rows)


_MORE = {
    "edit": "The arguments as JSON > ",
    "request_changes": "What should change? > ",
    "reject": "Why? (empty is fine) > ",
}


def _find_unfit(question: dict[str, Any]) -> set[str]:
    """Return the choices that a question does not have."""
    if _is_phase(question):
        return {"edit"}
    is_tool_call = "args" in question["shown"]
    return {"request_changes", "diff"} | (set() if is_tool_call else {"edit"})


def _parse_args(text: str) -> dict[str, Any] | None:
    from holdfast.cli.commands.approvals import read_args
    from holdfast.errors import ConfigInvalid

    try:
        return read_args(text)
    except ConfigInvalid as error:
        say(error.message)
        return None


def _is_phase(question: Mapping[str, Any]) -> bool:
    """Return whether a phase's result is in question, and not a call that an agent wants to make or may have made."""
    return not (isinstance(question["shown"], dict) and question["shown"].get("question"))


def is_in_doubt(question: Mapping[str, Any]) -> bool:
    """Return whether it is about a call of which nobody knows if it happened."""
    return bool(question["about"] == "outcome")


def show_question(question: dict[str, Any]) -> None:
    details = question["shown"] if isinstance(question["shown"], dict) else {}
    if is_in_doubt(question):
        say(f"\n{paint(f'◔ {IN_DOUBT}', 'paused', sys.stderr)}\n")
        show_long(describe_request_in_full(details))
        return
    if not _is_phase(question):
        say(f"\n{paint('◔ ' + plain(str(details['question'])), 'paused', sys.stderr)}\n")
        show_long(describe_request_in_full(details))
        return
    following = ", ".join(details.get("next") or []) or "the run's end"
    since = details.get("since_answer") or {}
    heading = f"◔ Phase {question['phase_key']} waits for your approval: {details.get('artifact', '')}"
    say(f"\n{paint(heading, 'paused', sys.stderr)}\n  attempt {question['attempt']}, {describe_change(details)}")
    say()
    show_long(describe_json(read_content(question)))
    say()
    for path in details.get("files") or []:
        say(f"  changed: {plain(str(path))}")
    if details.get("reason"):
        say(f"You are asked because {details['reason']}.")
    if "files" in since:
        say(f"Since your last answer: {describe_change(since)}")
        show_long(str(since.get("diff") or "No file was changed."))
    say(f"Approve: {following} is next.\nRequest changes: the phase runs again with your comment.")
    say("Reject: the run fails; holdfast retry can open it again.")


def show_long(text: str) -> None:
    """Print a short text as it is, and show a long one in the pager."""
    text = plain(text)
    lines = text.splitlines()
    if len(lines) <= min(_MOST_LINES, max(shutil.get_terminal_size().lines - 12, 8)):
        say("\n".join(f"  {line}" for line in lines))
    else:
        show_in_pager(text)


def notify_of_question(question: Mapping[str, Any]) -> None:
    """Notify with what is asked: the call itself, or the phase."""
    is_call = not _is_phase(question) and not is_in_doubt(question) and isinstance(question["shown"], Mapping)
    text = ask_about_call(question["shown"]) if is_call else f"{question['phase_key']} waits for you"
    notify_person(f"holdfast: {text}")


def notify_person(text: str) -> None:
    """Ring the bell where there is a terminal, and notify where there is a desktop."""
    if not sys.stderr.isatty():
        return
    sys.stderr.write("\a")
    sys.stderr.flush()
    program = shutil.which("notify-send")
    if program and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        with contextlib.suppress(OSError):
            subprocess.Popen([program, "--app-name=holdfast", text], stderr=subprocess.DEVNULL)
