"""Writes docs/reference/commands.md and the help snapshots of the tests from the commands themselves.

With --check nothing is written, and the exit code is 1 if a file is not what it would be.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.cli import app
from holdfast.cli.lazy import Entry

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "commands.md"
SNAPSHOTS = ROOT / "tests" / "acceptance" / "cli" / "help"
INTRODUCTION = """\
# Command reference

Written by `scripts/make-command-reference.py` from the commands' own help; a test compares them.

`--data-dir`, `--verbose`, `--log-json` and `--debug` count wherever they stand on the line. A run or an approval can be
named by the beginning of its id, from four characters on. What programs read goes to standard output, what people read
meanwhile to standard error.

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | failed or refused; one line on standard error gives the code of the error and the next step |
| 2 | wrong usage |
| 3 | waiting for a person |
| 130 | ended by Ctrl-C; the run can be resumed |

The end of input (Ctrl-D) answers a question with "later" or "no"; what was asked stays open.
In the pager it does what `q` does: it closes the pager, and the command continues.

With `--json` an error is one object on standard output, `{"error": {"code", "message", "hint"}}` and for some errors
`error_class`; wrong usage has the code `usage`. The line on standard error and the exit code stay as they are.

Times are in UTC, to the minute. A terminal that is narrower than 80 columns gets `runs list` and `personas list` with
several lines for each entry.
"""


def paths(members: Mapping[str, Entry], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, entry in members.items():
        yield (*before, name)
        if entry.members is not None:
            yield from paths(entry.members, (*before, name))


def help_of(path: tuple[str, ...]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        app._run([*path, "--help"], is_debug=True)
    return output.getvalue()


def make_files() -> dict[Path, str]:
    every = [(), *(path for section in app.SECTIONS.values() for path in paths(section))]
    helps = {path: help_of(path) for path in every}
    chapters = [f"## `holdfast {' '.join(path)}`\n\n```text\n{text}```\n" for path, text in helps.items() if path]
    files = {SNAPSHOTS / f"{'-'.join(('holdfast', *path))}.txt": text for path, text in helps.items()}
    return {PAGE: "\n".join([INTRODUCTION, f"```text\n{helps[()]}```\n", *chapters]), **files}


def main() -> int:
    os.environ["COLUMNS"] = "80"
    files = make_files()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    gone = [path for path in SNAPSHOTS.glob("*.txt") if path not in files]
    if "--check" in sys.argv:
        for path in (*stale, *gone):
            print(f"{path.relative_to(ROOT)} is stale: python scripts/make-command-reference.py")
        return 1 if stale or gone else 0
    SNAPSHOTS.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(files[path])
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
