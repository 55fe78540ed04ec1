"""A commit's subject says what was changed."""

import pytest

from holdfast.engine.merge_preview import describe_change


@pytest.mark.parametrize(
    ("kinds", "subject"),
    [
        ({"calc.py": "M"}, "Change calc.py"),
        ({"made.txt": "A"}, "Add made.txt"),
        ({"a.py": "D", "b.py": "D"}, "Remove a.py and b.py"),
        ({"src/a.py": "A", "src/b.py": "M", "c.py": "M"}, "Change c.py, src/a.py and src/b.py"),
        ({f"src/app/{'x' * 30}/{name}.py": "M" for name in "abc"}, "Change a.py, b.py and c.py"),
        ({f"src/app/{name}.py": "A" for name in "abcd"}, "Add 4 files in src/app"),
        ({"x.py": "M", **{f"src/{name}.py": "M" for name in "abcd"}}, "Change 5 files"),
        ({"bad\nname": "A"}, "Add 1 file"),
    ],
)
def test_a_subject_names_the_files(kinds: dict[str, str], subject: str) -> None:
    assert describe_change(kinds) == subject
