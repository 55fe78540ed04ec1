"""What is said of the result of a run that is over: the verdict of its review, and where it was merged."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.presentation.format import sentence_case
from holdfast.runtime.run_fold.payload_text import first_line


class ReviewVerdict(NamedTuple):
    """What a review found: its tone, as a mark of a few words, and as a sentence."""

    tone: str
    mark: str
    sentence: str


VERDICTS: Mapping[str, ReviewVerdict] = {
    "approve": ReviewVerdict("good", "Approved by review", "The review approves it."),
    "request_changes": ReviewVerdict("waiting", "Changes wanted", "The review asks for changes."),
    "reject": ReviewVerdict("bad", "Rejected by review", "The review rejects it."),
    "fixed": ReviewVerdict("good", "Fixed", "The fault is gone, as the verification saw it."),
    "partly_fixed": ReviewVerdict("waiting", "Partly fixed", "The fault is only partly gone."),
    "not_fixed": ReviewVerdict("bad", "Not fixed", "The fault is still there."),
}


def find_verdict(verdict: str | None) -> ReviewVerdict | None:
    """Return what to say of a verdict; a word of a workflow's own is passed on, and is neither good nor bad."""
    if not verdict:
        return None
    word = first_line(verdict, 40).replace("_", " ")
    return VERDICTS.get(verdict, ReviewVerdict("idle", sentence_case(word), f"Its verdict is “{word}”."))


def describe_merge(merged_into: str | None) -> str:
    """Say where a result was merged, as a part of a line; nothing if it was not."""
    return f"merged into {first_line(merged_into, 60)}" if merged_into else ""
