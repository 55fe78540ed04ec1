"""Whether a command was begun in this place, on the files that are still here."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.workspace.commands.place import CommandPlace, find_place


def test_a_place_is_the_same_as_long_as_the_files_have_not_left_it() -> None:
    place = CommandPlace("here", "boot", "host")

    assert place.is_same({"data": "here", "boot": "an earlier one"})
    assert not place.is_same({"data": "there"})
    assert not place.is_same({"data": "here", "is_left": True})


@pytest.mark.parametrize("before", [None, "", "\n"], ids=["none", "empty", "blank"])
def test_a_place_without_a_name_gets_one_that_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    path, synced = tmp_path / ".place", []
    if before is not None:
        path.write_text(before)
    fsync = os.fsync

    def note(number: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{number}")))
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    place = find_place(tmp_path)

    assert place.data == path.read_text() != ""
    assert [item.parent == tmp_path for item in synced] == [True, False]  # the file, then its folder
    assert synced[-1] == tmp_path
    assert find_place(tmp_path) == place
    assert len(synced) == 2


def test_all_who_ask_first_at_once_get_one_name(tmp_path: Path) -> None:
    (tmp_path / ".place").touch()

    with ThreadPoolExecutor(8) as pool:
        names = {place.data for place in pool.map(find_place, [tmp_path] * 8)}

    assert names == {(tmp_path / ".place").read_text()}
