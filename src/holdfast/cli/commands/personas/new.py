"""The command personas new: a persona for a coding agent of one's own, tried before it is written."""

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.output import plain, print_json, print_text, say

if TYPE_CHECKING:
    from holdfast.cli.commands.personas.trial import Trial
    from holdfast.persona import AgentPersona

# The program of each agent that holdfast knows.
_PROGRAMS = {
    "aider": "aider",
    "claude": "claude-code",
    "cn": "continue",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "pi": "pi",
    "qwen": "qwen",
}
_CAPABILITIES = [
    "spec_write",
    "phase_planning",
    "code_write",
    "code_review",
    "test_write",
    "debug",
    "verify",
    "doc_write",
]
_PROMPT = """\
The task comes from holdfast as an envelope: what to do, what came before, and which artifact to leave behind. Work
in the current folder only. Do not commit, push or change branches. Write the artifact exactly where and in the form
the envelope says; a run without it has failed.
"""


def new_persona(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the persona.")],
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="The command line. It gets the task on standard input, or in {envelope_file} where that stands in it.",
        ),
    ],
    repo: Annotated[
        Path | None,
        typer.Option("--repo", metavar="PATH", help="Write it for everybody of this repository, not for you alone."),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option("--adapter", metavar="AGENT", help="The agent it is, or none. Usually its program tells."),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME", help="A variable that it gets. Can be repeated.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="PATH", help="A folder it writes to. Can be repeated.")
    ] = None,
    is_tried: Annotated[
        bool, typer.Option("--try/--no-try", help="Let it do a small task in a scratch repository first.")
    ] = True,
    as_json: JSON = False,
) -> None:
    """Make a persona of a coding agent: try its command on a small task, then write the persona's file.

    The trial is a real run in a scratch repository, in the sandbox, and costs what the agent costs.

    Example: holdfast personas new my-agent --command "my-agent --task {envelope_file}"
    """
    from holdfast.config import load_config

    persona = _make_persona(name, command, adapter=adapter, env=env or [], write=write or [])
    folder = load_config().config_dir if repo is None else repo.absolute() / ".holdfast"
    path = folder / "personas" / f"{persona.name}.yaml"
    if path.exists():
        raise typer.BadParameter(f"{path} is there already.")
    trial = _try(persona, is_quiet=as_json) if is_tried else None
    if trial is None or trial.is_passed:
        _write(path, persona)
    if as_json:
        facts = {} if trial is None else trial._asdict()
        print_json({"persona": persona.name, "file": str(path), "is_written": path.exists(), "trial": facts})
    else:
        print_text(_describe(persona, path, trial))
    raise typer.Exit(0 if path.exists() else 1)


def _make_persona(name: str, command: str, *, adapter: str | None, env: list[str], write: list[str]) -> "AgentPersona":
    from pydantic import ValidationError

    from holdfast.persona import AgentPersona

    try:
        argv = shlex.split(command)
        known = _PROGRAMS.get(Path(argv[0]).name) if adapter is None else adapter
        fields: dict[str, Any] = {"name": name, "version": 1, "backend": "command", "argv": argv}
        fields |= {"capabilities": _CAPABILITIES, "env": env, "system_prompt": _PROMPT}
        fields |= {"adapter": known} if known not in (None, "none") else {}
        fields |= {"sandbox": {"write": write}} if write else {}
        return AgentPersona.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, IndexError) as error:
        raise typer.BadParameter(f"--command is no command line: {error}") from error


def _try(persona: "AgentPersona", *, is_quiet: bool) -> "Trial":
    from holdfast.cli.commands.personas.trial import try_persona

    if not is_quiet:
        say(f"Trying {persona.name} on a small task in a scratch repository …")
    return asyncio.run(try_persona(persona))


def _write(path: Path, persona: "AgentPersona") -> None:
    import yaml

    from holdfast.workspace.files import write_whole

    fields = persona.model_dump(by_alias=True, exclude_defaults=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, yaml.dump(fields, Dumper=_to_dumper(), sort_keys=False, allow_unicode=True, width=110))


def _to_dumper() -> Any:
    """Return a YAML dumper that writes a text of several lines as one reads it."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def represent(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent)
    return Dumper


def _describe(persona: "AgentPersona", path: Path, trial: "Trial | None") -> str:
    lines = []
    if trial is not None:
        lines.append(f"{'✓' if trial.is_passed else '✕'} {plain(trial.finding)}")
        lines += [f"  {plain(note)}" for note in trial.notes]
    if not path.exists():
        return "\n".join([*lines, "Nothing was written. Correct the command and try again, or use --no-try."])
    lines.append(f"✓ {path}")
    return "\n".join([*lines, f"Use it: holdfast run feature-delivery --persona developer={persona.name} …"])
