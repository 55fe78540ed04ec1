"""What a repository's personas ask for, as a person reads it before they agree."""

from pathlib import Path

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
