"""Groups of commands whose modules are imported when a command is run, not when it is listed."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.agent_command import is_reading, refuse_inside_agent_command
from holdfast.errors import did_you_mean as did_you_mean

if TYPE_CHECKING:
    from holdfast.extras import Extra

# What commands need beside the core, by module or by command; they say so before they do anything. What is missing
# only on some way through another command is found on that way.
_EXTRAS: "dict[str, Extra]" = {
    **dict.fromkeys(
        ("commands.init", "commands.run", "commands.merge", "commands.trust", "commands.crashtest"), "agents"
    ),
    **dict.fromkeys((*(f"commands.{name}" for name in ("retry", "pause", "fork", "restore")),), "agents"),
    "commands.workflows": "agents",
    **dict.fromkeys(("commands.personas.list", "commands.personas.show", "commands.personas.new"), "agents"),
    **dict.fromkeys(("commands.db:upgrade", "commands.db:check"), "agents"),
    **dict.fromkeys(("commands.serve", "commands.token", "commands.worker"), "server"),
}


class Entry(NamedTuple):
    """A command before it is loaded. `target` is `module:function` below this package; a group has `members`.

    A group with a target too is that command when none of its members is named.
    """

    summary: str
    target: str = ""
    members: Mapping[str, "Entry"] | None = None


_ALIASES = {"ls": "list"}


class LazyGroup(TyperGroup):
    """A group that knows names and summaries, and loads a command when someone asks for it."""

    sections: Mapping[str, Mapping[str, Entry]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for members in self.sections.values() for name in members]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in self.commands:
            entry = next((members[cmd_name] for members in self.sections.values() if cmd_name in members), None)
            if entry is None:
                return None
            self.commands[cmd_name] = load(cmd_name, entry)
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, members in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in members.items()])

    def get_help_option(self, ctx: Any) -> Any:
        return _lighten_param(super().get_help_option(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def suggest(self, ctx: Any, word: str) -> str:
        """Return a sentence that names what was probably meant, or nothing."""
        return did_you_mean(word, self.list_commands(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"There is no command {args[0]!r}.{self.suggest(ctx, args[0])}")
        return super().resolve_command(ctx, args)


class DefaultGroup(LazyGroup):
    """A group that is a command itself where no member of it is named."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.callback = None  # a member is named, and does all there is to do
        return super().resolve_command(ctx, args)


def load(name: str, entry: Entry) -> Any:
    """Import the module of a command and return the command."""
    if entry.members is not None:
        return _load_group(name, entry, entry.members)
    module_name, _, function_name = entry.target.partition(":")
    extra = _EXTRAS.get(entry.target) or _EXTRAS.get(module_name)
    function = getattr(importlib.import_module(f"holdfast.cli.{module_name}"), function_name)
    if isinstance(function, typer.Typer):
        group = typer.main.get_group(function)
        group.name = name
        return group
    single = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=LightCommand)(function)
    command = typer.main.get_command(single)
    assert isinstance(command, LightCommand)
    command.extra = extra
    command.is_reading = is_reading(entry.target)
    return lighten(command)


def _load_group(name: str, entry: Entry, members: Mapping[str, Entry]) -> LazyGroup:
    if not entry.target:
        return make_group(name, entry.summary, {"Commands": members})
    command = load(name, Entry(entry.summary, entry.target))
    group = DefaultGroup(
        name=name,
        help=command.help,
        params=command.params,
        callback=command.callback,
        invoke_without_command=True,
        rich_markup_mode=None,
    )
    group.sections = {"Commands": members}
    return group


class _PlainValue:
    """Turns what was typed into a value of a simple type."""

    def __init__(self, kind: Callable[[Any], Any], minimum: float | None, maximum: float | None) -> None:
        self._kind = kind
        self._minimum = minimum
        self._maximum = maximum

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self.coerce(item, param, ctx) for item in value]
        try:
            typed = self._kind(value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is no {_KIND_NAMES[self._kind]}.", ctx=ctx, param=param) from None
        if self._minimum is not None and not typed >= self._minimum:
            raise typer.BadParameter(f"{value!r} is less than {self._minimum:g}.", ctx=ctx, param=param)
        if self._maximum is not None and not typed <= self._maximum:
            raise typer.BadParameter(f"{value!r} is more than {self._maximum:g}.", ctx=ctx, param=param)
        return typed


_KIND_NAMES: dict[Any, str] = {
    bool: "flag",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    list[str]: "text",
}


def lighten(command: Any) -> Any:
    """Let a command read its simple parameters without pydantic, which takes longer to import than most commands run.

    Since 0.29 typer asks pydantic for every value that is not a flag; this can go when it no longer does.
    """
    for param in command.params:
        _lighten_param(param)
    return command


def _lighten_param(param: Any) -> Any:
    described = getattr(param, "type_descriptor", None)
    if described is not None and described.annotation in _KIND_NAMES:
        kind = str if described.annotation == list[str] else described.annotation
        info = described.parameter_info
        param._runtime_param = _PlainValue(kind, getattr(info, "min", None), getattr(info, "max", None))
    return param


class LightCommand(TyperCommand):
    """A command whose `--help` is read like its other options, see `lighten`, and that names the extra it lacks.

    Unless it only shows something it is refused to agents.
    """

    extra: "Extra | None" = None
    is_reading = True

    def get_help_option(self, ctx: Any) -> Any:
        return _lighten_param(super().get_help_option(ctx))

    def invoke(self, ctx: Any) -> Any:
        from holdfast.extras import name_missing_extra, require_extra

        if not self.is_reading:
            refuse_inside_agent_command(ctx.command_path)
        if self.extra is not None:
            require_extra(self.extra, ctx.command_path)
        with name_missing_extra(ctx.command_path):
            return super().invoke(ctx)


def make_group(name: str, summary: str, sections: Mapping[str, Mapping[str, Entry]]) -> LazyGroup:
    """Return a group that prints its help where no member is named."""
    group = LazyGroup(name=name, help=summary, no_args_is_help=True, rich_markup_mode=None)
    group.sections = sections
    return group
