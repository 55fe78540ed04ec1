"""Decides on a command line: what each program in it is for, by the persona's rules and by safe defaults.

Reading, building and testing in the workspace just work. What breaks machines is denied; what others would notice
(network, publishing, history) waits for a person; and so does what cannot be read.

A line is judged from the outside in: `shell_parser` gives its commands; each is judged by its redirections, variables,
program and paths; what it runs in turn (`sudo x`, `sh -c "x"`, `find -exec x`) is unwrapped and judged the same way.
The strictest of all these judgements holds for the line.

It is a courtesy: it explains and asks early, and no promise rests on it, since no reading of shell lines is ever
complete. What is promised, the kernel's sandbox promises. Where none is in force, a person is asked about every line
that is not one of `read_only_forms`, unless a person chose to run without a sandbox.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from holdfast.agents.policy.command_paths import PathJudge
from holdfast.agents.policy.judgement import Judgement, allowed, denied, needs_approval, strictest
from holdfast.agents.policy.programs import (
    PATTERN_FIRST,
    READERS,
    RISKY_VARIABLES,
    SPEAKERS,
    WRITERS,
    ProgramEffect,
    classify,
)
from holdfast.agents.policy.read_only_forms import ReadOnlyForms
from holdfast.agents.policy.shell_parser import NotUnderstood, SimpleCommand, Word, read_line
from holdfast.agents.policy.unwrap import program_name, unwrap
from holdfast.persona import CommandRules, Verdict

_MAX_DEPTH = 8
READ_ONLY_FORM = "read-only form"
NO_SANDBOX = "no sandbox is in force on this machine, so"


@dataclass
class _Place:
    """Which folders may be the current one, by subshell. `None`: nobody knows."""

    by_scope: dict[tuple[int, ...], list[Path] | None]
    made: set[Path] = field(default_factory=set)

    def folders(self, scope: tuple[int, ...]) -> list[Path] | None:
        while scope not in self.by_scope:
            scope = scope[:-1]
        return self.by_scope[scope]


class CommandPolicy:
    """Judges command lines for one workspace. `is_contained`: they run in a sandbox, which bounds what code can do.

    With `forms` only these run unasked.
    """

    def __init__(
        self,
        paths: PathJudge,
        *,
        root_dir: Path,
        home: str,
        rules: CommandRules,
        network: Verdict,
        is_contained: bool,
        is_read_only: bool = False,
        forms: ReadOnlyForms | None = None,
    ) -> None:
        self._forms = forms
        self._paths = paths
        self._root = root_dir.resolve()
        self._variables: Mapping[str, str] = {"HOME": home} if home else {}
        self._rules = [
            (verdict, pattern, shlex.split(pattern))
            for verdict, patterns in (
                (Verdict.DENY, rules.deny),
                (Verdict.ASK, rules.ask),
                (Verdict.ALLOW, rules.allow),
            )
            for pattern in patterns
        ]
        self._network = network
        self._is_contained = is_contained
        self._is_read_only = is_read_only

    def judge(self, line: str) -> Judgement:
        found = strictest(self._judge_line(line, _Place({(): [self._root]}), depth=0))
        if self._forms is None or found.verdict is Verdict.DENY:
            return found
        if self._forms.has(line):
            return replace(found, rule=READ_ONLY_FORM) if found.verdict is Verdict.ALLOW else found
        reason = f"{NO_SANDBOX} a person agrees to every command that does not just show files of the workspace"
        return needs_approval(
            "no-sandbox", f"{reason}; besides, {found.reason}" if found.reason else reason, needs_network=True
        )

    def _judge_line(self, line: str, place: _Place, depth: int) -> Iterator[Judgement]:
        try:
            if depth > _MAX_DEPTH:
                raise NotUnderstood("it is nested too deeply")
            commands = read_line(line, self._variables)
        except NotUnderstood as why:
            yield _not_understood(why)
            return
        for command in commands:
            yield from self._judge_command(command, place, depth)

    def _judge_command(self, command: SimpleCommand, place: _Place, depth: int) -> Iterator[Judgement]:
        yield from self._judge_redirects(command, place)
        for name in command.assignments:
            if name in RISKY_VARIABLES or name.startswith(("GIT_", "LD_", "DYLD_")):
                yield needs_approval("variable", f"it sets {name}, which changes what programs do")
        if not command.words:
            return
        try:
            name = program_name(command)
            yield self._judge_program(command, name, place)
            for inner in unwrap(command, name):
                if inner.line is not None:
                    # A text for another shell: a line of its own, in whatever folder this command runs.
                    yield from self._judge_line(inner.line, _Place({(): place.folders(command.scope)}), depth + 1)
                else:
                    inner_command = replace(command, words=inner.words, assignments=inner.assignments, redirects=())
                    yield from self._judge_command(inner_command, place, depth)
        except NotUnderstood as why:
            yield _not_understood(why)

    def _judge_redirects(self, command: SimpleCommand, place: _Place) -> Iterator[Judgement]:
        for redirect in command.redirects:
            if redirect.operator in ("<<", "<<-", "<<<") or (
                redirect.operator in (">&", "<&") and not redirect.is_write
            ):
                continue
            yield self._paths.judge(redirect.target, place.folders(command.scope), is_write=redirect.is_write)

    def _judge_program(self, command: SimpleCommand, name: str, place: _Place) -> Judgement:
        # The order matters: the persona's deny and ask come first, then the walls that no rule opens (paths outside the
        # workspace), then the persona's allow, and last our own defaults for the program.
        rule = self._find_rule(command.words, name)
        if rule is not None and rule.verdict is not Verdict.ALLOW:
            return rule
        effect = classify(command, name, is_contained=self._is_contained)
        paths = strictest(self._judge_paths(command, name, place, is_write=effect.writes))
        if paths.verdict is Verdict.DENY:
            return paths  # no rule about commands lets one out of the workspace
        if rule is not None:
            return replace(rule, needs_network=effect.uses_network)
        if self._is_read_only and not self._is_contained and (effect.writes or name not in READERS):
            return denied("read-only", f"this phase only reads, and {name} may write")
        return strictest([effect.judgement, self._judge_network(effect, name), paths])

    def _judge_network(self, effect: ProgramEffect, name: str) -> Judgement:
        if not effect.uses_network or self._network is Verdict.ALLOW:
            return allowed(needs_network=effect.uses_network)
        reason = f"{name} uses the network"
        return (
            denied("network", reason)
            if self._network is Verdict.DENY
            else needs_approval("network", reason, needs_network=True)
        )

    def _find_rule(self, words: Sequence[Word], name: str) -> Judgement | None:
        """Find the persona's strictest rule about these words. One that could match counts, except to allow."""
        for verdict, pattern, parts in self._rules:
            is_allow = verdict is Verdict.ALLOW
            first = Word(name)
            # `git -C x push` is a push. To deny and to ask it is enough that a word may match, and options do not
            # hide what is done; to allow, the words must be exactly and certainly those of the rule.
            forms = ([first, *words[1:]], [first, *_without_options(words[1:])])
            if any(_matches(form, parts, is_certain=is_allow) for form in (forms[:1] if is_allow else forms)):
                reason = "" if is_allow else f"the persona's rule {pattern!r} is about it"
                return Judgement(verdict, f"persona {verdict.value} {pattern!r}", reason)
        return None

    def _judge_paths(self, command: SimpleCommand, name: str, place: _Place, *, is_write: bool) -> Iterator[Judgement]:
        cwds = place.folders(command.scope)
        if name in ("cd", "pushd", "popd"):
            yield self._change_folder(command, place)
            return
        if name in SPEAKERS:
            return  # its words are text, such as those of `echo`
        words = _path_words(command.words[1:], name)
        if name == "mkdir":
            place.made.update(cwd / word.text for cwd in cwds or () for word in words if word.is_fixed)
        for index, word in enumerate(words):
            only_last = WRITERS.get(name, False)  # `cp a b` reads a and writes b
            writes = (name in WRITERS or is_write) and (not only_last or index == len(words) - 1)
            is_path = word.text.startswith(("/", "./", "../")) or "/" in word.text or word.has_glob or writes
            if writes or is_path or not word.text.startswith("-"):
                yield self._paths.judge(word, cwds, is_write=writes)

    def _change_folder(self, command: SimpleCommand, place: _Place) -> Judgement:
        words = [word for word in command.words[1:] if word.text not in ("-P", "-L", "--")]
        cwds = place.folders(command.scope)
        if len(words) != 1 or not words[0].is_fixed or words[0].text == "-" or cwds is None:
            place.by_scope[command.scope] = None
            return needs_approval("unknown-folder", "where it goes is only known when it runs")
        targets = [Path(cwd / words[0].text).resolve() for cwd in cwds]
        is_sure = all(target.is_dir() or target in place.made for target in targets) and not words[0].has_glob
        # If it may fail, what follows may run where it was before.
        place.by_scope[command.scope] = targets if is_sure else [*cwds, *targets]
        return self._paths.judge(words[0], cwds, is_write=False)


def _not_understood(why: NotUnderstood) -> Judgement:
    return needs_approval("not-understood", f"the command line cannot be read: {why}")


def _matches(words: Sequence[Word], parts: Sequence[str], *, is_certain: bool) -> bool:
    if len(words) < len(parts):
        return False
    for word, part in zip(words, parts, strict=False):
        if not word.is_fixed or word.has_glob:
            if is_certain:
                return False
        elif not fnmatchcase(word.text, part):
            return False
    return True


def _without_options(words: Sequence[Word]) -> list[Word]:
    """Drop the options before the subcommand, with their values: `-C x` of `git -C x push`."""
    rest: list[Word] = []
    is_value = False
    for word in words:
        if word.text.startswith("-") and not rest:
            is_value = word.text in ("-C", "-c", "--git-dir", "--work-tree", "--prefix", "--cwd", "--manifest-path")
        elif is_value:
            is_value = False
        else:
            rest.append(word)
    return rest


def _path_words(words: Sequence[Word], name: str) -> list[Word]:
    """Return the words that may be paths; the values of `--option=value` and of `of=value` too."""
    if name == "find":
        end = next((at for at, word in enumerate(words) if word.text[:1] in ("-", "(", "!")), len(words))
        return list(words[:end])
    if name in PATTERN_FIRST:
        words = _without_pattern(words)
    found: list[Word] = []
    is_excluded = False
    for word in words:
        option, equals, value = word.text.partition("=")
        if "exclude" in option or "ignore" in option:
            is_excluded = not equals
        elif is_excluded:
            is_excluded = False
        elif name == "git" and ":" in word.text:
            found.append(replace(word, text=word.text.rpartition(":")[2]))
        elif equals and (option.startswith("-") or name == "dd") and value:
            found.append(replace(word, text=value))
        elif not word.text.startswith("-"):
            found.append(word)
    return found


def _without_pattern(words: Sequence[Word]) -> list[Word]:
    """Drop the pattern or expression of a search, which may look like a path."""
    rest: list[Word] = []
    has_pattern = False
    for index, word in enumerate(words):
        is_value = index > 0 and words[index - 1].text in ("-e", "--expression", "--regexp")
        has_pattern = has_pattern or is_value
        if not is_value and not word.text.startswith("-") and not has_pattern:
            has_pattern = not any(other.text in ("-e", "-f", "--file") for other in words)
            if has_pattern:
                continue
        if not is_value:
            rest.append(word)
    return rest
