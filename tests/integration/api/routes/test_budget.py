"""Real money and play money, in everything that tells of money."""

from sqlalchemy import text
from tests.support.api.server_world import Api

from holdfast.runtime.events import EventKind, create_event


async def test_a_rehearsals_money_stands_apart(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)
    server = await api.app.state.holder.get()
    async with server.db.session() as session:
        await session.execute(
            text(
                "INSERT INTO ledger (id, run_id, phase_key, state, amount_micros, day, is_simulated) "
                "VALUES ('a', :run, 'first', 'settled', 120000, :day, 1), "
                "('b', :run, 'first', 'settled', 50000, :day, 0)"
            ),
            {"run": run_id, "day": (await api.viewer.get("/api/budget")).json()["day"]},
        )
        await session.commit()

    report = (await api.viewer.get("/api/budget")).json()
    detail = (await api.viewer.get(f"/api/runs/{run_id}")).json()
    listed = (await api.viewer.get("/api/runs")).json()["items"][0]
    costs = (await api.viewer.get(f"/api/runs/{run_id}/cost")).json()
    (statistics,) = (await api.viewer.get("/api/statistics")).json()["items"]
    metrics = (await api.viewer.get("/metrics")).text

    assert (report["spent_today_usd"], report["simulated_today_usd"], report["chart"]["total_usd"]) == (
        0.05,
        0.12,
        0.05,
    )
    assert "Rehearsals, $0.12 simulated today, count against no limit." in report["today"]["text"]
    for run in (detail, listed):
        assert (run["cost_usd"], run["simulated_usd"], run["cost"]) == (0.05, 0.12, "$0.05 and $0.12 simulated")
    assert (costs["spent_usd"], costs["simulated_usd"], costs["is_simulated"]) == (0.05, 0.12, True)
    assert (statistics["median_cost_usd"], statistics["median_simulated_usd"]) == (None, 0.12)
    assert "holdfast_cost_usd_total 0.05" in metrics
    assert "holdfast_simulated_cost_usd_total 0.12" in metrics


async def test_a_person_settles_what_was_perhaps_paid(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)
    where = f"/api/runs/{run_id}/budget/settlement"

    refused = await api.operator.post(where, json={"call": "abc", "cost_usd": 0.02})
    unknown = await api.approver.post(where, json={"call": "abc", "cost_usd": 0.02})
    wrong = await api.approver.post(where, json={"call": "abc", "cost_usd": -1})

    assert (refused.status_code, wrong.status_code) == (403, 422)
    assert (unknown.status_code, unknown.json()["code"]) == (409, "run_not_in_state")

    entry = {"entry": "abc", "step": "first/1/turn1/m0", "amount_micros": 500_000, "phase": "first"}
    events = [
        create_event(run_id, EventKind.MODEL_REQUEST, "first/1/turn1", key="first/1/turn1/m0", model="m"),
        create_event(run_id, EventKind.BUDGET_RESERVED, "first/1/turn1", **entry),
    ]
    server = await api.app.state.holder.get()
    async with server.db.session() as session:
        await session.execute(
            text(
                "INSERT INTO ledger (id, run_id, phase_key, step_key, state, amount_micros, day, is_simulated) "
                "VALUES ('abc', :run, 'first', 'first/1/turn1/m0', 'reserved', 500000, '2026-01-01', 0)"
            ),
            {"run": run_id},
        )
        await session.commit()
    await server.journal.append(run_id, events)

    before = (await api.viewer.get(f"/api/runs/{run_id}/cost")).json()
    settled = await api.approver.post(where, json={"call": "abc", "cost_usd": 0.02})

    assert [(one["call"], one["phase"], one["usd"]) for one in before["perhaps_paid"]] == [("abc", "first", 0.5)]
    assert settled.status_code == 200, settled.text
    costs = (await api.viewer.get(f"/api/runs/{run_id}/cost")).json()
    assert (costs["spent_usd"], costs["perhaps_paid_usd"], costs["perhaps_paid"]) == (0.02, 0, [])
    [event] = [event for event in await server.journal.read(run_id) if event.kind == EventKind.BUDGET_SETTLED]
    assert event.payload["by"] == "approver"
