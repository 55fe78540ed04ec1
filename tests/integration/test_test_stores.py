"""`make test` tries each test of several stores on one of them, and every store with some."""

from tests.support.store_sample import find_others

STORES = ("memory", "jsonl", "sqlite", "postgres")
CASES = [(f"tests/sqlite/test_it.py::test_{number}[", case) for number in range(40) for case in ("-1]", "-memory]")]


def test_each_test_runs_on_one_store_and_every_store_has_tests() -> None:
    names = [test + store + case for test, case in CASES for store in STORES]

    chosen = set(names) - find_others(names, "7")

    by_case = [[store for store in STORES if test + store + case in chosen] for test, case in CASES]
    assert {len(stores) for stores in by_case} == {1}
    assert {stores[0] for stores in by_case} == set(STORES)


def test_the_seed_decides_and_what_has_one_store_always_runs() -> None:
    names = [test + store + case for test, case in CASES for store in STORES]

    assert find_others(names, "7") == find_others(reversed(names), "7") != find_others(names, "8")
    assert find_others(["test_it[sqlite]", "test_other[postgres]", "test_plain"], "7") == set()
