"""The command lines that run unasked where no sandbox is in force: exact forms that only look at the workspace's files.

Nothing here is read as a shell reads it. A line is one program and plain words, without quotes, variables, patterns,
redirections or a second command; whatever holds another character is none of these forms. Each program has the options
that are listed and no others, and its paths are files that lie in the workspace now.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.agents.policy.file_policy import find_secrets
from holdfast.agents.policy.judgement import Judgement
from holdfast.persona import Verdict

_PLAIN = re.compile(r"[A-Za-z0-9_@+,./-]+(?: +[A-Za-z0-9_@+,./-]+)*")
_NUMBER = re.compile(r"[0-9]{1,6}")
# What a program may be given beside paths; `-n 5` is an option with its number.
_VIEWERS = {
    "cat": re.compile(r"-[nbsAET]{1,6}"),
    "head": re.compile(r"-[0-9]{1,6}|-[nc] [0-9]{1,6}"),
    "tail": re.compile(r"-[0-9]{1,6}|-[nc] [0-9]{1,6}"),
    "wc": re.compile(r"-[lwcm]{1,4}"),
}
_LS = re.compile(r"-[1aAlhtrSRdF]{1,10}")
_GIT_FORMS = (
    ("branch",),
    ("branch", "--show-current"),
    ("ls-files",),
    ("rev-parse", "HEAD"),
    ("rev-parse", "--short", "HEAD"),
    ("rev-parse", "--abbrev-ref", "HEAD"),
)
_GIT_STATUS = frozenset({"-s", "--short", "-b", "--branch", "--porcelain"})
_GIT_LOG = re.compile(r"--oneline|-[0-9]{1,6}|-n [0-9]{1,6}")
_GIT_NAMES = frozenset({"--stat", "--name-only", "--name-status"})
_GIT_DIFF = _GIT_NAMES | {"--cached", "--staged"}


class ReadOnlyForms:
    """Knows the forms for one workspace. `inside(path, is_write)` judges a path within it, by the persona's rules."""

    def __init__(self, root_dir: Path, *, inside: Callable[[str, bool], Judgement]) -> None:
        self._root = root_dir.resolve()
        self._inside = inside

    def has(self, line: str) -> bool:
        """Tell whether a line is one of the forms, by the files as they lie there now."""
        plain = line.strip(" \n")
        if not _PLAIN.fullmatch(plain) or not self._is_search_path_safe():
            return False
        name, *words = plain.split()
        if name == "pwd":
            return not words
        if name == "ls":
            paths = [word for word in words if not word.startswith("-")]
            options = [word for word in words if word.startswith("-")]
            return all(_LS.fullmatch(word) for word in options) and all(self._is_listed(path) for path in paths)
        if name in _VIEWERS:
            rest = _after_options(words, _VIEWERS[name])
            return bool(rest) and all(self._is_file(path) for path in rest)
        # Only where the worktree's own `.git` is: git takes any folder laid out as a repository for one.
        return name == "git" and bool(words) and (self._root / ".git").exists() and self._is_git_form(*words)

    def _is_git_form(self, verb: str, *words: str) -> bool:
        if (verb, *words) in _GIT_FORMS:
            return True
        if verb == "status":
            return set(words) <= _GIT_STATUS
        if verb == "log":
            return not _after_options(words, _GIT_LOG)
        if verb != "diff":
            return False
        rest = list(words)
        options = [rest.pop(0) for word in words if rest and rest[0] in _GIT_DIFF]
        paths = rest[1:] if rest[:1] == ["--"] else rest
        if paths or rest:
            return bool(paths) and all(self._is_file(path) for path in paths)
        return bool(_GIT_NAMES & set(options)) or next(find_secrets(self._root), None) is None

    def _is_file(self, word: str) -> bool:
        path = self._find(word)
        return path is not None and path.is_file()

    def _is_listed(self, word: str) -> bool:
        path = self._find(word)
        return path is not None and (path.is_dir() or path.is_file())

    def _find(self, word: str) -> Path | None:
        """Return where a word leads, if that is in the workspace, however it is written, and may be read."""
        if word.startswith("-") or ".." in word.split("/"):
            return None
        path = Path(os.path.normpath(self._root / word))
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        if not (path.is_relative_to(self._root) and real.is_relative_to(self._root)):
            return None
        names = {"/" if each == self._root else f"/{each.relative_to(self._root).as_posix()}" for each in (path, real)}
        return real if all(self._inside(name, False).verdict is Verdict.ALLOW for name in names) else None

    def _is_search_path_safe(self) -> bool:
        """Tell whether programs are looked for in places only where the agent cannot have put one of its own."""
        folders = os.environ.get("PATH", "").split(os.pathsep)
        return all(Path(folder).is_absolute() and not self._is_own(Path(folder)) for folder in folders)

    def _is_own(self, folder: Path) -> bool:
        return folder.is_relative_to(self._root) or folder.resolve().is_relative_to(self._root)


def _after_options(words: Sequence[str], options: re.Pattern[str]) -> list[str]:
    """Return what follows the leading words that are options, an option with its number counting as one."""
    rest = list(words)
    while rest:
        if options.fullmatch(rest[0]):
            del rest[:1]
        elif len(rest) > 1 and _NUMBER.fullmatch(rest[1]) and options.fullmatch(f"{rest[0]} {rest[1]}"):
            del rest[:2]
        else:
            break
    return rest
