"""Which runs a clean-up means, and that no run goes before what was forked from it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.retention.selection import Selection, choose, order_for_deletion
from holdfast.persistence.deletion import OverRun
from holdfast.persistence.statements import to_time_text

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = [f"r{number}" for number in range(8)]


def run(run_id: str, *, days: float = 0, state: str = "completed", has_open_request: bool = False) -> OverRun:
    return OverRun(run_id, state, to_time_text(NOW - timedelta(days=days)), "/repo", None, has_open_request)


def chosen(runs: list[OverRun], **options: object) -> list[str]:
    return [each.run_id for each in choose(runs, Selection(**options), NOW)]  # type: ignore[arg-type]


def test_every_condition_must_fit() -> None:
    runs = [
        run("old", days=40),
        run("failed", days=35, state="failed"),
        run("asked", has_open_request=True),
        run("new"),
    ]

    assert chosen(runs) == ["old", "failed", "new"]
    assert chosen(runs, older_than=timedelta(days=30)) == ["old", "failed"]
    assert chosen(runs, older_than=timedelta(days=30), states=frozenset({"failed"})) == ["failed"]
    assert chosen(runs, keep=2) == ["old", "failed"]
    assert chosen(runs, keep=3) == ["old"]
    assert chosen(runs, keep=99) == []


@given(
    origins=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES)),
    going=st.sets(st.sampled_from(NAMES)),
)
def test_a_run_goes_after_its_forks_and_never_if_one_stays(origins: dict[str, str], going: set[str]) -> None:
    forks: dict[str, list[str]] = {}
    for fork, origin in origins.items():
        forks.setdefault(origin, []).append(fork)

    ordered, staying = order_for_deletion([run(name) for name in sorted(going)], forks)

    names = [each.run_id for each in ordered]
    assert {*names, *(each.run_id for each in staying)} == going
    assert len(names) + len(staying) == len(going)
    for place, name in enumerate(names):
        assert set(forks.get(name, ())) <= set(names[:place])
