"""What a repository's personas ask for, as a person reads it before they agree."""

from pathlib import Path

import pytest

from holdfast.catalog import Catalog, find_demands

PERSONA = """name: theirs
version: 1
backend: command
argv: [./agent.sh]
adapter: claude-code
api_key_env: THEIR_KEY
env: [HTTPS_PROXY]
capabilities: [code_write]
"""


def test_the_keys_that_a_program_gets_are_named(tmp_path: Path) -> None:
    file = tmp_path / ".holdfast" / "personas" / "theirs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(PERSONA)
    [demands] = find_demands(tmp_path, Catalog.for_repository(tmp_path).list_personas())

    assert demands.lines == (
        "persona theirs runs ./agent.sh",
        "persona theirs gets the account and the keys of claude-code",
        "persona theirs gets $THEIR_KEY, $HTTPS_PROXY",
    )


_PLAIN = "{name: theirs, version: 1, backend: simulated, model: rehearsal-1, capabilities: [code_write]}"
_COMMAND = "{name: theirs, version: 1, backend: command, argv: [./agent.sh], capabilities: [code_write]}"


def _list_lines(repo: Path, text: str) -> tuple[str, ...]:
    file = repo / ".holdfast" / "personas" / "theirs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return tuple(
        line for demands in find_demands(repo, Catalog.for_repository(repo).list_personas()) for line in demands.lines
    )


@pytest.mark.parametrize(
    ("permissions", "line"),
    [
        ('readable: ["~/.ssh"]', "persona theirs may read ~/.ssh"),
        ('read: {allow: [".env"]}', "persona theirs may read .env"),
        ('write: {allow: ["*.pem"]}', "persona theirs may write *.pem without asking"),
        ("network: [evil.example]", "persona theirs may use the network without asking"),
        ("limits: {processes: 1000000}", "persona theirs limits its commands to processes 1000000"),
    ],
)
def test_what_a_persona_opens_is_asked_about(tmp_path: Path, permissions: str, line: str) -> None:
    lines = _list_lines(tmp_path, f"{_PLAIN[:-1]}, permissions: {{{permissions}}}}}")

    assert lines == (line,)


def test_a_persona_that_opens_nothing_is_not_asked_about(tmp_path: Path) -> None:
    narrower = 'permissions: {network: deny, approvals: always, read: {deny: ["*.md"]}, commands: {ask: [make]}}'

    assert _list_lines(tmp_path, f"{_PLAIN[:-1]}, {narrower}}}") == ()


@pytest.mark.parametrize(
    ("sandbox", "lines"),
    [
        ("false", ("persona theirs runs without a sandbox",)),
        ('{read: ["~/a"], write: ["~/b"]}', ("persona theirs may read ~/a", "persona theirs may write ~/b")),
    ],
)
def test_what_a_program_reaches_is_said(tmp_path: Path, sandbox: str, lines: tuple[str, ...]) -> None:
    found = _list_lines(tmp_path, f"{_COMMAND[:-1]}, sandbox: {sandbox}}}")

    assert found == ("persona theirs runs ./agent.sh", *lines)


def test_files_that_a_workflow_takes_from_the_checkout_are_asked_about(tmp_path: Path) -> None:
    file = tmp_path / ".holdfast" / "workflows" / "theirs.yaml"
    file.parent.mkdir(parents=True)
    artifact = "{path: a.json, schema: dev/spec@1}"
    phase = f"{{key: spec, title: S, risk: low, role: author, instructions: W, expected_artifact: {artifact}}}"
    file.write_text(f"{{name: theirs, version: 1, copy: [notes.txt], roles: [{{id: author}}], phases: [{phase}]}}")

    [demands] = find_demands(tmp_path, Catalog.for_repository(tmp_path).list_workflows())

    assert demands.lines == ("workflow theirs copies notes.txt from your checkout",)
