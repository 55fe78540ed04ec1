import io

import pytest

from holdfast.cli.terminal.answer_input import confirm, read_answer


def test_an_answer_is_a_line_without_the_spaces_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("  yes, do \nmore\n"))

    assert (read_answer("> "), read_answer("> ")) == ("yes, do", "more")


@pytest.mark.parametrize("stdin", [io.StringIO(""), None], ids=["at its end", "closed"])
def test_the_end_of_input_is_no_answer(monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO | None) -> None:
    monkeypatch.setattr("sys.stdin", stdin)

    assert read_answer("> ") is None


def test_bytes_that_are_no_text_are_an_answer_that_fits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))

    assert read_answer("> ") == "\ufffd"


@pytest.mark.parametrize(
    ("typed", "default", "is_agreed"),
    [
        ("y\n", False, True),
        ("Yes\n", False, True),
        ("no\n", True, False),
        ("\n", True, True),
        ("\n", False, False),
        ("", False, False),
        ("", True, True),
        ("perhaps\ny\n", False, True),
        ("perhaps\n", False, False),
    ],
)
def test_a_question_of_yes_or_no_has_a_default(
    monkeypatch: pytest.MonkeyPatch, typed: str, default: bool, is_agreed: bool
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))

    assert confirm("Sure?", default=default) is is_agreed
