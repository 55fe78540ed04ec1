"""The crash matrix: the process dies by SIGKILL at every append and around every effect, once and twice.

Afterwards result, effects and journal are those of a run that nobody disturbed, but for a step in flight, whose policy
decides. `make test` tries a sample of the points, `make torture` all of them and many pairs.
"""

import pytest
from tests.support.crash.flow_run import GetReference, NewRun
from tests.support.crash.points import POINTS, Case, double_kills, single_kills
from tests.support.stores import DISK_KINDS


def _name(case: Case) -> str:
    kind, kills = case
    return f"{kind}-{' then '.join(str(kill) if isinstance(kill, str) else f'{kill} points on' for kill in kills)}"


@pytest.mark.parametrize("kind", DISK_KINDS)
def test_the_flow_passes_exactly_the_points_of_the_matrix(kind: str, get_reference: GetReference) -> None:
    run, _ = get_reference(kind)

    assert sorted(run.trace()) == sorted(POINTS[kind]), run.explain("points")


@pytest.mark.parametrize("case", single_kills(), ids=_name)
def test_a_killed_run_ends_like_an_undisturbed_one(case: Case, new_run: NewRun, get_reference: GetReference) -> None:
    kind, kills = case
    reference, expected = get_reference(kind)
    run = new_run(kind)

    result = run.finish(kills)

    assert result == expected
    run.check_against(reference)


@pytest.mark.parametrize("case", double_kills(), ids=_name)
def test_a_run_killed_again_while_it_recovers_ends_like_an_undisturbed_one(
    case: Case, new_run: NewRun, get_reference: GetReference
) -> None:
    kind, kills = case
    reference, expected = get_reference(kind)
    run = new_run(kind)

    result = run.finish(kills)

    assert result == expected
    run.check_against(reference)
