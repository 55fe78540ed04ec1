"""Real money and play money, in everything that tells of money."""

from sqlalchemy import text
from tests.support.api.server_world import Api


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
