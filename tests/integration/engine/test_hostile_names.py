"""An agent names its files as it likes: no name breaks a question, a listing, a diff or a merge."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import Turn, World, phase

from holdfast.cli.commands.runs.diff import read_diff
from holdfast.cli.terminal.approval_view import describe_approval, read_approval
from holdfast.cli.terminal.output import plain, print_json
from holdfast.config import load_config
from holdfast.engine.merge import merge_run
from holdfast.enums import RunStatus

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
NAMES = (
    *(b"-rf", b"--force", b"a\nb", b"\x1b[2J", b"c\td", b"\xff\xfe", b" ", b"e\\f", b'"g"', b"n" * 255),
    *("\u202eh".encode(), b":(exclude)i", b"*", b"[j]", b"k\r", b"..l", b"diff --git a b"),
)


def naming() -> Any:
    async def script(turn: Turn) -> None:
        for name in NAMES:
            Path(turn.root, os.fsdecode(name)).write_text("x\n")
        nested = Path(turn.root, os.fsdecode(b"n\xff\x1b"))
        nested.mkdir()
        os.system(f"git init -q '{nested}'")  # left out of every tree, and named
        turn.hand_in()

    return script


async def test_no_name_of_a_file_breaks_what_tells_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(world.data_dir))
    script = naming()
    waiting = await world.run(script, phase("spec", approval="always"))
    assert waiting.error is None
    assert waiting.state is RunStatus.PAUSED
    [approval] = await world.approvals(waiting.run_id)

    facts = read_approval(approval.id)
    text = "\n".join(describe_approval(facts))
    print_json(facts)
    patch = read_diff(str(waiting.run_id))
    assert not set("\x1b\r\u202e") & set(text + plain(patch) + capsys.readouterr().out)
    await world.engine(script).decide(waiting.run_id, approval.id, "approve")
    done = await world.engine(script).resume(waiting.run_id)

    assert done.state is RunStatus.COMPLETED
    await merge_run(world.db, load_config(data_dir=world.data_dir), str(waiting.run_id))
    assert {os.fsencode(name) for name in os.listdir(world.repo)} >= set(NAMES)
