"""How commands lay their answers out."""

import os
import sys

import pytest

from holdfast.cli.terminal.output import Cell, table

ROWS: list[list[str | Cell]] = [
    [Cell("◔ paused", "paused"), "ca10d49b", "calc", "conversation: What does calc.py do?", "Waits for a message"],
    [Cell("✓ completed", "completed"), "3ed9b23c", "calc", "small: Fix add", ""],
]
HEADINGS = ["STATE", "RUN", "REPO", "WHAT", "NOW"]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((request.param, 24)))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("columns", [40, 60], indirect=True)
def test_a_narrow_terminal_gets_rows_over_several_lines_with_nothing_cut_off(columns: None) -> None:
    text = table(ROWS, headings=HEADINGS, elastic=(4, 3), stacked=3)

    assert text.splitlines() == [
        "◔ paused  ca10d49b  calc",
        "    conversation: What does calc.py do?",
        "    Waits for a message",
        "✓ completed  3ed9b23c  calc",
        "    small: Fix add",
    ]


@pytest.mark.parametrize("columns", [30], indirect=True)
def test_a_very_narrow_one_gets_them_wrapped(columns: None) -> None:
    lines = table(ROWS[:1], stacked=3).splitlines()
    assert lines[1:3] == ["    conversation: What does", "      calc.py do?"]
    assert max(map(len, lines)) <= 30


@pytest.mark.parametrize("columns", [80], indirect=True)
def test_a_wide_one_gets_columns(columns: None) -> None:
    first, *rows = table(ROWS, headings=HEADINGS, elastic=(4, 3), stacked=3).splitlines()
    assert first.split() == HEADINGS
    assert len(rows) == 2
