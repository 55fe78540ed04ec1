"""The home folder of a coding agent: what goes in, and the little that comes back."""

import json
from pathlib import Path

import pytest

from holdfast.agents.coding_agent.adapters.base import Needs
from holdfast.agents.coding_agent.agent_home import PrivateHome

ACCOUNT = {"token": "old", "expires": 1, "scopes": ["a"], "server": "https://auth.example.com"}
NEEDS = Needs(
    settings=(".agent/settings.json",), account=(".agent/auth.json",), seeds={".agent/seed.json": "{}", "plain": "x"}
)


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    home = tmp_path / "user"
    (home / ".agent").mkdir(parents=True)
    (home / ".agent/settings.json").write_text('{"mine": 1}')
    (home / ".agent/auth.json").write_text(json.dumps(ACCOUNT))
    return home


@pytest.fixture
def home(tmp_path: Path, user_home: Path) -> PrivateHome:
    made = PrivateHome(tmp_path / "data" / "home-agent", NEEDS, user_home)
    made.prepare()
    return made


def renew(home: PrivateHome, user_home: Path, **changes: object) -> dict[str, object]:
    (home.folder / ".agent/auth.json").write_text(json.dumps({**ACCOUNT, **changes}))
    home.return_account()
    found: dict[str, object] = json.loads((user_home / ".agent/auth.json").read_text())
    return found


def test_settings_account_and_seeds_are_there(home: PrivateHome) -> None:
    assert (home.folder / ".agent/settings.json").read_text() == '{"mine": 1}'
    assert json.loads((home.folder / ".agent/auth.json").read_text()) == ACCOUNT
    assert (home.folder / ".agent/seed.json").read_text() == "{}"
    assert (home.folder / ".agent/auth.json").stat().st_mode & 0o777 == 0o600
    assert home.folder.stat().st_mode & 0o777 == 0o700


def test_what_the_user_changes_is_there_the_next_time(home: PrivateHome, user_home: Path) -> None:
    (user_home / ".agent/settings.json").write_text('{"mine": 2}')
    (home.folder / "plain").write_text("the agent's")
    home.prepare()

    assert (home.folder / ".agent/settings.json").read_text() == '{"mine": 2}'
    assert (home.folder / "plain").read_text() == "the agent's", "a seed is sown once"


def test_a_renewed_token_goes_back(home: PrivateHome, user_home: Path) -> None:
    assert renew(home, user_home, token="new", expires=2)["token"] == "new"
    assert renew(home, user_home, token="newer", expires=3)["token"] == "newer"


def test_a_renewal_that_was_not_returned_goes_back_before_the_next_start(home: PrivateHome, user_home: Path) -> None:
    (home.folder / ".agent/auth.json").write_text(json.dumps({**ACCOUNT, "token": "new"}))
    home.prepare()

    assert json.loads((user_home / ".agent/auth.json").read_text())["token"] == "new"


def test_no_copy_of_the_account_stays_behind(home: PrivateHome, user_home: Path) -> None:
    (home.folder / ".agent/auth.json").write_text(json.dumps({**ACCOUNT, "token": "new"}))
    home.close()

    assert not (home.folder / ".agent/auth.json").exists()
    assert (home.folder / ".agent/settings.json").exists()
    assert json.loads((user_home / ".agent/auth.json").read_text())["token"] == "new"
    home.close()
    home.prepare()
    assert json.loads((home.folder / ".agent/auth.json").read_text())["token"] == "new"


@pytest.mark.parametrize(
    "change",
    [{"more": "field"}, {"server": "https://evil.example.com"}, {"token": "https://evil"}, {"scopes": ["a", "b"]}],
    ids=str,
)
def test_anything_else_does_not_go_back(home: PrivateHome, user_home: Path, change: dict[str, object]) -> None:
    assert renew(home, user_home, **change) == ACCOUNT


def test_what_the_user_changed_meanwhile_stays(home: PrivateHome, user_home: Path) -> None:
    (user_home / ".agent/auth.json").write_text(json.dumps({**ACCOUNT, "token": "the user's"}))

    assert renew(home, user_home, token="the agent's")["token"] == "the user's"


@pytest.mark.parametrize("content", ["", "{", "null", "[" * 100_000])
def test_a_damaged_file_does_not_go_back(home: PrivateHome, user_home: Path, content: str) -> None:
    (home.folder / ".agent/auth.json").write_text(content)
    home.return_account()

    assert json.loads((user_home / ".agent/auth.json").read_text()) == ACCOUNT


def test_links_of_the_agent_are_not_followed(home: PrivateHome, user_home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**ACCOUNT, "token": "stolen"}))
    (home.folder / ".agent/auth.json").unlink()
    (home.folder / ".agent/auth.json").symlink_to(other)
    home.return_account()
    assert json.loads((user_home / ".agent/auth.json").read_text()) == ACCOUNT

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home.folder / ".agent").rename(home.folder / "moved")
    (home.folder / ".agent").symlink_to(elsewhere)
    home.prepare()
    assert list(elsewhere.iterdir()) == []
