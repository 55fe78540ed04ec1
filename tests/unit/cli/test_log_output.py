"""Whatever is logged, keys are not in it: in messages, arguments, facts, exceptions and addresses, in both formats."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.cli import log_output

KEY = 'planted-"key\\with-odd-letters-8c1f'
TOKEN = "planted-token-55aa09e1"
FORMED = "sk-or-" + "a1b2c3d4e5" * 3


@pytest.fixture(params=[False, True], ids=["text", "json"])
def log(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    monkeypatch.setenv("PLANTED_TOKEN", TOKEN)
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    log_output.show_log(is_json=request.param)
    yield logging.getLogger("planted"), output
    root.handlers = before
    root.setLevel(level)


def test_a_log_never_holds_keys(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, output = log

    logger.info("asked with %s", KEY)
    logger.warning(f"refused: {TOKEN}", extra={"headers": {"authorization": f"Bearer {KEY}", KEY: 1}})
    logger.info("a new one: %s", FORMED)
    logger.info("at postgresql://holdfast:hunter2@db.example/holdfast")
    try:
        raise RuntimeError(f"the server said {KEY}") from ValueError(TOKEN)
    except RuntimeError:
        logger.exception("it failed")

    text = output.getvalue()
    assert len(text.splitlines()) >= 5
    for secret in (KEY, json.dumps(KEY)[1:-1], TOKEN, FORMED, "hunter2"):
        assert secret not in text
    assert "it failed" in text
    assert "RuntimeError" in text
    assert "db.example" in text


def test_each_line_of_the_json_log_is_one_object(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, output = log

    logger.info("one\ntwo", extra={"run_id": "r1"})

    if output.getvalue().startswith("{"):
        (line,) = output.getvalue().splitlines()
        assert json.loads(line).items() >= {"message": "one\ntwo", "run_id": "r1", "level": "info"}.items()
    else:
        assert '"run_id": "r1"' in output.getvalue()


def test_what_is_not_asked_for_is_not_logged(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, output = log

    logger.debug("a prompt")

    assert output.getvalue() == ""
