"""What holdfast knows of a coding agent: how it is started and continued, what it needs, and how its output is read.

One small module a product. Nothing here runs anything: an adapter makes command lines and reads lines.
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from holdfast.agents.calls.gate import Usage

_MAX_MICROS = 10**12  # a million dollars: whoever says more has made a mistake
_MAX_ACTIVITY_CHARS = 300
_TARGETS = ("command", "cmd", "file_path", "filePath", "filepath", "path", "pattern", "query", "url", "description")


_ADDRESS = re.compile(
    r"""(?:base_?url|api_?base|endpoint|baseurl)["']?\s*[:=]\s*["'](https?://[^"'\s]+)""", re.IGNORECASE
)
# A variable that is set says which provider it is.
_HOSTS_BY_VARIABLE = {
    "CLAUDE_CODE_USE_BEDROCK": ("*.amazonaws.com",),
    "CLAUDE_CODE_USE_VERTEX": ("*.googleapis.com",),
    "GOOGLE_GENAI_USE_VERTEXAI": ("*.googleapis.com",),
    "GEMINI_API_KEY": ("generativelanguage.googleapis.com",),
    "GOOGLE_GENERATIVE_AI_API_KEY": ("generativelanguage.googleapis.com",),
    "OPENROUTER_API_KEY": ("openrouter.ai",),
    "GROQ_API_KEY": ("api.groq.com",),
    "MISTRAL_API_KEY": ("api.mistral.ai",),
    "DEEPSEEK_API_KEY": ("api.deepseek.com",),
    "XAI_API_KEY": ("api.x.ai",),
    "GITHUB_TOKEN": ("api.githubcopilot.com", "models.github.ai"),
}
_MAX_SETTINGS_BYTES = 1_000_000


def find_host(address: str) -> str:
    """Return the host of an address as lists of hosts have it, with its port where that is not the usual one."""
    try:
        found = urlsplit(address)
        host, port = found.hostname, found.port
    except ValueError:
        return ""
    if not host:
        return ""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace") if path.stat().st_size <= _MAX_SETTINGS_BYTES else ""
    except OSError:
        return ""


@dataclass(frozen=True)
class Needs:
    """What an agent needs of the machine. Paths are relative to the home folder.

    Inside the sandbox it has a home of its own. `settings` are copied into it before each start. `account` files are
    copied too, and what the agent has renewed in them goes back. `seeds` are written where there is nothing yet.
    """

    variables: tuple[str, ...] = ()
    """Variables of our environment that it gets where they are set: its keys, its addresses, its options."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Hosts that it talks to if no variable names another."""
    base_urls: tuple[str, ...] = ()
    """Variables that hold the address of a provider; its host is needed too."""
    settings: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    seeds: Mapping[str, str] = field(default_factory=dict)

    def find_hosts(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the hosts that it has to reach with this environment."""
        named = (find_host(env.get(name, "")) for name in self.base_urls)
        chosen = (host for name in self.variables if env.get(name) for host in _HOSTS_BY_VARIABLE.get(name, ()))
        return tuple(dict.fromkeys([*self.hosts, *chosen, *(host for host in named if host)]))

    def find_own_hosts(self, env: Mapping[str, str], home: Path) -> tuple[str, ...]:
        """Return the hosts that the user's own settings of the agent name as addresses of providers."""
        texts = [text for name in self.settings if (text := _read_text(home / name))]
        named = (find_host(found[1]) for text in (*texts, *env.values()) for found in _ADDRESS.finditer(text))
        return tuple(dict.fromkeys(host for host in named if host))


@dataclass(frozen=True)
class AgentCall:
    """One start of the program: `argv` is the persona's, the program first."""

    argv: Sequence[str]
    model: str
    session: str
    """The session to begin, if we choose its name, or to continue."""
    envelope_file: Path
    home: Path

    @property
    def options(self) -> list[str]:
        return list(self.argv[1:])

    def with_model(self, flag: str) -> list[str]:
        return [flag, self.model] if self.model else []


class ToolState(StrEnum):
    """How far a tool call of a coding agent is, as it reports it."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class OutputItem:
    """One thing that a line of output says; most of the fields are empty."""

    session: str = ""
    model: str = ""
    """The model that it uses, as it names it."""
    text: str = ""
    """What the model said."""
    final: str = ""
    """The agent's last answer, where it is said once more at the end."""
    tool: str = ""
    activity: str = ""
    """What the tool is about: its command, its file."""
    state: ToolState = ToolState.STARTED
    usage: Usage | None = None
    """Of one call of a model; said again for the same `call_id`, it counts once."""
    call_id: str = ""
    total: Usage | None = None
    """Of the whole run; it replaces the sum of the calls."""
    error: str = ""


class Adapter:
    """How one product is driven without a person. The envelope comes on standard input unless `has_envelope_file`."""

    name: ClassVar[str]
    needs: ClassVar[Needs]
    has_envelope_file: ClassVar[bool] = False
    chooses_session: ClassVar[bool] = False
    """The session's name is ours to choose, a UUID."""
    is_total_of_session: ClassVar[bool] = False
    """The total of a continued session includes what was used before."""
    session_files: ClassVar[tuple[str, ...]] = ()
    """Where a session is stored, in the home folder; it can be continued while one of these exists."""

    def start(self, call: AgentCall) -> list[str]:
        """Return the command line that begins."""
        raise NotImplementedError

    def resume(self, call: AgentCall) -> list[str]:
        """Return the command line that continues `call.session`."""
        raise NotImplementedError

    def read(self, record: Mapping[str, Any]) -> Iterator[OutputItem]:
        """Read one JSON object of the output."""
        raise NotImplementedError

    def read_line(self, line: str) -> list[OutputItem]:
        """Read one line of the output, whatever it is; one that says nothing we know gives nothing."""
        if not line.startswith("{"):
            return []
        try:
            record = json.loads(line)
            return list(self.read(record)) if isinstance(record, dict) else []
        except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
            return []  # torn, or of another version: no reason to fail an agent that does its work

    def find_session(self, home: Path, session: str) -> Path | None:
        """Return the file of a session that can be continued, or `None`."""
        if not session or "/" in session or "*" in session or not self.session_files:
            return None
        patterns = (one.replace("{session}", session).replace("{session8}", session[:8]) for one in self.session_files)
        found = (path for pattern in patterns for path in home.glob(pattern))
        return next(found, None)


def to_usage(
    input_tokens: Any, output_tokens: Any, *, cached: Any = 0, cost_usd: Any = None, extra_input: Sequence[Any] = ()
) -> Usage:
    """Make a usage of what a program says; what makes no sense counts as not said."""
    used = sum(map(to_count, [input_tokens, *extra_input]))
    return Usage(used, to_count(output_tokens), cached_tokens=to_count(cached), cost_micros=to_micros(cost_usd))


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Add what two calls have used; the cost is known if one of them says it."""
    if first is None or second is None:
        return first or second
    costs = [usage.cost_micros for usage in (first, second) if usage.cost_micros is not None]
    return replace(
        first,
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cached_tokens=first.cached_tokens + second.cached_tokens,
        cost_micros=sum(costs) if costs else None,
    )


def to_count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**62 else 0


def to_micros(usd: Any) -> int | None:
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd * 1_000_000 <= _MAX_MICROS:
        return None
    return math.ceil(usd * 1_000_000 - 1e-6)


def to_activity(arguments: Any) -> str:
    """Say in one line what a tool call is about."""
    if isinstance(arguments, Mapping):
        value = next((arguments[name] for name in _TARGETS if arguments.get(name)), "")
        arguments = " ".join(map(str, value)) if isinstance(value, list) else value
    return " ".join(str(arguments or "").split())[:_MAX_ACTIVITY_CHARS]


def to_text(content: Any) -> str:
    """Return the text of a message's content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text") or "") for block in blocks if isinstance(block, dict))


def find_variables(names: Sequence[str]) -> dict[str, str]:
    """Return those variables of our environment that are set."""
    return {name: value for name in names if (value := os.environ.get(name))}
