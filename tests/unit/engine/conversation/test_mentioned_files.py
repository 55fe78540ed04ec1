"""Which words of a message are files, and which are only words."""

from pathlib import Path

import pytest

from holdfast.engine.conversation.mentioned_files import include_files
from holdfast.persona import Permissions


def test_a_file_that_is_mentioned_goes_along(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")

    mentioned = include_files("Look at @a.txt.", tmp_path, Permissions())

    assert mentioned.included == ["a.txt"]
    assert "alpha" in mentioned.content


@pytest.mark.parametrize("name", ["nothing.txt", "x" * 300, "ü" * 200, "a/" * 3000 + "b"])
def test_a_name_that_no_file_has_or_can_have_stays_a_word(tmp_path: Path, name: str) -> None:
    text = f"Look at @{name} please."

    mentioned = include_files(text, tmp_path, Permissions())

    assert (mentioned.content, mentioned.included, mentioned.refused) == (text, [], [])
