"""What helps a person who is lost: explanations, help in other words, suggestions, completion."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.terminal import HOLDFAST

from holdfast import errors
from holdfast.cli.commands.explain import find_pages, read_codes


def all_codes() -> set[str]:
    found, waiting = set(), [errors.HoldfastError]
    while waiting:
        subclasses = waiting.pop().__subclasses__()
        found |= {error.code for error in subclasses if error.__module__ == errors.__name__}
        waiting += subclasses
    return found


def test_an_error_code_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", find_pages()["errors"].read_text(), re.MULTILINE)
    assert [code for code in set(rows) if rows.count(code) > 1] == []


def test_every_error_code_is_explained(holdfast: Command) -> None:
    assert all_codes() <= set(read_codes())
    assert holdfast("explain", "run_busy", "--json").json["hint"] == "Wait for it, or end that process."
    assert "What to do: Find out, then answer (holdfast explain" in holdfast("explain", "tool_outcome_unknown").out


def test_topics_are_listed_and_pages_printed(holdfast: Command) -> None:
    assert set(holdfast("explain", "--json").json["pages"]) == set(find_pages())
    assert "run_busy" in holdfast("explain").out
    assert holdfast("explain", "workflows").out.startswith("# ")
    assert "Did you mean 'run_busy'?" in holdfast("explain", "run_bsy").err


def test_pages_that_hints_name_exist() -> None:
    named = {
        word
        for path in Path(errors.__file__).parent.rglob("*.py")
        for text in path.read_text().split("holdfast explain ")[1:]
        if (word := text.split()[0].strip("`\"'.,)}")).islower() and word.isascii()
    }

    assert {"workflows", "personas"} <= named
    assert named <= set(find_pages()) | set(read_codes())


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["help"], ["--help"]),
        (["help", "runs", "list"], ["runs", "list", "--help"]),
        (["version"], ["--version"]),
        (["runs", "ls"], ["runs", "list"]),
        (["workflows", "ls"], ["workflows", "list"]),
    ],
)
def test_words_people_try_work(holdfast: Command, words: list[str], arguments: list[str]) -> None:
    tried = holdfast(*words)

    assert (tried.code, tried.out) == (0, holdfast(*arguments).out)
    assert tried.out


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [("status", "'runs list'"), ("logs", "'runs logs'"), ("what does it do", 'holdfast -p "…"'), ("rnus", "'runs'")],
)
def test_a_word_that_is_no_command_gets_the_one_that_was_meant(holdfast: Command, word: str, suggestion: str) -> None:
    refused = holdfast(word)

    assert refused.code == 2
    assert suggestion in refused.err


def test_a_repository_that_is_not_there_is_said_before_its_workflow(holdfast: Command) -> None:
    refused = holdfast("run", "small", "--repo", "/no/such/folder", "--simulate", "--requirements", "Add numbers")

    assert (refused.code, "is no folder" in refused.err) == (1, True)


@pytest.mark.parametrize("command", [["runs", "show"], ["approve"]])
def test_a_short_id_is_said_to_be_too_short(holdfast: Command, command: list[str]) -> None:
    refused = holdfast(*command, "3f2")

    assert refused.code == 1
    assert "too short" in refused.err
    assert "at least 4 characters" in refused.err


def test_the_hint_stands_in_the_text_of_an_error() -> None:
    error = errors.RunBusy("Run 'a' is driven by process 7.")

    assert str(error) == "Run 'a' is driven by process 7. Wait for the process that owns the run, or end it."
    assert str(errors.RunCancelled("It was cancelled.")) == "It was cancelled."


# -- validate ---------------------------------------------------------------------------------------------------------

BROKEN = """
name: mine
version: 1
description: Two phases.
roles:
  - {id: author, required_capabilities: [spec_writ]}
phases:
  - key: draft
    title: Draft
    role: author
    risk: lwo
    timeout_second: 600
    instructions: Write.
    expected_artifact: {path: a.json, schema: dev/spec@1}
"""

WRONG_NAMES = """
name: mine
version: 1
description: Two phases.
roles:
  - {id: author, required_capabilities: [spec_write]}
phases:
  - key: draft
    title: Draft
    role: autor
    risk: low
    instructions: Write.
    expected_artifact: {path: a.json, schema: dev/spek@1}
"""


def test_findings_are_json_with_lines_and_suggestions(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(BROKEN)

    done = holdfast("workflows", "validate", str(file), "--json")

    assert (done.code, done.json["valid"]) == (1, False)
    found = {(finding["line"], finding["field"]): finding["message"] for finding in done.json["findings"]}
    assert "Did you mean 'spec_write'?" in found[6, "roles[0].required_capabilities[0]"]
    assert "Did you mean 'low'?" in found[11, "phases[0].risk"]
    assert found[12, "phases[0].timeout_second"] == "there is no such field. Did you mean 'timeout_seconds'?"


def test_findings_are_one_a_line(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(BROKEN)

    done = holdfast("workflows", "validate", str(file))

    assert done.code == 1
    assert [line.split(":")[1] for line in done.out.splitlines()] == ["6", "11", "12"]
    assert "3 findings" in done.err


def test_unknown_roles_are_found_with_a_suggestion(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WRONG_NAMES)

    finding, schema = holdfast("workflows", "validate", str(file), "--json").json["findings"]

    assert (finding["line"], finding["field"]) == (10, "phases[0].role")
    assert "Did you mean 'author'?" in finding["message"]
    assert schema["field"] == "phases[0].expected_artifact.schema"


def test_wrong_fields_names_and_schemas_are_found_in_one_go(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WRONG_NAMES.replace("risk: low", "risk: lwo\n    needs: [plan]"))

    findings = holdfast("workflows", "validate", str(file), "--json").json["findings"]

    fields = [finding["field"].removeprefix("phases[0].") for finding in findings]
    assert fields == ["role", "risk", "needs", "expected_artifact.schema"]
    assert [finding["line"] for finding in findings] == [10, 11, 12, 14]


def test_names_are_not_called_unknown_where_the_others_cannot_be_read(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WRONG_NAMES.replace("{id: author", "{name: author").replace("dev/spek@1", "[3]"))

    findings = holdfast("workflows", "validate", str(file), "--json").json["findings"]

    fields = [finding["field"] for finding in findings]
    assert fields == ["roles[0].id", "roles[0].name", "phases[0].expected_artifact.schema"]


def test_a_missing_schema_has_the_line_that_names_it(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WRONG_NAMES.replace("autor", "author"))

    (finding,) = holdfast("workflows", "validate", str(file), "--json").json["findings"]

    assert (finding["line"], finding["field"]) == (13, "phases[0].expected_artifact.schema")
    assert "Did you mean 'dev/spec@1'?" in finding["message"]


# -- completion -------------------------------------------------------------------------------------------------------


def complete(line: str, environment: dict[str, str], folder: Path) -> list[str]:
    """The words bash would offer at the end of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [HOLDFAST],
        env={
            **environment,
            "_HOLDFAST_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def test_the_shell_completes_runs_approvals_workflows_and_personas(
    holdfast: Command, environment: dict[str, str], repo: Path
) -> None:
    run = holdfast("run", "small", "--repo", str(repo), "--simulate", "--requirements", "Add numbers", "--json").json
    (approval,) = holdfast("approvals", "--json").json

    assert complete("holdfast runs sho", environment, repo) == ["show"]
    assert complete("holdfast runs show ", environment, repo) == [run["run_id"][:8]]
    assert complete("holdfast approve ", environment, repo) == [approval["approval_id"][:8]]
    assert complete("holdfast run smal", environment, repo) == ["small"]
    assert complete("holdfast personas show simulated-dev", environment, repo) == ["simulated-developer"]
    assert complete("holdfast run small --persona author=simulated-dev", environment, repo) == [
        "author=simulated-developer"
    ]
    assert complete("holdfast explain run_bu", environment, repo) == ["run_busy"]


def test_completion_is_silent_where_nothing_can_be_read(environment: dict[str, str], tmp_path: Path) -> None:
    database = Path(environment["HOLDFAST_DATA_DIR"])
    database.mkdir(parents=True)
    (database / "holdfast.db").write_text("no database at all, but more than a hundred bytes of text " * 4)

    assert complete("holdfast runs show ", environment, tmp_path) == []
