"""`holdfast serve` and `holdfast token`, as a person uses them."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli.commands import serve, token
from holdfast.errors import ConfigInvalid, TokenNotFound

TOKENS = typer.Typer()
TOKENS.command("create")(token.create)
TOKENS.command("list")(token.list_all)
TOKENS.command("revoke")(token.revoke)
SERVE = "import typer; from holdfast.cli.commands.serve import serve; typer.run(serve)"


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text("")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / "data"))


def call_token(*arguments: str) -> str:
    answer = CliRunner().invoke(TOKENS, list(arguments), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_tokens_are_made_listed_and_revoked() -> None:
    assert json.loads(call_token("list", "--json")) == []
    made = json.loads(call_token("create", "--name", "ana", "--role", "approver", "--days", "3", "--json"))

    (listed,) = json.loads(call_token("list", "--json"))
    call_token("revoke", made["id"])
    (revoked,) = json.loads(call_token("list", "--json"))

    assert set(made) == {"id", "token"}
    assert (listed["name"], listed["role"], listed["revoked_at"]) == ("ana", "approver", None)
    assert listed["expires_at"] is not None
    assert made["token"] not in json.dumps(listed)
    assert revoked["revoked_at"] is not None
    with pytest.raises(TokenNotFound):
        call_token("revoke", "nothing")


@pytest.mark.parametrize("wrong", [["--role", "king"], ["--name", ""], ["--days", "-1"]])
def test_a_token_that_makes_no_sense_is_refused(wrong: list[str]) -> None:
    answer = CliRunner().invoke(TOKENS, ["create", "--name", "x", *wrong])

    assert answer.exit_code == 2
    assert wrong[0] in answer.output


def test_no_auth_is_refused_outside_of_loopback() -> None:
    with pytest.raises(ConfigInvalid):
        serve.serve(host="0.0.0.0", no_auth=True)


def test_serve_prints_a_link_that_logs_in_once_and_stops_when_told() -> None:
    command = [sys.executable, "-c", SERVE, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        output = server.stdout.readline() + server.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+/)(login\?code=\S+)", output)
        assert found is not None, output
        with httpx.Client(base_url=found.group(1), timeout=None) as client:
            before = client.get("/api/runs")
            login = client.get(found.group(2))
            after = client.get("/api/session")
            page = client.get("/")
            server.send_signal(signal.SIGINT)
        _rest, errors = server.communicate()
    finally:
        server.kill()
        server.wait()

    assert (before.status_code, login.status_code, after.json()["role"]) == (401, 303, "admin")
    assert re.search(r"<script(?![^>]*\bsrc=)", page.text) is None  # nothing inline: the policy would refuse it
    assert server.returncode in (0, 130, -signal.SIGINT)  # 130 is how shells call it
    assert "Traceback" not in errors, errors
