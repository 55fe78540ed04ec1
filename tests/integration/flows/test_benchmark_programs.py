"""The programs of the comparison: each system has all of them, and holdfast's survive the kill that is measured."""

from pathlib import Path

import pytest
from benchmarks.programs import plan, race, servers, table

MODULES = ("holdfast_flows", "dbos_workflows", "temporal_workflows", "prefect_flows")


@pytest.mark.parametrize("module", MODULES)
def test_every_system_has_every_program(module: str) -> None:
    lines = table.count_lines(module)
    assert set(lines) == {"set-up", *plan.BY_NAME}
    assert min(lines.values()) > 2


@pytest.mark.parametrize("name", ["saga", "event", "change"])
def test_a_killed_program_goes_on_and_repeats_the_step_in_flight_alone(tmp_path: Path, name: str) -> None:
    ours, _ = servers.embedded()
    program = plan.BY_NAME[name]
    result = race.measure(ours, program, tmp_path / name)
    assert result.extra == 0
    assert result.repeated == (0 if program.is_wait else 1)
    assert result.peak_mb > 0


def test_the_table_has_a_row_for_every_program_and_tells_what_is_absent() -> None:
    row = {"wall_s": 0.5, "steps": 5, "continue_s": 1.0, "repeated": 1, "extra": 0, "peak_mb": 30.0}
    slower = {**row, "wall_s": 5.0, "extra": 1}
    found = {
        "systems": {
            table.OURS: {"module": "holdfast_flows", "version": "1", "server_mb": 0.0},
            "Prefect": {"module": "prefect_flows", "version": "2", "server_mb": 200.0},
        },
        "results": {f"saga/{table.OURS}": row, "saga/Prefect": slower},
        "not_available": {"Temporal": "it is not installed"},
    }
    text = table.render(found)
    lines = {module: table.count_lines(module)["saga"] for module in ("holdfast_flows", "prefect_flows")}
    assert f"| **holdfast** | {lines['holdfast_flows']} | 10 | 1 | 1.0 s | 1 | 30 MB |" in text
    assert (
        f"| Prefect | {lines['prefect_flows']} | 1 | 0.1 | 1.0 s | 1, and 1 that the old code had not | 30 MB |" in text
    )
    assert "30 MB + server 200 MB" in text
    assert "Not available: Temporal: it is not installed." in text
    assert text.count("not available |") == 2 * (len(plan.PROGRAMS) - 1)


def test_a_program_measured_anew_takes_the_place_of_its_last_results() -> None:
    last = {"systems": {"a": 1}, "results": {"saga/a": 1, "poll/a": 1}, "not_available": {"saga/b": "no"}, "took_s": 3}
    part = {"systems": {"b": 2}, "results": {"saga/b": 2}, "not_available": {}, "took_s": 4}
    assert table.merge(last, part) == {
        "systems": {"a": 1, "b": 2},
        "results": {"poll/a": 1, "saga/b": 2},
        "not_available": {},
        "took_s": 7,
    }
