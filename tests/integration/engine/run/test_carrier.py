"""Files that cannot be packed: git, the disk or the database is to blame, and never the tool that changed them."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.integration.engine.run.test_carried_files import CARRIED, on_sqlite
from tests.integration.engine.run.test_lost_execute import executing
from tests.support.engine_world import Turn, World, hand_in, template

from holdfast.engine.run import carrier
from holdfast.enums import RunStatus
from holdfast.errors import StoreUnavailable, WorkspaceError
from holdfast.runtime.checkpoint import SQLiteCheckpointer


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the drive wait for no database that is away."""
    monkeypatch.setattr(SQLiteCheckpointer, "owner_patience_s", 0.0, raising=False)


class Died(BaseException):
    """The process is gone."""


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_args: Any, **_options: Any) -> Any:
        raise error

    return fail


def break_packing(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let no pack be made from now on."""
    errors: dict[str, BaseException] = {
        "git is missing": FileNotFoundError(2, "No such file or directory", "git"),
        "the process dies": Died(),
    }
    killed = WorkspaceError("`git pack-objects` failed: exit code -9")
    monkeypatch.setattr(carrier, "make_pack", raising(errors.get(way, killed)))
    if way == "the database is away":
        monkeypatch.setattr(carrier, "unpack_all", raising(StoreUnavailable("The database does not answer.")))


def break_packing_after(name: str, world: World, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let no pack be made once a command has made the file of a name."""
    real = carrier.FileCarrier.pack_ahead

    async def pack_ahead(files: carrier.FileCarrier, tree: str) -> dict[str, Any]:
        if [*world.data_dir.glob(f"worktrees/*/{name}")]:
            break_packing(monkeypatch, way)
        return await real(files, tree)

    monkeypatch.setattr(carrier.FileCarrier, "pack_ahead", pack_ahead)


async def stop_in_call(world: World, script: Any, **options: Any) -> str:
    """Run until the drive stops with an error, and check that nobody has recorded one."""
    with pytest.raises((WorkspaceError, StoreUnavailable, Died)):
        await world.run(script, *([] if "template" in options else ["one"]), engine=CARRIED, **options)
    [run_id] = world.db.store.list_runs()
    kinds = {str(event.kind) for event in world.events(run_id)}
    assert not kinds & {"tool.error", "phase.failed", "run.failed", "agent.error"}
    assert (await world.run_row(run_id)).state == "running"
    return run_id


WAYS = ["git is killed", "git is missing", "the database is away", "the process dies"]


@pytest.mark.parametrize("way", WAYS)
@on_sqlite
async def test_files_that_cannot_be_packed_stop_the_drive_and_a_write_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    calls: list[str] = []

    async def work(turn: Turn) -> None:
        def second() -> str:
            calls.append("second")
            turn.write("second.txt", "two\n")
            if len(calls) == 2:
                break_packing(monkeypatch, way)
            return "ok"

        await turn.use_tool("write_file", lambda: calls.append("first") or turn.write("first.txt", "one\n"))
        await turn.use_tool("write_file", second)
        hand_in(turn)

    run_id = await stop_in_call(world, work)
    monkeypatch.undo()
    result = await world.engine(work, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["first", "second", "second"]
    assert (world.worktree(run_id) / "second.txt").exists()


@pytest.mark.parametrize("way", WAYS)
@on_sqlite
async def test_of_another_call_whose_files_could_not_be_packed_a_person_says_what_became(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    calls: list[str] = []

    async def work(turn: Turn) -> None:
        def send() -> str:
            calls.append("sent")
            turn.write("sent.txt", "sent\n")
            break_packing(monkeypatch, way)
            return "ok"

        await turn.use_tool("send_mail", send)
        hand_in(turn)

    run_id = await stop_in_call(world, work)
    monkeypatch.undo()
    result = await world.engine(work, **CARRIED).resume(run_id)

    assert (result.state, result.waiting_for, calls) == (RunStatus.PAUSED, "outcome", ["sent"])
    assert (world.worktree(run_id) / "sent.txt").exists()


@needs_sandbox
@pytest.mark.parametrize("way", WAYS)
@on_sqlite
async def test_a_command_whose_files_could_not_be_packed_is_not_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    command = executing("echo begun >> begun.txt")
    break_packing_after("begun.txt", world, monkeypatch, way)
    run_id = await stop_in_call(world, command)
    monkeypatch.undo()
    result = await world.engine(command, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "begun.txt").read_text() == "begun\n"
    *_, unknown = [event.payload for event in world.events(run_id, "tool.unknown")]  # after the turn that it is in
    assert (unknown["key"], unknown["resolution"]) == ("one/1/turn1/x1", "reattached")
    [*_, done] = [event.payload["result"] for event in world.events(run_id, "tool.result")]
    assert "tree" in done


@pytest.mark.parametrize("way", WAYS)
@on_sqlite
async def test_a_hook_whose_files_could_not_be_packed_is_not_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    calls: list[str] = []

    async def work(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: calls.append("written") or turn.write("first.txt", "one\n"))
        hand_in(turn)

    break_packing_after("made.txt", world, monkeypatch, way)
    hooks = [{"after": ["write_file"], "run": ["sh", "-c", "echo made >> made.txt"]}]
    run_id = await stop_in_call(world, work, template=template("one", hooks=hooks, sandbox=False))
    monkeypatch.undo()
    result = await world.engine(work, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["written"]
    assert (world.worktree(run_id) / "made.txt").read_text() == "made\n"


@on_sqlite
async def test_files_that_cannot_be_packed_with_their_event_stop_the_drive_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(turn: Turn) -> None:
        hand_in(turn)
        break_packing(monkeypatch, "git is missing")

    run_id = await stop_in_call(world, work)
    monkeypatch.undo()

    result = await world.engine(hand_in, **CARRIED).resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
