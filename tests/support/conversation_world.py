"""A repository, a home and a model server on loopback, and `holdfast` there: what tests of conversations need."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.model_server import ASKS_BEFORE_TOUCH, WITH_KEY, ModelServer, Reply, Says, own_persona
from tests.support.terminal import Terminal, shell

KEY = "own-key-73ba21cc90"
WORD = "ready-steady-go"
LONG = " ".join(f"word{number}" for number in range(40))


class World:
    """A repository, a home, a model server, and `holdfast` in a terminal there."""

    def __init__(self, repo: Path, environment: dict[str, str], server: ModelServer) -> None:
        self.repo, self.server = repo, server
        self.terminals: list[Terminal] = []
        personas = Path(environment["XDG_CONFIG_HOME"]) / "holdfast" / "personas"
        personas.mkdir(parents=True)
        (personas / "mine.yaml").write_text(
            own_persona(server.address, "code_write, shell", WITH_KEY, ASKS_BEFORE_TOUCH)
        )
        self.env = {
            **{name: value for name, value in environment.items() if not name.endswith("_API_KEY")},
            "XDG_STATE_HOME": str(personas.parents[2] / "state"),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "MY_MODEL_KEY": KEY,
        }

    def open(self, *arguments: str, is_cold: bool = False) -> Terminal:
        terminal = Terminal(*arguments, env=self.env, cwd=self.repo, is_cold=is_cold)
        self.terminals.append(terminal)
        terminal.wait_for("/help shows what can be said")
        return terminal

    def close(self) -> None:
        for terminal in self.terminals:
            terminal.__exit__()
        self.server.__exit__()

    def read(self, *arguments: str) -> Any:
        return json.loads(shell(*arguments, "--json", env=self.env).stdout)

    def events(self) -> list[dict[str, Any]]:
        (run,) = self.read("runs", "list")
        lines = shell("runs", "events", run["run_id"], "--json", env=self.env).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def wait_for_requests(self, times: int) -> None:
        while len(self.server.received) < times:
            self.server.has_request.wait()
            self.server.has_request.clear()

    def last_request(self) -> str:
        return json.dumps(self.server.received[-1].body["messages"])


Open = Callable[[list[Reply | list[Reply]]], World]


def endless() -> Says:
    """An answer that begins, and never ends."""
    return Says(LONG, holds=threading.Event())


def wait_for_answer(terminal: Terminal, text: str) -> None:
    terminal.wait_for(text)
    terminal.wait_for(" s · $0")  # what the turn took, once it is over


def leave(terminal: Terminal) -> None:
    terminal.type("\x04")
    terminal.wait_for("Go on: holdfast --resume")
    assert terminal.end() == 0
