"""Wrong usage is exit code 2, a place that cannot be used is an error of one line."""

from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command


@pytest.mark.parametrize(("option", "value"), [("--role", "king"), ("--name", " "), ("--days", "0")])
def test_a_token_with_a_wrong_option_is_wrong_usage(holdfast: Command, option: str, value: str) -> None:
    done = holdfast("token", "create", "--name", "ci", option, value)

    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(f"holdfast: usage: Invalid value for {option}: ")


def test_a_data_folder_that_cannot_be_made_is_named(holdfast: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = holdfast("db", "upgrade", "--data-dir", str(tmp_path / "file" / "data"))

    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith(f"holdfast: store_unreadable: The folder {tmp_path}/file/data of the database")
