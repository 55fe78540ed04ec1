"""Differences that are easier to read: changed words, colours by language, files that nobody reads."""

import pytest

from holdfast.presentation.diff import FileDiff, parse_patch
from holdfast.presentation.diff_marks import add_marks, is_generated


def marked(*lines: str, path: str = "a.py") -> FileDiff:
    gone, come = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,{gone} +1,{come} @@\n"
    (file,) = parse_patch(head + "\n".join(lines) + "\n")
    add_marks([file])
    return file


def test_the_words_that_changed_are_marked_on_both_sides() -> None:
    old, new = marked("-price = total + tax", "+price = total - tax").lines

    assert [old.text[a:b] for a, b in old.marks] == ["+"]
    assert [new.text[a:b] for a, b in new.marks] == ["-"]


def test_a_line_in_the_place_of_a_quite_different_one_has_no_marks() -> None:
    old, new = marked("-import os", "+x = [1, 2, 3] * 4").lines

    assert (old.marks, new.marks) == ([], [])


def test_a_text_over_several_lines_is_coloured_to_its_end() -> None:
    lines = marked("+def f():", '+    """One', '+    two."""', "+    return 1").lines

    kinds = [{kind for *_, kind in line.tokens} for line in lines]
    assert kinds == [{"k", "f"}, {"s"}, {"s"}, {"k", "n"}]


@pytest.mark.parametrize("path", ["no-language", "a.unheard-of"])
def test_a_file_of_no_known_language_is_plain(path: str) -> None:
    (line,) = marked("+def f(): pass", path=path).lines

    assert line.tokens == ()


def test_files_that_tools_write_are_told_by_their_names() -> None:
    assert is_generated("web/package-lock.json")
    assert is_generated("uv.lock")
    assert not is_generated("src/lock.py")


def test_of_what_is_too_much_the_first_lines_are_coloured_and_the_file_says_so() -> None:
    file = marked(*(f"+value_{n} = {n}" for n in range(5000)))

    assert len(file.lines) == 5000
    assert [bool(line.tokens) for line in file.lines] == [True] * 4000 + [False] * 1000
    assert file.note == "long: the first 4,000 lines have colours"


def test_a_very_long_line_takes_no_colours_from_the_others() -> None:
    first, long, last = marked("+a = 1", f"+b = '{'x' * 500}'", "+c = 2").lines

    assert [bool(line.tokens) for line in (first, long, last)] == [True, False, True]
