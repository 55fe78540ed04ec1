"""What is limited has one name, the one that its runs have."""

from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.errors import RepositoryNotAllowed
from holdfast.fleet.assembly import list_queues
from holdfast.fleet.limits import Limit, check_limit, find_differences


@pytest.mark.parametrize(
    "url", ["https://git.example.org/team/shop.git", "ssh://git@git.example.org/shop", "git@git.example.org:shop.git"]
)
def test_a_repository_that_is_named_by_a_url_keeps_its_name(url: str) -> None:
    assert check_limit("repository", url, 2) == ("repository", url)


def test_a_password_is_never_stored_with_a_limit_and_one_that_was_can_be_removed() -> None:
    url = "https://ann:secret@git.example.org/shop.git"
    with pytest.raises(RepositoryNotAllowed) as refused:
        check_limit("repository", url, 2)
    assert "secret" not in str(refused.value)
    assert check_limit("repository", url) == ("repository", url)


def test_a_worker_takes_from_all_queues_that_runs_and_flows_may_name() -> None:
    assert list_queues(load_config(queues="img")) == ("img", "runs", "default")


def test_a_repository_that_is_a_folder_is_named_by_its_whole_path() -> None:
    assert check_limit("repository", ".", 2) == ("repository", str(Path.cwd().resolve()))


ANTHROPIC, OPENAI, SERVER = "anthropic", "openai", "openai_compatible@h:1"


@pytest.mark.parametrize(
    ("setting", "limits", "names"),
    [
        (
            {ANTHROPIC: 2},
            [ANTHROPIC],
            ["max_parallel_model_calls is 2 here; 8 calls at a time to each server of anthropic"],
        ),
        ({ANTHROPIC: 8}, [ANTHROPIC], []),
        ({"*": 2}, [ANTHROPIC], ["max_parallel_model_calls is 2 here; 8 calls at a time to each server of anthropic"]),
        ({"*": 2, ANTHROPIC: 8}, [ANTHROPIC], []),
        ({OPENAI: 2}, [ANTHROPIC], []),
        (
            {"openai_compatible": 2},
            [SERVER],
            [f"max_parallel_model_calls of openai_compatible is 2 here; 8 calls at a time to {SERVER}"],
        ),
        (
            {SERVER: 2, "openai_compatible": 8},
            ["openai_compatible"],
            [f"max_parallel_model_calls of {SERVER} is 2 here; 8 calls at a time to each server of openai_compatible"],
        ),
        ({SERVER: 8, "openai_compatible": 8}, ["openai_compatible", SERVER], []),
        (16, [ANTHROPIC], []),
    ],
)
def test_a_setting_that_a_limit_for_all_takes_the_place_of_is_named(
    setting: object, limits: list[str], names: list[str]
) -> None:
    config = load_config(max_parallel_model_calls=setting)
    found = find_differences(config, [Limit("provider", name, 8) for name in limits])
    assert found == [f"{name} was set for all processes, and counts." for name in names]


def test_a_days_limit_is_compared_with_ones_own() -> None:
    limit = Limit("day", "", 25.0)
    assert find_differences(load_config(), [limit]) == []
    assert find_differences(load_config(day_budget_usd=25), [limit]) == []
    assert len(find_differences(load_config(day_budget_usd=5), [limit])) == 1


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Limit("runs", "", 1_000_000.0), "1000000 runs at a time in all"),
        (Limit("provider", "openai_compatible", 2.0), "2 calls at a time to each server of openai_compatible"),
        (Limit("provider", SERVER, 1.0), f"1 call at a time to {SERVER}"),
        (Limit("day", "", 3.5), "$3.50 a day"),
        (Limit("day", "", 0.000001), "$0.000001 a day"),
        (Limit("day", "", 1_000_000.0), "$1000000.00 a day"),
    ],
)
def test_a_limit_is_said_as_it_holds(limit: Limit, words: str) -> None:
    assert limit.describe() == words


def test_a_setting_that_differs_is_said_in_all_its_digits() -> None:
    (difference,) = find_differences(load_config(day_budget_usd=1_234_567.5), [Limit("day", "", 3.5)])
    assert difference.startswith("day_budget_usd is 1234567.5 here; $3.50 a day ")
