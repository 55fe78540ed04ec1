"""Makes the picture of a conversation from the program itself: .venv/bin/python scripts/make-repl-picture.py

A real conversation with a model server on loopback: its process is killed in the middle of an answer, and another one
goes on with it. What is drawn is what the prompt shows of the journal.
"""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.model_server import ModelServer, Says, Script, asks, own_persona  # noqa: E402
from tests.support.terminal import Terminal, shell  # noqa: E402

from holdfast.cli.repl.view import TalkView  # noqa: E402
from holdfast.cli.terminal.output import paint  # noqa: E402
from holdfast.runtime.events import Event  # noqa: E402

PICTURES = runpy.run_path(str(Path(__file__).with_name("make-pictures.py")))
QUESTION = "Why does the till forget the last price?"
BEGUN = "`total` stops one price too early: `range(len(prices) - 1)`."
REST = " I made it `sum(prices)`, which has no end to get wrong."
EDIT = {
    "file_path": "/till.py",
    "old_string": "sum(prices[i] for i in range(len(prices) - 1))",
    "new_string": "sum(prices)",
}


class _Colourful(io.StringIO):
    def isatty(self) -> bool:
        return True


def script() -> Script:
    never = threading.Event()
    return {
        "": [
            asks(("read_file", {"file_path": "/till.py"})),
            asks(("edit_file", EDIT)),
            [Says(BEGUN, holds=never), Says(BEGUN + REST)],
        ]
    }


def make_repo(folder: Path) -> None:
    folder.mkdir()
    (folder / "till.py").write_text(f"def total(prices):\n    return {EDIT['old_string']}\n")
    owner = ("-c", "user.name=Owner", "-c", "user.email=owner@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        subprocess.run(["git", *owner, *words], cwd=folder, check=True)


def talk(folder: Path) -> list[Event]:
    """Have the conversation, and return its journal."""
    make_repo(folder / "till")
    personas = folder / "config" / "holdfast" / "personas"
    personas.mkdir(parents=True)
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
        "HOLDFAST_DATA_DIR": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    with ModelServer(script()) as server:
        (personas / "mine.yaml").write_text(own_persona(server.address, "code_write"))
        with Terminal(env=env, cwd=folder / "till") as first:  # which is killed at the end
            first.wait_for("/help shows")
            first.type(f"{QUESTION}\r")
            first.wait_for("stops one price")
        with Terminal("--resume", env=env, cwd=folder / "till") as second:
            second.wait_for(" s · $0")
            second.type("\x04")
            second.end()
    (run,) = json.loads(shell("runs", "list", "--json", env=env).stdout)
    lines = shell("runs", "events", run["run_id"], "--json", env=env).stdout.splitlines()
    return [Event.from_dict(json.loads(line)) for line in lines]


def draw(events: list[Event], console: Console) -> None:
    killed = next(event.seq for event in reversed(events) if event.kind == "run.resumed")
    view = TalkView(lambda line: console.print(Text.from_ansi(line)))
    console.print(Text.from_ansi(f"$ {paint('holdfast', 'bold')}"))
    for event in events:
        if event.seq == killed:
            console.print(Text.from_ansi("\n".join(f"  {row}" for row in view.text.last_rows(10))))
            console.print(Text.from_ansi(f"\n{paint('✗ kill -9', 'failed')}"))
            console.print(Text.from_ansi(f"$ {paint('holdfast --resume', 'bold')}"))
        view.apply(event)


def main() -> None:
    os.environ["COLUMNS"] = str(PICTURES["WIDTH"])
    options: dict[str, Any] = {"force_terminal": True, "color_system": "truecolor", "highlight": False}
    console = Console(record=True, width=PICTURES["WIDTH"], file=io.StringIO(), **options)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(_Colourful()):
        draw(talk(Path(folder)), console)
    svg = console.export_svg(
        title="holdfast", theme=PICTURES["THEME"], code_format=PICTURES["TEMPLATE"], unique_id="repl"
    )
    (PICTURES["IMAGES"] / "repl.svg").write_text(svg)


if __name__ == "__main__":
    main()
