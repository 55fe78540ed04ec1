"""When a run is to start, as a person writes it."""

from datetime import UTC, datetime, timedelta

import pytest
import typer

from holdfast.cli.terminal.requirements import parse_time

NOW = datetime(2026, 3, 1, 12, 0).astimezone()


@pytest.mark.parametrize(
    ("word", "moment"),
    [
        ("12:30", NOW + timedelta(minutes=30)),
        ("11:59", NOW + timedelta(days=1, minutes=-1)),
        ("12:00:30", NOW + timedelta(seconds=30)),
        ("2026-12-24T18:00+01:00", datetime(2026, 12, 24, 17, tzinfo=UTC)),
        ("2026-12-24T18:00", datetime(2026, 12, 24, 18).astimezone()),
        ("2026-12-24", datetime(2026, 12, 24).astimezone()),
    ],
)
def test_a_time_of_day_is_the_next_one_and_a_date_is_itself(word: str, moment: datetime) -> None:
    assert parse_time(word, now=NOW) == moment


@pytest.mark.parametrize(
    "word", ["", "soon", "25:00", "12:60", "03:30pm", "11:00 PM", "03:30:", "2026-02-30", "0001-01-01T00:00+14:00"]
)
def test_what_is_no_time_is_refused_with_an_example(word: str) -> None:
    with pytest.raises(typer.BadParameter, match="03:30"):
        parse_time(word, now=NOW)
