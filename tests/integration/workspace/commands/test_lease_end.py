"""A command that ends with the lease of its run, though nobody is there to end it."""

import asyncio
from pathlib import Path

from tests.support.progress_limit import until

from holdfast.runtime.checkpoint.lease_file import LeaseFile
from holdfast.runtime.clock import elapsed_s
from holdfast.workspace import (
    CommandState,
    RunLease,
    SpoolOptions,
    has_ended_with_lease,
    is_lost,
    list_commands,
    remove_spooled,
    run_spooled,
    stop_with_lease,
)


async def test_a_command_ends_with_all_that_left_its_group_and_counts_as_lost(tmp_path: Path) -> None:
    spool, leases = tmp_path / "spool", tmp_path / "leases"
    file = LeaseFile(leases)
    file.run_ids.add("run")
    file.write({"run": elapsed_s() + 1000.0})
    options = SpoolOptions(leave_running=True, lease=RunLease(leases, "run"))
    line = f"trap '' TERM; setsid sleep 1000 & touch {tmp_path}/begun; sleep 1000; sleep 1000"
    running = asyncio.create_task(run_spooled("run:a", line, cwd=tmp_path, spool_dir=spool, options=options))
    await until((tmp_path / "begun").exists)
    assert list_commands(spool) == ["run:a"]

    file.write({})
    outcome = await running

    assert (outcome.state, outcome.exit_code, outcome.reattached) == (CommandState.LOST, None, False)
    assert list_commands(spool) == []
    assert (is_lost("run:a", spool_dir=spool), has_ended_with_lease("run:a", spool_dir=spool)) == (True, True)
    remove_spooled("run:a", spool_dir=spool)
    assert not has_ended_with_lease("run:a", spool_dir=spool)


async def test_a_command_whose_run_is_held_ends_by_itself(tmp_path: Path) -> None:
    file = LeaseFile(tmp_path / "leases")
    file.run_ids.add("run")
    file.write({"run": elapsed_s() + 1000.0})
    options = SpoolOptions(lease=RunLease(tmp_path / "leases", "run"))
    outcome = await run_spooled("run:a", "echo done", cwd=tmp_path, spool_dir=tmp_path / "spool", options=options)
    assert (outcome.state, outcome.exit_code, outcome.output) == (CommandState.EXITED, 0, "done\n")


async def test_a_process_that_lives_ends_a_command_in_the_same_way(tmp_path: Path) -> None:
    spool, options = tmp_path / "spool", SpoolOptions(leave_running=True)
    running = asyncio.create_task(run_spooled("run:a", "sleep 1000", cwd=tmp_path, spool_dir=spool, options=options))
    await until(lambda: list_commands(spool))
    await stop_with_lease("run:a", spool_dir=spool)
    assert (await running).state is CommandState.LOST
    assert has_ended_with_lease("run:a", spool_dir=spool)
