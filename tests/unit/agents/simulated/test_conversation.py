"""What the simulated model does with a request in a conversation."""

import pytest

from holdfast.agents.simulated.conversation import PastCall, answer

TOOLS = frozenset({"ls", "read_file", "edit_file", "write_file", "execute"})


@pytest.mark.parametrize("result", ["     1\t# shop\n     2\tOpen daily.", "@@ lines 1-2 of 2 @@\n# shop\nOpen daily."])
def test_a_file_that_was_read_is_edited_and_never_written_anew(result: str) -> None:
    read = PastCall("read_file", {"file_path": "/README.md"}, result, is_error=False)

    _text, ((tool, args),) = answer("edit README.md", [read], TOOLS)

    assert (tool, args["old_string"]) == ("edit_file", "Open daily.")
    assert args["new_string"].startswith("Open daily.\n")


def test_a_file_that_is_not_there_is_written() -> None:
    missing = PastCall("read_file", {"file_path": "/new.md"}, "Error: File not found", is_error=True)

    _text, ((tool, _args),) = answer("edit new.md", [missing], TOOLS)

    assert tool == "write_file"
