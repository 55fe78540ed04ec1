"""The times of cron lines: as the wall clock of their zone has them, also on the days when that is set."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ScheduleInvalid
from holdfast.fleet.schedules import run_id_of
from holdfast.flows.service.cron import CronLine
from holdfast.flows.service.flow_schedule import choose_times

BERLIN = "Europe/Berlin"
FORWARD, BACK = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)  # both at 01:00 UTC


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(line: str, zone: str, after: datetime, hours: int) -> list[str]:
    found = CronLine(line, zone).between(after, after + timedelta(hours=hours))
    return [moment.strftime("%d %H:%M") for moment in found]


def test_a_time_that_the_clock_skips_comes_an_hour_later() -> None:
    assert times("30 2 * * *", BERLIN, FORWARD - timedelta(days=1), 72) == ["28 01:30", "29 01:30", "30 00:30"]


def test_a_time_that_comes_twice_counts_once() -> None:
    assert times("30 2 * * *", BERLIN, BACK - timedelta(days=1), 72) == ["24 00:30", "25 00:30", "26 01:30"]


@pytest.mark.parametrize("day", [FORWARD, BACK])
def test_where_the_hour_is_any_every_hour_counts_that_there_is(day: datetime) -> None:
    found = times("*/30 * * * *", BERLIN, day - timedelta(minutes=1), 4)
    assert found == times("*/30 * * * *", "UTC", day - timedelta(minutes=1), 4)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["*/20 * * * *", "15 2 * * *", "0 1-3 * * *", "5 */2 * * 1,4", "59 23 28-31 * *", "30 3 29 2 *"]),
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]),
    st.sampled_from([FORWARD, BACK, datetime(2026, 4, 4, 12, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)]),
    st.integers(-400, 400),
)
def test_next_is_the_first_time_and_each_wall_time_is_the_lines(
    line: str, zone: str, day: datetime, minutes: int
) -> None:
    cron, after = CronLine(line, zone), day + timedelta(minutes=minutes)
    found = cron.next_after(after)

    assert found > after
    assert found == CronLine(line, zone).next_after(found - timedelta(seconds=1))  # nothing lies between
    wall = found.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    shifts = (timedelta(0), timedelta(hours=-1), timedelta(minutes=-30))  # by as much as the clock was set forward
    assert any(croniter.match(line, wall + shift) for shift in shifts)


@pytest.mark.parametrize("line", ["", "* * * *", "61 * * * *", "* * * * * *", "@daily", "R R * * *", "0 0 30 2 *", "x"])
def test_what_is_no_cron_line_is_refused(line: str) -> None:
    with pytest.raises(ScheduleInvalid, match="is no cron line") as refused:
        CronLine(line, "UTC")
    assert refused.value.message.endswith(".")  # the hint is another sentence


@pytest.mark.parametrize("line", ["5-1 * * * *", "0 22-2/2 * * *", "0 0 9-3,5 * *", "0 0 * 11-2 *", "0 0 * * 5-1"])
def test_a_range_that_ends_below_its_start_is_refused(line: str) -> None:
    with pytest.raises(ScheduleInvalid, match=r"is no cron line: the range .* ends below its start") as refused:
        CronLine(line, "UTC")
    assert "-" in refused.value.hint


@pytest.mark.parametrize(
    ("line", "days"),
    [("0 0 * * 5-7", [4, 5, 6]), ("0 0 * * fri-sun", [4, 5, 6]), ("0 0 * * Sat-Mon", [0, 5, 6]), ("0 0 * * 1-1", [0])],
)
def test_a_range_of_weekdays_may_end_with_sunday_and_by_names_in_the_next_week(line: str, days: list[int]) -> None:
    found = CronLine(line, "UTC").between(utc("2026-01-05T00:00") - timedelta(seconds=1), utc("2026-01-11T23:59"))
    assert [moment.weekday() for moment in found] == days


def test_a_range_of_months_may_by_names_end_in_the_next_year() -> None:
    found = CronLine("0 0 1 nov-feb *", "UTC").between(utc("2026-01-01T00:00"), utc("2027-01-01T00:00"))
    assert [moment.month for moment in found] == [2, 11, 12, 1]


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime"])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleInvalid, match="is no time zone"):
        CronLine("0 * * * *", zone)


def test_missed_times_are_skipped_or_made_up_for() -> None:
    cron, after, now = CronLine("0 * * * *", "UTC"), utc("2026-01-01T00:30"), utc("2026-01-01T05:30")

    assert choose_times(cron, after=after, now=now, missed="skip") == []
    assert choose_times(cron, after=after, now=now, missed="once") == [utc("2026-01-01T05:00")]
    assert [t.hour for t in choose_times(cron, after=after, now=now, missed="all")] == [1, 2, 3, 4, 5]
    on_time = utc("2026-01-01T05:00") + timedelta(seconds=2)
    assert choose_times(cron, after=after, now=on_time, missed="skip") == [utc("2026-01-01T05:00")]


def test_a_time_that_was_tried_is_not_missed_until_the_next_one_comes() -> None:
    cron, after, tried = CronLine("0 */3 * * *", "UTC"), utc("2026-01-01T00:30"), utc("2026-01-01T03:00")

    def choose(now: str) -> list[datetime]:
        return choose_times(cron, after=after, now=utc(now), missed="skip", tried=tried)

    assert choose("2026-01-01T03:00") == choose("2026-01-01T05:59") == [tried]
    assert choose("2026-01-01T06:00") == [utc("2026-01-01T06:00")]
    assert choose("2026-01-01T06:05") == []  # it was given up, and nobody was there for the next one


def test_a_runs_id_follows_from_schedule_and_time() -> None:
    assert run_id_of("nightly", "2026-01-01T00:00:00.000Z") == "793f17ea-e40d-57e6-8073-0a98356fbbcd"
    assert run_id_of("nightly", "2026-01-01T00:00:00.000Z") != run_id_of("nightly", "2026-01-02T00:00:00.000Z")
