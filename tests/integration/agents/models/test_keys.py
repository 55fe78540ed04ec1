"""Keys in the system's keyring, as in variables: found, used, blanked, and named where they are missing."""

from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from tests.acceptance.test_own_model import KEY, Shell
from tests.support.agents.phase import Phase
from tests.support.agents.served_phase import KEY_VARIABLE, ServedPhase
from tests.support.file_keyring import VARIABLE, FileKeyring
from tests.support.model_server import ModelServer, Says, asks

from holdfast.agents.redaction import BLANK, read_key
from holdfast.errors import BackendUnavailable
from holdfast.keys import KEYRING_SERVICE, find_key
from holdfast.persona import AgentPersona
from holdfast.readiness import Readiness

KEYRING_KEY = "kept-in-the-keyring-91d4"
ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def file_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileKeyring]:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keyring.json"))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    before, mine = keyring.get_keyring(), FileKeyring()
    keyring.set_keyring(mine)
    mine.set_password(KEYRING_SERVICE, KEY_VARIABLE, KEYRING_KEY)
    yield mine
    keyring.set_keyring(before)


def served() -> AgentPersona:
    return ServedPhase(Path(), address="http://127.0.0.1:9/v1").persona


def test_the_variable_comes_before_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_key(KEY_VARIABLE) == KEYRING_KEY
    assert find_key(KEY_VARIABLE, {KEY_VARIABLE: "   "}) == KEYRING_KEY

    monkeypatch.setenv(KEY_VARIABLE, "of-the-environment")

    assert find_key(KEY_VARIABLE) == "of-the-environment"


def test_a_backend_whose_key_is_in_the_keyring_is_there() -> None:
    assert Readiness({}).is_ready(served())


def test_one_whose_key_is_nowhere_is_not(file_keyring: FileKeyring) -> None:
    file_keyring.delete_password(KEYRING_SERVICE, KEY_VARIABLE)

    assert not Readiness({}).is_ready(served())
    with pytest.raises(BackendUnavailable, match=f"{KEY_VARIABLE} is not set") as missing:
        read_key(KEY_VARIABLE, persona="served")
    assert f"keyring set {KEYRING_SERVICE} {KEY_VARIABLE}" in missing.value.hint


def test_a_keyring_that_does_not_work_is_a_missing_key(
    file_keyring: FileKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> str:
        raise RuntimeError("the keyring is locked")

    monkeypatch.setattr(FileKeyring, "get_password", locked)

    assert find_key(KEY_VARIABLE) == ""


async def test_the_provider_gets_it_and_the_journal_does_not(phase: Phase) -> None:
    with ModelServer({"": [Says(f"Your key is {KEYRING_KEY}.")]}) as server:
        messages = await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    assert server.received[0].headers["authorization"] == f"Bearer {KEYRING_KEY}"
    assert messages[-1].content == f"Your key is {BLANK}."
    written = b"".join(path.read_bytes() for path in phase.folder.glob("run.db*") if path.is_file())
    assert KEYRING_KEY.encode() not in written


def test_a_run_from_the_shell_binds_by_it_and_hides_it(tmp_path: Path, file_keyring: FileKeyring) -> None:
    write = asks(("write_file", {"file_path": "/note.json", "content": '{"text": "A note."}'}))
    file_keyring.set_password(KEYRING_SERVICE, "MY_MODEL_KEY", KEY)
    with ModelServer({"": [write, Says("Written.")]}) as server:
        shell = Shell(tmp_path / "user", server.address)
        del shell.environment["MY_MODEL_KEY"]
        shell.environment |= {
            "PYTHON_KEYRING_BACKEND": "tests.support.file_keyring.FileKeyring",
            "PYTHONPATH": str(ROOT),
        }
        words = ("--repo", ".", "--requirements", f"A note with {KEY} in it.", "--persona", "writer=mine", "--yes")
        result = shell.run("run", "note.yaml", *words, "--json")

    assert result["state"] == "completed"
    assert {received.headers["authorization"] for received in server.received} == {f"Bearer {KEY}"}
    written = b"".join(path.read_bytes() for path in shell.home.rglob("*") if path.is_file())
    assert KEY.encode() not in written, "not even where the user wrote it into the requirements"
