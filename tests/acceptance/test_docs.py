"""The documentation is true: its programs run and print what it says, and the reference names all there is.

A ``python`` block that begins with ``# name.py`` is saved under that name, and a ``console`` block is a session in the
same folder: what follows a ``$`` command is what it prints. A page is one folder from top to bottom.
"""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
from holdfast import errors
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import EventKind

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
REFERENCE = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KILL_AFTER = re.compile(r"timeout -s KILL \d+ ")
GUIDES = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if "decisions" not in page.parts and page.name != "commands.md"  # a record | written by the commands themselves
)
ODD_WORDS = re.compile(
    r"\b(mend(s|ed|ing)?|wish(es|ed)?|hand(s|ed)? in|is of|told|asked for|whoever|for ever|begins? anew)\b",
    re.IGNORECASE,
)
PUBLIC_MODULES = ("events", "state", "checkpoint", "checkpoint.base", "journal", "stores", "transcript")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


def has_session(page: Path) -> bool:
    return bool(blocks(page, "console"))


# -- programs ---------------------------------------------------------------------------------------------------------


def session(block: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def run_command(command: str, folder: Path, expected: str) -> str:
    """What a command prints. One that is to be killed is killed when it has printed enough, not by the clock."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    is_to_be_killed = bool(KILL_AFTER.match(command))
    process = subprocess.Popen(
        ["bash", "-c", f"exec {KILL_AFTER.sub('', command)}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        if is_to_be_killed:
            printed = "".join(process.stdout.readline() for _ in range(expected.count("\n") - 1))
            wait_until_it_sleeps(process, folder)
            process.kill()
            printed += process.stdout.read()
        else:
            printed = process.stdout.read()
    return printed + ("Killed\n" if process.returncode == -9 else "")


def wait_until_it_sleeps(process: subprocess.Popen[str], folder: Path) -> None:
    """What a step has printed is not yet recorded; what stands before a timer is."""
    store = SQLiteCheckpointer(folder / "holdfast.db")
    while process.poll() is None and not is_asleep(store):
        time.sleep(0.01)
    store.close()


def is_asleep(store: SQLiteCheckpointer) -> bool:
    return any(store.list_events(run_id)[-1].kind == EventKind.TIMER_STARTED for run_id in store.list_runs())


@pytest.mark.parametrize("page", [page for page in PAGES if has_session(page)], ids=name_of)
def test_programs_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    for language, text in FENCE.findall(page.read_text()):
        if language == "python" and text.startswith("# "):
            (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
        elif language == "console":
            for command, expected in session(text):
                assert (command, run_command(command, tmp_path, expected)) == (command, expected)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "tutorial.md"], ids=name_of)
def test_every_program_of_readme_and_tutorial_is_run(page: Path) -> None:
    names = {text.splitlines()[0].removeprefix("# ") for text in blocks(page, "python")}
    run = {command.split()[-1] for block in blocks(page, "console") for command, _ in session(block)}

    assert names
    assert names <= run


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_every_python_block_is_python(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_example_runs_to_its_approval_and_after_the_answer_to_its_end(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, str(ROOT / "examples" / "release.py"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    first, answered, second, third = run("1.4"), run("1.4", "--approve"), run("1.4"), run("1.4")

    assert "python examples/release.py 1.4 --approve" in first
    assert "approved" in answered
    assert "1.4 is out" in second
    assert third == second.splitlines(keepends=True)[-1]
    assert (tmp_path / "releases.txt").read_text() == "release-1.4:publish 1.4: three fixes\n"


# -- the reference names everything -----------------------------------------------------------------------------------


def is_named(name: str) -> bool:
    return re.search(rf"`[^`\n]*(?<![\w.]){re.escape(name)}(?!\w)", REFERENCE) is not None


def error_classes() -> list[type[errors.HoldfastError]]:
    return [
        found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, errors.HoldfastError)
    ]


def public_names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    members = inspect.getmembers(module, lambda found: inspect.isclass(found) or inspect.isfunction(found))
    return [name for name, found in members if not name.startswith("_") and found.__module__ == module.__name__]


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_kind_is_in_the_reference(kind: EventKind) -> None:
    assert is_named(kind.value)


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.code)
def test_every_error_is_in_the_reference(error: type[errors.HoldfastError]) -> None:
    assert f"`{error.code}`" in REFERENCE
    assert error.__name__ == "".join(word.capitalize() for word in error.code.split("_"))  # as the page says


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_name_of_the_package_is_in_the_reference(name: str) -> None:
    assert is_named(name)


@pytest.mark.parametrize("module_name", PUBLIC_MODULES)
def test_every_name_of_the_runtime_is_in_the_reference(module_name: str) -> None:
    module = importlib.import_module(f"holdfast.runtime.{module_name}")

    assert [name for name in public_names(module) if not is_named(name)] == []


@pytest.mark.parametrize(
    "class_path",
    [
        "flows.context.Context",
        "runtime.checkpoint.base.Checkpointer",
        "runtime.checkpoint.base.JournalStore",
        "runtime.journal.Journal",
        "runtime.state.RunState",
        "runtime.events.Event",
    ],
)
def test_every_method_of_the_main_classes_is_in_the_reference(class_path: str) -> None:
    module_name, _, class_name = class_path.rpartition(".")
    found = getattr(importlib.import_module(f"holdfast.{module_name}"), class_name)

    names = [name for name in vars(found) if not name.startswith("_")]

    assert [name for name in names if not any(is_named(f"{of}{name}") for of in ("", f"{class_name}.", "ctx."))] == []


# -- the pages hang together ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]

    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]

    assert missing == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_to_a_section_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#:]*)#([\w-]+)\)", FENCE.sub("", page.read_text()))

    missing = [f"{file}#{name}" for file, name in links if name not in anchors(page.parent / file if file else page)]

    assert missing == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)\s]+\.md)\)", index.read_text())}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts and page != index}

    assert pages - listed == set()


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_pages_speak_plainly(page: Path) -> None:
    prose = re.sub(r"```.*?^\s*```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)

    assert [found[0] for found in ODD_WORDS.finditer(prose)] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES], ids=name_of)
def test_pages_name_no_command_that_is_not_there(page: Path) -> None:
    commands = re.findall(r"^## `holdfast ([a-z ]+)`$", (ROOT / "docs/reference/commands.md").read_text(), re.MULTILINE)
    groups = {words.split()[0] for words in commands if " " in words}
    spans = re.findall(r"`(holdfast [^`]+)`", page.read_text())
    lines = [line for language in ("sh", "bash") for block in blocks(page, language) for line in block.splitlines()]
    named = [
        found.groups("") for text in [*spans, *lines] if (found := re.match(r"holdfast ([a-z]+)(?: ([a-z]+))?", text))
    ]

    missing = [
        words
        for words in named
        if words[0] not in commands or (words[0] in groups and words[1] and " ".join(words) not in commands)
    ]

    assert missing == []


def test_pictures_refer_to_nothing_outside_themselves() -> None:
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        addresses = set(re.findall(r"https?://[^\"'\s)]+", picture.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}


def test_the_readme_keeps_a_place_for_the_bench() -> None:
    readme = (ROOT / "README.md").read_text()

    assert readme.index("<!-- bench:start -->") < readme.index("<!-- bench:end -->")
