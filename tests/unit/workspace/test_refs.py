"""Names that a result may be brought to: as git has them, and none of holdfast's own."""

import subprocess

import pytest

from holdfast.workspace.refs import find_name_fault

GOOD = ["main", "feature/a", "a-b_c.d", "holdfast-upgrade", "holdfast", "v1.0", "\u00e9t\u00e9", "a@b"]
BAD = [
    "",
    "-a",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a/.b",
    "a.lock",
    "a.lock/b",
    "a..b",
    "a~",
    "a^",
    "a:b",
    "a?",
    "a*",
    "a[",
    "a\\b",
]
BAD += ["a b", "a\x7f", "a\n", "a.", "@", "a@{1}", "HEAD"]
OURS = [
    "refs/heads/main",
    "holdfast/3f2a0b9e",
    "holdfast-3f2a0b9e-6c1d-4e8f-9a7b-2d5c8e1f0a34",
    "main\u2028",
    "\u00fc" * 101,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_plain_branch_is_fine(name: str) -> None:
    assert find_name_fault(name) is None


@pytest.mark.parametrize("name", BAD + OURS)
def test_what_is_no_branch_or_not_the_users_is_not(name: str) -> None:
    assert find_name_fault(name) is not None


@pytest.mark.parametrize("name", GOOD + BAD[1:])
def test_git_agrees(name: str) -> None:
    check = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=False, capture_output=True)

    assert (find_name_fault(name) is None) == (check.returncode == 0 and name not in ("HEAD", "@", "-a"))
