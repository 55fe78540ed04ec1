"""A key that is planted everywhere stands nowhere in what is written down."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.phase import Phase
from tests.support.agents.scripted_model import tool
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, ServedPhase
from tests.support.model_server import ModelServer, Refuses, Says, asks

from holdfast.agents.calls.provider_errors import ProviderPause
from holdfast.agents.redaction import BLANK, SECRETS, Secrets, scrub_prompt
from holdfast.agents.tools.rules import ToolRule
from holdfast.runtime.outcomes.failures import describe_error

FORM = "-".join(("sk", "ant", "a1B2c3D4" * 4))  # put together here, so that no scanner takes it for real


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.fixture
def everything_written(phase: Phase, caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO)

    def read() -> str:
        files = [path for path in phase.folder.rglob("*") if path.is_file()]
        return caplog.text + "".join(path.read_bytes().decode(errors="replace") for path in files)

    return read


async def test_a_key_in_answers_tool_results_arguments_and_live_text_is_blanked(
    phase: Phase, everything_written: Any
) -> None:
    leak = Says(f"The key is {KEY}, is it not?", reasoning=f"I saw {KEY} somewhere.")
    script = {"": [asks(("leak", {"word": KEY}), text=f"I use {KEY}."), leak]}

    async def work(word: str) -> str:
        return f"Authorization: Bearer {KEY}\n{FORM}"

    with ModelServer(script) as server:
        served = ServedPhase(phase.folder, address=server.address)
        messages = await served.play(
            text=f"Use {KEY}.", rules={"leak": ToolRule("rerun")}, build={"tools": [tool("leak", work)]}
        )
        replayed = await served.play(
            text=f"Use {KEY}.", rules={"leak": ToolRule("rerun")}, build={"tools": [tool("leak", work)]}
        )

    assert KEY not in everything_written()
    assert FORM not in everything_written()
    assert messages[-1].content == replayed[-1].content == f"The key is {BLANK}, is it not?"
    assert len(server.received) == 2


async def test_a_key_in_an_error_of_the_provider_is_blanked(phase: Phase, everything_written: Any) -> None:
    refused = Refuses(401, {"x-key": KEY}, message=f"Incorrect API key provided: {KEY}")
    with ModelServer({"": [refused]}) as server, pytest.raises(ProviderPause, match="Incorrect API key") as raised:
        await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    assert KEY not in everything_written()
    assert KEY not in _text_of(raised.value)


async def test_a_key_in_an_error_of_a_tool_is_blanked(phase: Phase, everything_written: Any) -> None:
    async def work(word: str) -> str:
        try:
            raise ValueError(f"{KEY} was refused")
        except ValueError as error:
            raise RuntimeError(f"no access with {FORM}", {"key": KEY}) from error

    with ModelServer({"": [asks(("leak", {"word": "x"}))]}) as server, pytest.raises(RuntimeError) as raised:
        await ServedPhase(phase.folder, address=server.address).play(
            text="Go.", rules={"leak": ToolRule("rerun")}, build={"tools": [tool("leak", work)]}
        )

    assert KEY not in everything_written()
    assert FORM not in everything_written()
    assert KEY not in _text_of(raised.value)


def test_a_prompt_is_pinned_without_the_secrets_of_the_process() -> None:
    assert scrub_prompt(f"Use {KEY}, not {FORM}.") == f"Use {BLANK}, not {FORM}."


def test_paths_and_short_values_are_no_secrets(tmp_path: Path) -> None:
    SECRETS.learn_environment({"DEPLOY_KEY": str(tmp_path / "id_rsa"), "CI_TOKEN": "true", "PASSWORD": "correct horse"})

    assert SECRETS.scrub_text(f"{tmp_path}/id_rsa is true") == f"{tmp_path}/id_rsa is true"
    assert SECRETS.scrub({"correct horse": ["my correct horse", 1, None]}) == {BLANK: [f"my {BLANK}", 1, None]}


def _text_of(error: BaseException | None) -> str:
    text = ""
    while error is not None:
        text += f"{error!r} {describe_error(error)} {vars(error).get('body')}"
        error = error.__cause__ or error.__context__
    return text


def test_a_key_is_known_inside_json_text_too() -> None:
    secrets = Secrets()
    key = 'quoted"and\\slashed-73ba'
    secrets.learn(key)

    assert key not in json.loads(secrets.scrub_text(json.dumps({"said": f"It is {key}."})))["said"]
    assert secrets.scrub_text(key) == BLANK
