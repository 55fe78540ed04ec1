"""Everything that needs no run: listings of nothing, wrong usage, checks, settings, help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.terminal import HOLDFAST, shell

from holdfast.cli import app
from holdfast.cli.lazy import Entry, load

ROOT = Path(__file__).parents[3]


def test_where_there_is_no_database_yet_listings_are_empty(holdfast: Command, tmp_path: Path) -> None:
    assert (holdfast("runs", "list", "--json").json, holdfast("approvals", "--json").json) == ([], [])
    assert "holdfast run" in holdfast("runs", "list").out
    assert holdfast("approvals").out == "Nothing waits for you.\n"
    assert holdfast("budget", "--json").json["spent_usd"] == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnus"], "Did you mean 'runs'?"),
        (["runs", "lst"], "Did you mean 'list'?"),
        (["runs", "list", "--limit", "many"], "is no whole number"),
        (["runs", "list", "--limit", "0"], "is less than 1"),
        (["run", "small", "--priority", "1001"], "is more than 1000"),
        (["run", "small", "--priority", "-1001"], "is less than -1000"),
        (["serve", "--port", "65536"], "is more than 65535"),
        (["worker", "--slots", "1001"], "is more than 1000"),
        (["worker", "--metrics-port", "65536"], "is more than 65535"),
        (["runs", "list", "--state", "paussed"], "Did you mean 'paused'?"),
        (["run"], "WORKFLOW"),
        (["run", "small", "--persona", "author"], "ROLE=NAME"),
        (["run", "small", "--requirements", "a", "--requirements-file", "b"], "--requirements"),
        (["run", "small", "--budget", "much"], "is no number"),
        (["budget", "--add", "3"], "Name the run"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_wrong_usage_is_one_line_with_exit_code_2(holdfast: Command, arguments: list[str], message: str) -> None:
    done = holdfast(*arguments)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("holdfast: usage: ")
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "show", "0000"], "run_not_found: There is no run '0000'"),
        (["runs", "show", "%%%%"], "run_not_found: There is no run"),
        (["resume", "0000"], "run_not_found: "),
        (["approve", "0000"], "approval_not_found: "),
        (["run", "feature-delivry", "--simulate"], "Did you mean 'feature-delivery'?"),
        (["personas", "show", "simulated-developr"], "Did you mean 'simulated-developer'?"),
        (["run", "feature-delivery", "--repo", "/no/such/folder", "--simulate"], "config_invalid: "),
        (["workflows", "validate", "/no/such/file.yaml"], "template_"),
    ],
)
def test_a_refusal_is_one_line_with_code_and_next_step(holdfast: Command, arguments: list[str], message: str) -> None:
    done = holdfast(*arguments)

    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_with_json_an_error_is_one_object_too(holdfast: Command) -> None:
    refused = holdfast("runs", "show", "ffffffff", "--json")
    assert refused.code == 1
    assert set(refused.json) == {"error"}
    assert refused.json["error"]["code"] == "run_not_found"
    assert refused.json["error"]["hint"] in refused.err
    assert refused.err.startswith("holdfast: run_not_found: ")
    assert refused.err.count("\n") == 1

    wrong = holdfast("runs", "list", "--state", "asleep", "--json")
    assert (wrong.code, wrong.json["error"]["code"]) == (2, "usage")
    assert holdfast("runs", "show", "ffffffff").out == ""


def test_a_traceback_only_with_debug(holdfast: Command) -> None:
    from holdfast.errors import RunNotFound

    with pytest.raises(RunNotFound):
        holdfast("runs", "show", "0000", "--debug")


def test_the_catalog_is_listed_and_shown(holdfast: Command, repo: Path) -> None:
    workflows = {entry["name"]: entry for entry in holdfast("workflows", "list", "--repo", str(repo), "--json").json}
    assert workflows["small"]["source"] == "repository"
    assert workflows["feature-delivery"]["source"] == "package"
    workflow = holdfast("workflows", "show", "feature-delivery", "--json").json
    assert workflow["definition"]["phases"][0]["expected_artifact"]["schema"] == "dev/spec@1"
    assert "asks a person" in holdfast("workflows", "show", "feature-delivery").out
    file = str(repo / ".holdfast" / "workflows" / "small.yaml")
    assert holdfast("workflows", "validate", file, "--json").json["valid"] is True
    assert len(holdfast("personas", "list", "--json").json) >= 12
    assert holdfast("personas", "show", "simulated-developer", "--json").json["backend"] == "simulated"
    text = holdfast("personas", "show", "simulated-developer").out
    assert "model: rehearsal-1\ncapabilities:\n  - code_write\n" in text
    assert "requires_consent: false\n" in text
    assert not [word for word in ("None", "False", "{", "(", "[") if word in text]


def test_init_writes_once_and_names_the_next_command(holdfast: Command, repo: Path, tmp_path: Path) -> None:
    first = holdfast("init", "--repo", str(repo), "--json").json
    workflow = repo / ".holdfast" / "workflows" / "small-change.yaml"
    workflow.write_text(workflow.read_text() + "\n# mine\n")
    second = holdfast("init", "--repo", str(repo))

    assert [file["written"] for file in first["files"]] == [True, True]
    assert first["next"].startswith("holdfast run small-change")
    assert "kept" in second.out
    assert workflow.read_text().endswith("# mine\n")
    assert holdfast("workflows", "validate", str(workflow)).code == 0
    assert (tmp_path / "config" / "holdfast" / "config.toml").is_file()
    assert holdfast("runs", "list").code == 0


def test_doctor_says_what_is_wrong_and_what_to_do(
    holdfast: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = holdfast("doctor", "--json")
    monkeypatch.setenv("PATH", str(tmp_path))
    ill = holdfast("doctor", "--json")

    assert (well.code, well.json["ok"]) == (0, True)
    assert {"settings", "python", "git", "disk", "database", "clock", "worktrees", "sandbox"} <= {
        check["name"] for check in well.json["checks"]
    }
    assert (ill.code, ill.json["ok"]) == (1, False)
    assert [check["remedy"] for check in ill.json["checks"] if check["state"] == "bad"]


def test_the_database_is_made_checked_and_copied(holdfast: Command, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert holdfast("db", "backup", str(copy)).code == 1

    assert holdfast("db", "upgrade", "--json").json["schema"]
    assert holdfast("db", "check", "--json").json == []
    assert holdfast("db", "backup", str(copy), "--json").json["bytes"] == copy.stat().st_size
    assert holdfast("db", "backup", str(copy)).code == 1
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy.db"]


def test_alone_it_says_what_can_be_said(holdfast: Command) -> None:
    done = holdfast()

    assert done.code == 0
    assert "holdfast demo" in done.out


# -- help -------------------------------------------------------------------------------------------------------------


def test_help_snapshots_and_the_reference_are_what_the_commands_say() -> None:
    script = ROOT / "scripts" / "make-command-reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def leaves(members: dict[str, Entry]) -> list[tuple[str, Entry]]:
    found = []
    for name, entry in members.items():
        found += leaves(dict(entry.members)) if entry.members is not None else [(name, entry)]
    return found


@pytest.mark.parametrize(
    ("name", "entry"),
    [pair for section in app.SECTIONS.values() for pair in leaves(section)],
    ids=lambda found: str(found),
)
def test_every_command_can_be_loaded_and_has_an_example(name: str, entry: Entry) -> None:
    assert "Example: holdfast " in load(name, entry).help


# -- how it starts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["resume", "--help"],
        ["runs", "list"],
        ["runs", "list", "--json", "--limit", "3"],
        ["approvals"],
        ["budget"],
    ],
    ids=" ".join,
)
def test_looking_imports_nothing_heavy(arguments: list[str], environment: dict[str, str]) -> None:
    program = f"""
import sys
sys.argv = ["holdfast", *{arguments!r}]
from holdfast.cli.app import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}

    assert done.returncode == 0
    assert "typer" in loaded
    heavy = {
        "pydantic",
        "sqlalchemy",
        "alembic",
        "asyncio",
        "rich",
        "langchain",
        "langchain_core",
        "deepagents",
        "yaml",
    }
    assert not loaded & heavy


@pytest.mark.parametrize("arguments", [["workflows", "list"], ["personas", "list"], ["db", "check"]], ids=" ".join)
def test_no_listing_imports_an_agent_framework(arguments: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", HOLDFAST, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert "langchain" not in done.stderr
    assert "deepagents" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{HOLDFAST} personas list --json | head -1"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("[\n", "")


def test_no_colour_in_pipes_and_plain_letters_without_utf8(environment: dict[str, str]) -> None:
    piped = shell("workflows", "list", env=environment)
    plain = shell("runs", "list", env={**environment, "PYTHONIOENCODING": "ascii"})

    assert "\x1b" not in piped.stdout
    assert (plain.returncode, plain.stderr) == (0, "")


def test_the_data_folder_counts_anywhere_on_the_line(tmp_path: Path, environment: dict[str, str]) -> None:
    del environment["HOLDFAST_DATA_DIR"]
    folder = tmp_path / "elsewhere"

    done = shell("db", "upgrade", "--data-dir", str(folder), "--json", env=environment)

    assert json.loads(done.stdout)
    assert os.listdir(folder)
