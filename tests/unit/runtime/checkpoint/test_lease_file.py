"""Files in which processes say until when they hold runs, and who reads them without the package."""

import json
import logging
from pathlib import Path

import pytest

from holdfast.runtime.checkpoint import lease_file
from holdfast.runtime.checkpoint.lease_file import LeaseFile
from holdfast.runtime.clock import elapsed_s
from holdfast.workspace.commands.lease_watch import LeaseWatch


def has_ended(folder: Path, run_id: str = "run", grace_s: float = 0.5) -> bool:
    return LeaseWatch({"folder": str(folder), "run_id": run_id}, grace_s).has_ended()


def test_a_run_is_held_as_long_as_any_process_of_this_boot_says(tmp_path: Path) -> None:
    first, second = LeaseFile(tmp_path), LeaseFile(tmp_path)
    assert has_ended(tmp_path)
    for file, left_s in ((first, 0.4), (second, 100.0)):
        file.run_ids.add("run")
        file.write({"run": elapsed_s() + left_s, "other": elapsed_s() + 100.0})
    assert (has_ended(tmp_path), has_ended(tmp_path, "other")) == (False, True)

    second.remove()
    assert has_ended(tmp_path)  # the first one's lease lasts, but not for longer than it takes to end
    assert not has_ended(tmp_path, grace_s=0.0)
    (tmp_path / "broken.json").write_text("[")
    (tmp_path / "earlier.json").write_text(json.dumps({"boot": "another", "until": {"run": elapsed_s() + 100.0}}))
    assert has_ended(tmp_path)


def test_files_of_an_earlier_boot_and_of_processes_long_gone_are_removed(tmp_path: Path) -> None:
    now, boot = elapsed_s(), lease_file._read_boot()
    files = {"earlier": ("another", now + 9.0), "gone": (boot, now - 1000.0), "held": (boot, now + 9.0)}
    for name, (its_boot, until) in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"boot": its_boot, "until": {"run": until}}))
    LeaseFile(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["held.json"]


def test_a_file_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "leases"
    file = LeaseFile(folder)
    folder.rmdir()
    with caplog.at_level(logging.WARNING):
        for _renewal in range(3):
            file.write({})
    assert len(caplog.records) == 1
