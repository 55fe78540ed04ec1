"""Money from the shell: what a rehearsal makes up is no money."""

from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command


def test_money_of_a_rehearsal_is_apart_and_no_limit_stops_it(
    holdfast: Command, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DAY_BUDGET_USD", "0.000001")
    monkeypatch.setenv("HOLDFAST_RUN_BUDGET_USD", "0.000001")

    words = ("--repo", str(repo), "--requirements", "Add numbers", "--simulate", "--yes", "--json")
    result = holdfast("run", "small", *words).json
    money = holdfast("budget", "--json").json
    details = holdfast("runs", "show", result["run_id"], "--json").json

    assert (result["state"], result["cost_usd"]) == ("completed", 0)
    assert result["simulated_usd"] > 0
    assert (money["spent_usd"], money["simulated_usd"]) == (0, pytest.approx(result["simulated_usd"]))
    assert (details["cost_usd"], details["simulated_usd"]) == (0, pytest.approx(result["simulated_usd"]))
    (listed,) = holdfast("runs", "list", "--json").json
    assert (listed["cost_usd"], listed["is_simulated"]) == (0, True)
    for words in (["runs", "show", result["run_id"]], ["budget", result["run_id"]]):
        assert f"rehearsal, ${result['simulated_usd']:.4f} simulated" in holdfast(*words).out
    report = Path(result["final_report_path"]).with_suffix(".md").read_text()
    assert f"a rehearsal, ${result['simulated_usd']:.4f} simulated." in report
    assert "counts against no limit" in holdfast("budget").out
