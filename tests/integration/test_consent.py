import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.binding import PersonaConsentStore
from holdfast.errors import StoreNewer, StoreUnreadable
from holdfast.persona import AgentPersona

# One process of several: it waits for the starting signal, so that all of them write at the same moment.
WRITER = """
import sys
from holdfast.binding import PersonaConsentStore
from holdfast.persona import AgentPersona
path, name, count = sys.argv[1:]
store = PersonaConsentStore(path)
sys.stdin.readline()
for number in range(int(count)):
    fields = {"name": f"{name}-{number}", "version": 1, "backend": "simulated", "model": "m", "capabilities": ["debug"]}
    store.grant(AgentPersona.model_validate(fields))
"""


def persona(name: str = "p", **fields: object) -> AgentPersona:
    content = {"name": name, "version": 1, "backend": "simulated", "model": "m", "capabilities": ["debug"], **fields}
    return AgentPersona.model_validate(content)


def test_no_consent_is_lost_when_processes_write_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "consents.json"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"w{number}", "15"], stdin=subprocess.PIPE)
        for number in range(4)
    ]

    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    codes = [writer.wait() for writer in writers]

    granted = {consent.persona_name for consent in PersonaConsentStore(path).list_consents()}
    assert codes == [0, 0, 0, 0]
    assert granted == {f"w{writer}-{number}" for writer in range(4) for number in range(15)}


def test_a_writer_killed_in_the_middle_leaves_a_readable_file_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "consents.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "w", "100000"], stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(b"go\n")
    writer.stdin.flush()
    store = PersonaConsentStore(path)
    while len(store.list_consents()) < 5:
        assert writer.poll() is None

    writer.kill()
    writer.wait()
    writer.stdin.close()
    store.grant(persona("afterwards"))

    names = {consent.persona_name for consent in store.list_consents()}
    assert {"w-0", "w-4", "afterwards"} <= names


def test_consent_is_for_one_exact_persona(tmp_path: Path) -> None:
    store = PersonaConsentStore(tmp_path / "deep/er/consents.json")

    store.grant(persona())

    assert store.has_consent(persona())
    assert not store.has_consent(persona(system_prompt="something else"))


def test_a_second_grant_changes_nothing_and_a_revoked_one_is_gone(tmp_path: Path) -> None:
    store = PersonaConsentStore(tmp_path / "consents.json")
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    first = store.grant(persona(), by="someone", at=moment)
    second = store.grant(persona(), by="another")

    assert first == second
    assert (second.granted_by, second.granted_at) == ("someone", moment.isoformat())
    assert store.revoke(first.persona_hash)
    assert not store.revoke(first.persona_hash)
    assert not store.has_consent(persona())


def test_a_missing_file_means_that_nobody_has_agreed_and_reading_makes_none(tmp_path: Path) -> None:
    store = PersonaConsentStore(tmp_path / "consents.json")

    assert not store.has_consent(persona())
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_the_users_alone_and_a_link_to_it_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")

    PersonaConsentStore(tmp_path / "link.json").grant(persona())

    assert (tmp_path / "link.json").is_symlink()
    assert stat.S_IMODE((tmp_path / "real.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 1}',
        '{"format": 1, "consents": [1]}',
        '{"format": 0, "consents": []}',
        "\udcff",
    ],
)
def test_a_damaged_file_is_an_error_and_is_never_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "consents.json"
    path.write_bytes(os.fsencode(content))

    with pytest.raises(StoreUnreadable, match="damaged") as refused:
        PersonaConsentStore(path).has_consent(persona())
    with pytest.raises(StoreUnreadable):
        PersonaConsentStore(path).grant(persona())

    assert str(path) in refused.value.message
    assert path.read_bytes() == os.fsencode(content)


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "consents.json"
    path.write_text(json.dumps({"format": 2, "consents": {}}))

    with pytest.raises(StoreNewer):
        PersonaConsentStore(path).grant(persona())

    assert json.loads(path.read_text())["format"] == 2
