"""The times of a cron line in a time zone, daylight saving time included."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

from holdfast.errors import ScheduleInvalid

_NAMES = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat"
_FIELD = re.compile(rf"(?:[\d*,/-]|{_NAMES})+", re.IGNORECASE)
_RANGE = re.compile(r"(\w+)-(\w+)(?:/\d+)?")
_NEAR = timedelta(hours=3)  # no clock is set back or forward by more


class CronLine:
    """A cron line of five fields, by the wall clock of a zone.

    A time that the clock skips comes as much later as the clock was set forward. One that comes twice counts the first
    time; where the hour is `*` each hour counts that there is. A range of numbers goes upwards; one of names may go on
    in the next year or week (`nov-feb`, `sat-mon`).
    """

    def __init__(self, line: str, zone: str) -> None:
        """Check line and zone. Raises `ScheduleInvalid`."""
        fields = line.split()
        if len(fields) != 5 or not all(_FIELD.fullmatch(field) for field in fields):
            raise ScheduleInvalid(f"{line!r} is no cron line.")
        self._line = " ".join(_check_ranges(field, line) for field in fields)
        self._is_hourly = fields[1] == "*"
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ScheduleInvalid(
                f"{zone!r} is no time zone.", hint="Use a name such as Europe/Berlin, or UTC."
            ) from error
        try:
            croniter(self._line, datetime(2024, 1, 1)).get_next(datetime)  # noqa: DTZ001 - a wall clock's
        except (CroniterError, ValueError, KeyError) as error:
            raise ScheduleInvalid(f"{line!r} is no cron line: {error}.") from error

    def next_after(self, moment: datetime) -> datetime:
        """Return the first time after a moment, in UTC."""
        wall = moment.astimezone(self._zone).replace(tzinfo=None)
        upcoming = croniter(self._line, wall).get_next(datetime)
        (found, *_) = [*self._moments(upcoming), None]
        if found is not None and self._is_steady(moment) and self._is_steady(found):
            return found
        return self._search_near(moment, wall)

    def _search_near(self, moment: datetime, wall: datetime) -> datetime:
        """Find the next time where the clock is set: wall times may be missing, or come in another order."""
        best: datetime | None = None
        walls = croniter(self._line, wall - _NEAR)
        while True:
            upcoming = walls.get_next(datetime)
            best = min((each for each in (*self._moments(upcoming), best) if each and each > moment), default=None)
            if best is not None and upcoming > best.astimezone(self._zone).replace(tzinfo=None) + _NEAR:
                return best

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the times after one moment and up to another, in order."""
        moment = self.next_after(after)
        while moment <= until:
            yield moment
            moment = self.next_after(moment)

    def last_until(self, until: datetime, *, after: datetime) -> datetime | None:
        """Return the last time up to a moment, if there is one after the other."""
        for back in (timedelta(hours=1), timedelta(days=1), timedelta(days=32)):
            if until - back > after and (times := list(self.between(until - back, until))):
                return times[-1]
        times = list(self.between(after, until))
        return times[-1] if times else None

    def _moments(self, wall: datetime) -> list[datetime]:
        first, second = (wall.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        is_skipped = first.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != wall
        if not self._is_hourly or first.utcoffset() == second.utcoffset():
            return [first.astimezone(UTC)]
        return [] if is_skipped else [first.astimezone(UTC), second.astimezone(UTC)]

    def _is_steady(self, moment: datetime) -> bool:
        before, after = ((moment + shift).astimezone(self._zone) for shift in (-_NEAR, _NEAR))
        return before.utcoffset() == after.utcoffset()


def _check_ranges(field: str, line: str) -> str:
    """Return a field with a range of one value as that value. Raises `ScheduleInvalid` for one that goes downwards."""
    return ",".join(_check_range(part, line) for part in field.split(","))


def _check_range(part: str, line: str) -> str:
    found = _RANGE.fullmatch(part)
    if found is None:
        return part
    first, last = found[1].lower(), found[2].lower()
    if first == last:
        return first  # croniter takes such a range for all values
    if first.isdecimal() and last.isdecimal() and int(last) < int(first):
        raise ScheduleInvalid(
            f"{line!r} is no cron line: the range {found[1]}-{found[2]} ends below its start.",
            hint="Write two ranges with a comma, such as 22-23,0-4; in a range of weekdays Sunday may also be 7.",
        )
    return part
