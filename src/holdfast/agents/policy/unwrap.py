"""Finds the command behind a command: what `env`, `xargs`, `find -exec`, `sh -c` and their like will run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from holdfast.agents.policy.programs import RUN_WORDS, SHELLS, WRAPPER_VALUES, WRAPPERS
from holdfast.agents.policy.shell_parser import NotUnderstood, SimpleCommand, Word

_XARGS_VALUES = frozenset(
    {"-I", "-i", "-n", "-P", "-L", "-l", "-d", "-E", "-s", "-a", "--max-args", "--max-procs", "--delimiter"}
)
_ENV_VALUES = frozenset({"-u", "--unset", "-C", "--chdir"})
_EXECUTES = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FOUND = Word("./found", is_fixed=True)
_UNKNOWN_WORD = Word("", is_fixed=False)


@dataclass(frozen=True, slots=True)
class Inner:
    """What a command runs: other words in its place, or a line for a shell."""

    words: tuple[Word, ...] = ()
    line: str | None = None
    assignments: tuple[str, ...] = ()


def program_name(command: SimpleCommand) -> str:
    """Return the program's name without its folder. Raises `NotUnderstood` if only the shell will know it."""
    first = command.words[0]
    if not first.is_fixed or (first.has_glob and first.text != "["):
        raise NotUnderstood("which program it runs is only known when it runs")
    return PurePosixPath(first.text).name or first.text


def unwrap(command: SimpleCommand, name: str) -> list[Inner]:
    """List the commands that a command runs besides itself, such as that of `sudo`; `[]` if there is none."""
    rest = command.words[1:]
    if name in WRAPPERS:
        return _inner(_after_options(rest, WRAPPER_VALUES, name)[WRAPPERS[name] :])
    if name == "command":
        return [] if rest and rest[0].text in ("-v", "-V") else _inner(_after_options(rest, frozenset(), name))
    if name == "env":
        return _of_env(rest)
    if name == "xargs":
        inner = _after_options(rest, _XARGS_VALUES, name)
        return _inner((*inner, _UNKNOWN_WORD)) if inner else []
    if name == "find":
        return _of_find(rest)
    if name == "eval":
        return [Inner(line=" ".join(_fixed(word) for word in rest))]
    if name in SHELLS:
        return _of_shell(command, rest, name)
    if re.fullmatch(r"python[0-9.]*|pypy3?", name):
        return _of_python(rest)
    if name in RUN_WORDS and rest and rest[0].text == RUN_WORDS[name]:
        return _inner(_after_options(rest[1:], frozenset({"--with", "--python", "-p", "--group", "--extra"}), name))
    return []


def _inner(words: Sequence[Word]) -> list[Inner]:
    return [Inner(tuple(words))] if words else []


def _after_options(words: Sequence[Word], with_value: frozenset[str], name: str) -> tuple[Word, ...]:
    index = 0
    while index < len(words):
        word = words[index]
        if not word.is_fixed:
            raise NotUnderstood(f"what {name} runs is only known when it runs")
        if word.text == "--":
            return tuple(words[index + 1 :])
        if not word.text.startswith("-"):
            break
        index += 2 if word.text in with_value else 1
    return tuple(words[index:])


def _of_env(words: Sequence[Word]) -> list[Inner]:
    if any(word.text.startswith(("-S", "--split-string")) for word in words):
        raise NotUnderstood("env splits a text into words")
    left = list(_after_options(words, _ENV_VALUES, "env"))
    names: list[str] = []
    while left and "=" in left[0].text:
        names.append(left.pop(0).text.partition("=")[0])
    return [Inner(tuple(left), assignments=tuple(names))] if left or names else []


def _of_find(words: Sequence[Word]) -> list[Inner]:
    found: list[Inner] = []
    index = 0
    while index < len(words):
        if words[index].text in _EXECUTES:
            end = next((at for at in range(index, len(words)) if words[at].text in (";", "+")), len(words))
            inner = [replace(_FOUND) if word.text == "{}" else word for word in words[index + 1 : end]]
            found += _inner(inner)
            index = end
        index += 1
    return found


def _of_shell(command: SimpleCommand, words: Sequence[Word], name: str) -> list[Inner]:
    for index, word in enumerate(words):
        if not word.is_fixed:
            raise NotUnderstood(f"what {name} runs is only known when it runs")
        if word.text.startswith("-") and not word.text.startswith("--") and "c" in word.text:
            line = next((other for other in words[index + 1 :] if not other.text.startswith(("-", "+"))), None)
            if line is None:
                raise NotUnderstood(f"{name} gets no line to run")
            return [Inner(line=_fixed(line))]
        if not word.text.startswith(("-", "+")):
            return _inner(words[index:]) if name == "busybox" else []  # a script, judged by its path
    if command.is_fed or any(redirect.operator.startswith("<") for redirect in command.redirects):
        raise NotUnderstood(f"{name} runs what it is sent")
    return []


def _of_python(words: Sequence[Word]) -> list[Inner]:
    for index, word in enumerate(words):
        if word.is_fixed and word.text == "-m":
            return _inner(words[index + 1 :])
        if not word.text.startswith("-") or word.text == "-c":
            is_set_up = PurePosixPath(word.text).name == "setup.py"
            return _inner((Word("setup.py"), *words[index + 1 :])) if is_set_up else []
    return []


def _fixed(word: Word) -> str:
    if not word.is_fixed:
        raise NotUnderstood("a part of what it runs is only known when it runs")
    return word.text
