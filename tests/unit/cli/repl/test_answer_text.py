"""An answer on the terminal: Markdown block by block, each row once, and nothing that a terminal would obey."""

import sys
from collections.abc import Iterator

import pytest

from holdfast.cli.repl.answer_text import AnswerText
from holdfast.cli.terminal.markdown import draw, split_complete

ANSWER = """# What it does

It **adds**, see `calc.py`:

- one

  more of one
- two
```python
def add(a, b):

    return a + b
```
| a | b |
| - | - |
| 1 | 2 |

Use List<int> [there](http://example.invalid/x).
The end
"""
ROWS = [
    *("● What it does", "", "  It adds, see calc.py:", "", "   • one", "     more of one", "   • two", ""),
    *("  def add(a, b):", "", "      return a + b", "", "   a  b", "   ────", "   1  2", ""),
    *("  Use List<int> there (http://example.invalid/x).", "  The end"),
]


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def written(text: str, size: int, *, is_drawn: bool = True) -> list[str]:
    rows: list[str] = []
    answer = AnswerText(rows.append, is_drawn=is_drawn)
    for piece in pieces(text, size):
        answer.write(piece)
    answer.end()
    return rows


@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
def test_an_answer_looks_the_same_however_it_came_in_pieces(size: int) -> None:
    assert written(ANSWER, size) == ROWS


def test_a_block_is_drawn_when_the_next_one_has_begun() -> None:
    rows: list[str] = []
    answer = AnswerText(rows.append, is_drawn=True)

    answer.write("Title\n\nA *para")
    assert (rows, answer.last_rows(5)) == ([], ["Title", "", "A *para"])
    answer.write("graph*\n")
    assert (rows, answer.last_rows(5)) == (["● Title"], ["A *paragraph*"])
    answer.end()
    assert (rows, answer.tail) == (["● Title", "", "  A paragraph"], "")


def test_code_is_not_taken_apart_while_it_is_written() -> None:
    text = "```\none\n\n# two\n\n- three\n"
    assert split_complete(text) == ([], text)


def test_what_is_left_over_shows_its_last_rows_only() -> None:
    answer = AnswerText(lambda _row: None, is_drawn=True)
    answer.write("```\n" + "\n".join(f"line {number}" for number in range(100)) + "\n")
    assert answer.last_rows(2) == ["line 98", "line 99"]


def test_without_a_terminal_the_text_stays_as_it_is() -> None:
    assert written(ANSWER, 7, is_drawn=False)[:3] == ["● # What it does", "", "  It **adds**, see `calc.py`:"]


@pytest.mark.usefixtures("terminal")
def test_nothing_an_agent_wrote_is_obeyed_by_the_terminal() -> None:
    hostile = (
        "a \x1b[2J b &#27;[2J &#13;c &#x202e;d &#7; `\x1b]0;t\x07` [x](http://h/&#13;\x9b2J)\n\n```\n\x1b[31m\r\n```\n"
    )
    rows = "\n".join(row for row in written(hostile, 3))
    allowed = rows.replace("\x1b[36m", "").replace("\x1b[0m", "").replace("\x1b[4m", "").replace("\x1b[49m", "")
    assert all(letter.isprintable() or letter == "\n" for letter in allowed), repr(allowed)


@pytest.mark.usefixtures("terminal")
def test_code_and_headings_are_set_off() -> None:
    (row,) = draw("Call `add` **now**", 60)
    assert row == "Call \x1b[36madd\x1b[0m \x1b[1mnow\x1b[0m"


def test_no_text_can_end_the_conversation() -> None:
    for text in (
        "> " * 999 + "deep",
        "- " * 999,
        "[" * 5000,
        "*_" * 5000,
        "```no-such-language\nx\n```",
        "|\n|-|\n",
        "\0",
    ):
        assert written(text, 1000)
