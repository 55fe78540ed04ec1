import pytest

from holdfast.persistence.schedule_table import Schedule
from holdfast.presentation.schedule_status import describe_skips


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (("paused", "approval"), "Its last run 3f2a9c1e still waits for an approval: 4 times were skipped."),
        (("paused", "budget"), "Its last run 3f2a9c1e is still paused (a budget is used up): 4 times were skipped."),
        (("paused", "approval of x"), "Its last run 3f2a9c1e still waits for approval of x: 4 times were skipped."),
        (("running", None), "Its last run 3f2a9c1e still runs: 4 times were skipped."),
        (("pending", None), "Its last run 3f2a9c1e is still to be started: 4 times were skipped."),
        (("failed", None), "4 times were skipped while its last run 3f2a9c1e was not over."),
        (None, "4 times were skipped while its last run 3f2a9c1e was not over."),
    ],
)
def test_skipped_times_are_counted_with_the_run_for_which_they_were(
    holder: tuple[str, str | None] | None, words: str
) -> None:
    run_id = "3f2a9c1e-0000-5000-8000-000000000000"
    schedule = Schedule(name="n", target="w", cron="0 * * * *", skipped=4, skipped_for=run_id, last_run_id=run_id)
    assert describe_skips(schedule, holder) == words
