"""Where a coding agent's session stands, beside its spool: how often it was continued, and what it used before.

The journal says the session too, for readers; this file is what a continuation is made from. It is written before the
ended command is forgotten, so that whoever comes next continues instead of beginning anew.
"""

import hashlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from holdfast.agents.calls.gate import Usage
from holdfast.workspace.files import write_whole

MAX_PARTS = 20
"""How often one step is continued at most: a machine that kills each of them is not helped by more."""
_NAMESPACE = uuid.UUID("6f0c0d39-7a0e-4b5e-9a55-1d5e3a3c7b10")
CONTINUE = """You were interrupted: your process was ended from outside, and you continue your own session now.
The command or edit that you were making may be done, half done or not done. Look at the files before you go on.
Do not begin anew. Finish the task as it was given to you, and leave the artifact exactly where and in the form it says.
"""


@dataclass(frozen=True)
class SessionState:
    """`part` counts the continuations of a step; `usage` is what its earlier parts have used; `after` is the command
    that it follows, so that it follows once."""

    session: str = ""
    part: int = 0
    usage: Usage | None = None
    after: str = ""


def read_session(path: Path) -> SessionState:
    """Read a state; what is missing or damaged is a beginning."""
    try:
        stored = json.loads(path.read_text())
        usage = stored["usage"]
        used = None if usage is None else Usage(**usage)
        return SessionState(str(stored["session"]), int(stored["part"]), used, str(stored["after"]))
    except (OSError, ValueError, KeyError, TypeError):
        return SessionState()


def write_session(path: Path, state: SessionState) -> None:
    usage = None if state.usage is None else state.usage.to_dict()
    content = {"session": state.session, "part": state.part, "usage": usage, "after": state.after}
    write_whole(path, json.dumps(content), mode=0o600)


def session_file(scratch_dir: Path, key: str) -> Path:
    return scratch_dir / f"session-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def identify_command(spool_folder: Path) -> str:
    """Return what tells the command of a spool folder from the next one there; empty if none was started."""
    try:
        return hashlib.sha256((spool_folder / "pid.json").read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def choose_session(key: str) -> str:
    """Return the name that a step's session gets where we may choose it: the same in every process."""
    return str(uuid.uuid5(_NAMESPACE, key))
