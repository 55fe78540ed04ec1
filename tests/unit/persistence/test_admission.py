"""Whose run comes next: users take turns whatever one of them has queued, and a limit is never passed."""

import string
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.persistence.admission import Places, QueuedRun, order_fairly

USERS = st.sampled_from("abc")
RUNS = st.lists(
    st.builds(
        QueuedRun,
        run_id=st.text(string.ascii_lowercase, min_size=6, max_size=6),
        user=USERS,
        workflow=st.sampled_from(["release", "review"]),
        priority=st.integers(-3, 3),
        created_at=st.integers(0, 50).map("{:03}".format),
    ),
    unique_by=lambda run: run.run_id,
    max_size=30,
)


@given(RUNS, st.dictionaries(USERS, st.integers(0, 9).map("{:03}".format)))
def test_every_run_comes_and_those_of_one_user_by_priority_and_age(
    runs: list[QueuedRun], served: dict[str, str]
) -> None:
    ordered = order_fairly(runs, served)

    assert Counter(ordered) == Counter(runs)
    for user in "abc":
        of_user = [run.rank for run in ordered if run.user == user]
        assert of_user == sorted(of_user)


@given(RUNS.filter(bool), st.dictionaries(USERS, st.integers(0, 9).map("{:03}".format)))
def test_each_user_is_among_the_next_as_many_as_there_are_users(runs: list[QueuedRun], served: dict[str, str]) -> None:
    """As a dispatcher does: one place at a time, what is queued looked at anew each time."""
    clock, waiting, starts = 100, list(runs), []
    while waiting:
        users = {run.user for run in waiting}
        upcoming = order_fairly(waiting, served)[0]
        waiting.remove(upcoming)
        clock += 1
        served = {**served, upcoming.user: str(clock)}
        starts.append((users, upcoming.user))

    for place, (users, _) in enumerate(starts):
        following = [user for _, user in starts[place : place + len(users)]]
        assert set(following) >= users


@given(RUNS, st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_no_limit_is_passed_and_whoever_waits_is_told_for_what(
    runs: list[QueuedRun], in_all: int, of_release: int, of_user: int
) -> None:
    places = Places({("runs", ""): in_all, ("workflow", "release"): of_release, ("user", "a"): of_user})
    admitted = []
    for run in order_fairly(runs, {}):
        if (full := places.describe_full(run)) is None:
            places.take(run)
            admitted.append(run)
        else:
            assert full.startswith("Waits for a place")
            assert full.endswith("are taken.")

    assert len(admitted) <= in_all
    assert sum(run.workflow == "release" for run in admitted) <= of_release
    assert sum(run.user == "a" for run in admitted) <= of_user


def test_what_a_run_waits_for_is_said_in_a_sentence() -> None:
    places = Places({("workflow", "release"): 2, ("repository", "/srv/shop"): 1})
    for number in range(2):
        places.take(QueuedRun(str(number), workflow="release", repo_path="/srv/other"))
    places.take(QueuedRun("r", repo_path="/srv/shop"))

    waits = places.describe_full(QueuedRun("x", workflow="release"))
    assert waits == "Waits for a place of workflow release, 2 of 2 are taken."
    waits = places.describe_full(QueuedRun("y", repo_path="/srv/shop"))
    assert waits == "Waits for a place of repository shop, 1 of 1 are taken."
