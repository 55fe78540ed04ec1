"""Which tool calls of a phase are allowed, asked or denied: the persona's rules over safe defaults.

What keeps agents in their workspace (`FilePolicy`) holds whatever a persona says. Which tools an agent has at all is
settled when it is built.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.agents.policy.command_paths import PathJudge
from holdfast.agents.policy.command_policy import NO_SANDBOX, CommandPolicy
from holdfast.agents.policy.file_policy import (
    PATH_ARGUMENTS,
    SCRATCH_ROUTE,
    WRITING_TOOLS,
    FilePolicy,
    is_secret,
    to_relative,
)
from holdfast.agents.policy.judgement import Judgement, allowed, denied, needs_approval, strictest
from holdfast.agents.policy.read_only_forms import ReadOnlyForms
from holdfast.agents.policy.web_policy import WEB_TOOLS, judge_web
from holdfast.persona import PathRules, Permissions, Verdict

CODING_AGENT = "agent"
"""The one tool of a persona that is a command-line coding agent: the program as a whole."""


class ToolPolicy:
    """`policy(name, args)` judges a call. `only_write` is the one path a read-only phase may write.

    `is_contained` says whether commands run in a sandbox, and `is_unsandboxed` that a person chose to go without one;
    where neither holds, next to nothing runs unasked. `is_switched_off`: the persona of a coding agent wants no sandbox
    around it. `hidden` holds folders that no command may name.
    """

    def __init__(
        self,
        root_dir: Path,
        permissions: Permissions,
        *,
        only_write: str | None = None,
        is_contained: bool = False,
        is_unsandboxed: bool = False,
        is_switched_off: bool = False,
        hidden: tuple[Path, ...] = (),
        home: str = "",
    ) -> None:
        self._root_dir = root_dir
        self._root = root_dir.resolve()
        self._permissions = permissions
        self._files = FilePolicy(root_dir, only_write=only_write)
        self._commands = CommandPolicy(
            PathJudge(root_dir, hidden=hidden, home=home, inside=self.judge_path),
            root_dir=root_dir,
            home=home,
            rules=permissions.commands,
            network=permissions.network,
            is_contained=is_contained,
            is_read_only=only_write is not None,
            forms=None if is_contained or is_unsandboxed else ReadOnlyForms(root_dir, inside=self.judge_path),
        )
        self._must_ask_program = not is_unsandboxed and (is_switched_off or not is_contained)
        self._cause = "its persona switches the sandbox off, so" if is_switched_off else NO_SANDBOX

    def __call__(self, name: str, args: Mapping[str, Any]) -> Judgement:
        if name == "execute":
            line = args.get("command")
            return self._commands.judge(line) if isinstance(line, str) else allowed("no-command")
        if name in WEB_TOOLS:
            return judge_web(name, args, self._permissions)
        if name == CODING_AGENT and self._must_ask_program:
            program = next(iter(args.get("argv") or ()), "its program")
            return needs_approval(
                "no-sandbox", f"{self._cause} {program} could do all that you can", needs_network=True
            )
        paths = [args[argument] for argument in PATH_ARGUMENTS if isinstance(args.get(argument), str)]
        return strictest(self.judge_path(path, name in WRITING_TOOLS) for path in paths)

    def judge_path(self, path: str, is_write: bool) -> Judgement:
        reason = self._files.why_not(path, is_write=is_write)
        if reason is not None:
            return denied("workspace", reason)
        if path.startswith(SCRATCH_ROUTE):
            return allowed("scratch")
        relative = to_relative(self._root_dir, path, self._root)
        rules = self._permissions.write if is_write else self._permissions.read
        found = _find_rule(relative, rules, "write" if is_write else "read")
        if found is not None:
            return found
        if not is_secret(relative) and not is_secret(self._find_target(relative)):
            return allowed()
        reason = f"{path!r} looks like it holds secrets."
        return (
            needs_approval("secret", reason)
            if is_write
            else denied("secret", f"{reason} Ask for what you need to know of it.")
        )

    def _find_target(self, relative: PurePosixPath) -> PurePosixPath:
        """Return where a path in the workspace leads: a link of another name to a secret shows the secret."""
        return PurePosixPath((self._root / relative).resolve().relative_to(self._root))

    def is_readable_secret(self, path: Path) -> bool:
        """Tell whether the persona's own rules let its agent read a file that looks like a secret."""
        relative = path.relative_to(self._root_dir) if path.is_relative_to(self._root_dir) else path
        found = _find_rule(PurePosixPath(relative), self._permissions.read, "read")
        return found is not None and found.verdict is Verdict.ALLOW


def _find_rule(path: PurePosixPath, rules: PathRules, what: str) -> Judgement | None:
    lists = ((Verdict.DENY, rules.deny), (Verdict.ASK, rules.ask), (Verdict.ALLOW, rules.allow))
    for verdict, patterns in lists:
        for pattern in patterns:
            if _matches(path, pattern):
                reason = "" if verdict is Verdict.ALLOW else f"the persona's rule {pattern!r} is about '{path}'."
                return Judgement(verdict, f"persona {what} {verdict.value} {pattern!r}", reason)
    return None


def _matches(path: PurePosixPath, pattern: str) -> bool:
    """Match as ignore files do: a pattern without a slash is a name at any depth, `/**` means everything below."""
    text = path.as_posix()
    if "/" not in pattern:
        return any(fnmatchcase(part, pattern) for part in path.parts)
    if pattern.endswith("/**") and (text == pattern[:-3] or fnmatchcase(text, pattern[:-3])):
        return True
    return fnmatchcase(text, pattern) or (pattern.startswith("**/") and fnmatchcase(text, pattern[3:]))
