"""Personas: who can do the work, with which model, which instructions and which permissions.

A persona never holds a key: it names the environment variable that does.
"""

import re
import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from holdfast.config import MAX_TRIES, MAX_WAIT_S
from holdfast.definitions.base import Argv, Definition, Key, Loc, Name, Version, check_not_empty, refuse
from holdfast.definitions.model_settings import ModelSettings
from holdfast.definitions.sandbox_rules import CommandSandbox, Host, OwnPath, PathPattern
from holdfast.definitions.yaml_file import load_definition, load_definitions_from_dir
from holdfast.enums import Backend, Capability
from holdfast.errors import PersonaInvalid

# What `argv` of a command persona may contain; the agent layer fills them in.
PLACEHOLDERS = frozenset({"envelope_file", "usage_file", "workspace", "model"})

# The coding agents that the agent layer knows how to drive; it has a table of the same names.
ADAPTERS = ("aider", "claude-code", "codex", "continue", "gemini", "opencode", "pi", "qwen")

DEFAULT_KEY_VARIABLES = {
    Backend.OPENROUTER: "OPENROUTER_API_KEY",
    Backend.OPENAI: "OPENAI_API_KEY",
    Backend.ANTHROPIC: "ANTHROPIC_API_KEY",
}


class Verdict(StrEnum):
    """What a rule says about a tool call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class ApprovalMode(StrEnum):
    """About which tool calls a person is asked: those that rules call risky, every change as well, or every call."""

    RISKY = "risky"
    WRITES = "writes"
    ALWAYS = "always"


def _check_command_pattern(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"should be words as a shell would split them: {error}") from error
    if not words or not value.isprintable():
        raise ValueError("should be the first words of a command, such as git push")
    return value


class PathRules(Definition):
    """Globs relative to the workspace. `deny` wins over `ask`, `ask` over `allow`; the rest is up to the policy."""

    allow: tuple[PathPattern, ...] = ()
    ask: tuple[PathPattern, ...] = ()
    deny: tuple[PathPattern, ...] = ()


class CommandRules(Definition):
    """Beginnings of commands, word by word, each word a glob. `deny` wins over `ask`, `ask` over `allow`."""

    allow: tuple[Annotated[str, AfterValidator(_check_command_pattern)], ...] = ()
    ask: tuple[Annotated[str, AfterValidator(_check_command_pattern)], ...] = ()
    deny: tuple[Annotated[str, AfterValidator(_check_command_pattern)], ...] = ()


class CommandLimits(Definition):
    """How much one command may use, with all that it starts; what is not named has the sandbox's default."""

    memory_mb: int | None = Field(default=None, ge=64)
    processes: int | None = Field(default=None, ge=4)
    cpu_seconds: int | None = Field(default=None, ge=1)
    file_mb: int | None = Field(default=None, ge=1)
    temporary_mb: int | None = Field(default=None, ge=1)

    def to_bytes(self) -> dict[str, int]:
        """Return the named ones as the fields of the sandbox's limits."""
        sizes = {"memory": self.memory_mb, "file_size": self.file_mb, "temporary": self.temporary_mb}
        values = {name: None if size is None else size * 1024**2 for name, size in sizes.items()}
        values |= {"processes": self.processes, "cpu_s": self.cpu_seconds}
        return {name: value for name, value in values.items() if value is not None}


class Permissions(Definition):
    """What the persona's agent may touch. What no rule names is decided by the agent layer's own safe default.

    `tools` of `None` means the tools that fit the persona's capabilities; an empty list means none at all. `network`
    is for commands: with `deny` they are cut off from it, with `ask` a person decides command by command, and a list of
    hosts is what they reach unasked. `readable` and `limits` are for commands in a sandbox, too.
    """

    tools: tuple[Key, ...] | None = None
    read: PathRules = PathRules()
    write: PathRules = PathRules()
    commands: CommandRules = CommandRules()
    network: Verdict = Verdict.ASK
    approvals: ApprovalMode = ApprovalMode.RISKY
    hosts: tuple[Host, ...] = ()
    """The only hosts that commands reach, if there are any; written as the list in `network`."""
    readable: tuple[OwnPath, ...] = ()
    limits: CommandLimits = CommandLimits()

    @model_validator(mode="before")
    @classmethod
    def _takes_hosts(cls, value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get("network"), list | tuple):
            hosts = list(value["network"])
            return {**value, "network": Verdict.ALLOW if hosts else Verdict.DENY, "hosts": hosts}
        return value


def _check_variable(value: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,99}", value):
        raise ValueError("should be the name of an environment variable in capitals, never the key itself")
    return value


def _check_adapter(value: str) -> str:
    if value not in ADAPTERS:
        raise ValueError(f"should be one of {', '.join(ADAPTERS)}")
    return value


VariableName = Annotated[str, AfterValidator(_check_variable)]


class Subagent(Definition):
    """A helper that the persona's agent can give a part of its work to, with instructions of its own.

    It has the persona's tools, or those of them that `tools` names, and the persona's model or another one of the same
    backend. What it may do is what the persona may do.
    """

    name: Key
    description: Annotated[str, Field(min_length=1, max_length=1000)]
    system_prompt: str = ""
    model: str | None = Field(default=None, min_length=1, max_length=200)
    tools: tuple[Key, ...] | None = None


class ScriptedTurn(Definition):
    """One answer of a simulated model that plays a script: what it says, the tools it calls, the artifact it writes.

    A call is `tool: {argument: value}`. `$comment` stands for what a person asked to be changed; without such a comment
    a text, an entry or a field that names it is left out.
    """

    say: str = ""
    calls: tuple[dict[Key, dict[str, JsonValue]], ...] = ()
    artifact: dict[str, JsonValue] | None = None

    @field_validator("calls")
    @classmethod
    def _is_one_call_each(cls, value: tuple[dict[str, object], ...]) -> tuple[dict[str, object], ...]:
        if any(len(call) != 1 for call in value):
            raise ValueError("should be a list of calls, each of them one tool with its arguments")
        return value


class AgentPersona(Definition):
    """One way to fill a role: a backend and model, a system prompt, capabilities and permissions."""

    # A key pasted into the wrong field must not come back in an error message.
    # `model_settings` is the field's own word for what pydantic would keep for itself.
    model_config = ConfigDict(hide_input_in_errors=True, protected_namespaces=())

    name: Name
    version: Version
    description: str = ""
    backend: Backend
    model: str = Field(default="", max_length=200)
    capabilities: Annotated[tuple[Capability, ...], AfterValidator(check_not_empty)]
    system_prompt: str = ""
    fallback_models: tuple[str, ...] = ()
    max_output_tokens: int | None = Field(default=None, ge=1)
    model_settings: ModelSettings = ModelSettings()
    structured_output: Literal["auto", "never"] = "auto"
    """Whether a repair turn may end with the artifact as the agent's answer, by the provider's own way to get JSON."""
    vision: bool | None = None
    """Whether its model takes images; without it the table of models says so, and one it does not know is tried."""
    subagents: tuple[Subagent, ...] = ()
    skills: tuple[str, ...] | None = None
    """Which of the repository's skills it knows of; without a list all of them."""
    answer_timeout_s: float | None = Field(default=None, gt=0, le=MAX_WAIT_S)
    idle_timeout_s: float | None = Field(default=None, gt=0, le=MAX_WAIT_S)
    tries: int | None = Field(default=None, ge=1, le=MAX_TRIES)
    max_wait_s: float | None = Field(default=None, ge=0, le=MAX_WAIT_S)
    permissions: Permissions = Permissions()
    requires_consent: bool = False
    base_url: str | None = None
    api_key_env: VariableName | None = None
    argv: Argv | None = None
    adapter: Annotated[str, AfterValidator(_check_adapter)] | None = None
    """The coding agent that `argv` starts: its options, its output and its sessions are then known."""
    env: tuple[VariableName, ...] = ()
    """Variables that the command gets where they are set, beside the one of `api_key_env`."""
    sandbox: CommandSandbox = CommandSandbox()
    cost_per_run_usd: float | None = Field(default=None, ge=0)
    """What one run of the command may cost: reserved before it, and counted where it tells no cost of its own."""
    cost_from: Literal["file", "output"] = "file"
    """Where the command tells what it has cost: in the file it is told of, or as JSON in the last lines it prints."""
    on_lost: Literal["ask", "rerun"] = "ask"
    """What becomes of a command that was in flight when its machine was lost: a person is asked, or it is run again."""
    script: dict[Key, tuple[ScriptedTurn, ...]] = Field(default={})
    """What a simulated model does, phase by phase; in a phase that is not named it does what it always does."""

    def __hash__(self) -> int:
        return hash(self.content_hash)  # the fields hold mappings

    @field_validator("sandbox", mode="before")
    @classmethod
    def _is_on_or_off(cls, value: object) -> object:
        return {"enabled": value} if isinstance(value, bool) else value

    @field_validator("capabilities")
    @classmethod
    def _in_one_order(cls, value: tuple[Capability, ...]) -> tuple[Capability, ...]:
        return tuple(sorted(set(value)))

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            raise ValueError("should be an address with a port from 1 to 65535, or none") from error
        if port == 0:
            raise ValueError("should be an address with a port from 1 to 65535, or none")
        if parts.scheme not in ("http", "https") or not parts.hostname or not value.isprintable():
            raise ValueError("should be an address such as http://localhost:8080/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError("should hold no user, password or query; name the key's variable in api_key_env")
        return value

    @model_validator(mode="after")
    def _fits_its_backend(self) -> "AgentPersona":
        refuse(_find_misfits(self))
        return self

    def with_settings(self, settings: ModelSettings | None) -> "AgentPersona":
        """Return the persona as a phase wants it: each setting of the phase in the place of the persona's own."""
        if settings is None:
            return self
        changes = settings.model_dump(exclude_none=True)
        if {"effort", "thinking_tokens"} & set(changes):
            changes = {"effort": None, "thinking_tokens": None, **changes}
        own = self.model_settings.model_dump()
        return self.model_copy(update={"model_settings": ModelSettings.model_validate({**own, **changes})})

    def as_subagent(self, subagent: Subagent) -> "AgentPersona":
        """Return the persona with the model of one of its subagents and without fallbacks, which are not its own."""
        return self.model_copy(update={"model": subagent.model or self.model, "fallback_models": ()})

    @property
    def output_limit(self) -> int | None:
        """How many tokens an answer may have, if the persona or the phase says so."""
        return self.model_settings.max_output_tokens or self.max_output_tokens

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key, or `None` where the backend needs none."""
        return self.api_key_env or DEFAULT_KEY_VARIABLES.get(self.backend)


def load_persona_file(path: str | Path) -> AgentPersona:
    """Read one persona; raises `PersonaInvalid` with file, line and field of every problem."""
    return load_definition(Path(path), AgentPersona, PersonaInvalid)


def load_personas_from_dir(path: str | Path) -> list[AgentPersona]:
    """Read every persona of a folder, in the order of the file names; raises `PersonaInvalid`."""
    return list(load_definitions_from_dir(Path(path), load_persona_file, PersonaInvalid).values())


def _find_subagent_misfits(persona: AgentPersona) -> Iterator[tuple[Loc, str]]:
    seen: set[str] = set()
    for index, subagent in enumerate(persona.subagents):
        if subagent.name in seen:
            yield ("subagents", index, "name"), f"there is more than one subagent {subagent.name}"
        seen.add(subagent.name)


def _find_misfits(persona: AgentPersona) -> Iterator[tuple[Loc, str]]:
    is_command = persona.backend is Backend.COMMAND
    if is_command and persona.argv is None:
        yield ("argv",), "a command persona needs the command to run"
    if persona.argv is not None and not is_command:
        yield ("argv",), f"only a command persona has one, and this backend is {persona.backend}"
    for field in ("adapter", "env", "sandbox", "cost_per_run_usd", "cost_from"):
        if not is_command and getattr(persona, field) != AgentPersona.model_fields[field].default:
            yield (field,), f"only a command persona has one, and this backend is {persona.backend}"
    if persona.script and persona.backend is not Backend.SIMULATED:
        yield ("script",), f"only a simulated persona plays one, and this backend is {persona.backend}"
    for field in ("answer_timeout_s", "idle_timeout_s", "tries", "max_wait_s"):
        if is_command and getattr(persona, field) is not None:
            yield (field,), "a command persona makes no model calls itself; a phase's timeout_seconds bounds it"
    for field in ("model_settings", "structured_output", "subagents"):
        if is_command and getattr(persona, field) != AgentPersona.model_fields[field].default:
            yield (field,), "a command persona has a model of its own; give its program the options in argv"
    if persona.max_output_tokens and persona.model_settings.max_output_tokens:
        yield ("model_settings", "max_output_tokens"), "it stands beside the persona's own max_output_tokens"
    takes_thinking_tokens = persona.backend in (Backend.ANTHROPIC, Backend.OPENROUTER, Backend.SIMULATED)
    if persona.model_settings.thinking_tokens is not None and not is_command and not takes_thinking_tokens:
        yield ("model_settings", "thinking_tokens"), f"backend {persona.backend} takes no number; set effort instead"
    yield from _find_subagent_misfits(persona)
    if not is_command and not persona.model:
        yield ("model",), f"backend {persona.backend} needs a model"
    if persona.backend is Backend.OPENAI_COMPATIBLE and not persona.base_url:
        yield ("base_url",), "an openai_compatible persona needs the address of its server"
    if persona.base_url and persona.backend in (Backend.COMMAND, Backend.SIMULATED):
        yield ("base_url",), f"backend {persona.backend} calls no server"
    for index, word in enumerate(persona.argv or ()):
        for name in re.findall(r"\{([a-z_]+)\}", word):
            if name not in PLACEHOLDERS:
                known = ", ".join(f"{{{placeholder}}}" for placeholder in sorted(PLACEHOLDERS))
                yield ("argv", index), f"there is no placeholder {{{name}}}; there are {known}"
