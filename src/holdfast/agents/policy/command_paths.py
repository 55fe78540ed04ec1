"""Where a command's paths lead: into the workspace, to what every program may read, or out of it."""

import glob
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from holdfast.agents.policy.file_policy import is_secret
from holdfast.agents.policy.judgement import Judgement, allowed, denied, needs_approval
from holdfast.agents.policy.shell_parser import Word

JudgeInside = Callable[[str, bool], Judgement]
_DEVICES = frozenset(
    {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/urandom", "/dev/random"}
)
_SYSTEM = tuple(map(PurePosixPath, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix", "/etc")))
_SYSTEM_SECRETS = tuple(
    map(PurePosixPath, ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl/private"))
)
_PROC = frozenset({"/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg", "/proc/uptime", "/proc/stat"})
_TMP = PurePosixPath("/tmp")  # noqa: S108 - where programs put what they will not miss
_MAX_MATCHES = 2000


class PathJudge:
    """Judges the paths in commands. `inside(path, is_write)` says what holds for a path within the workspace."""

    def __init__(self, root_dir: Path, *, hidden: tuple[Path, ...], home: str, inside: JudgeInside) -> None:
        self._root = root_dir.resolve()
        self._hidden = tuple(path.resolve() for path in hidden)
        self._home = PurePosixPath(Path(home).resolve()) if home else None
        self._inside = inside

    def judge(self, word: Word, cwds: list[Path] | None, *, is_write: bool) -> Judgement:
        """Judge a word that may be a path, seen from each folder that may be the current one.

        `cwds` of `None`: the current folder is not known.
        """
        if not word.is_fixed:
            return (
                needs_approval("unknown-path", "where it writes is only known when it runs") if is_write else allowed()
            )
        if word.text in _DEVICES or not word.text:
            return allowed()
        if cwds is None and not word.text.startswith("/"):
            return needs_approval("unknown-folder", f"from where {word.text!r} is meant is only known when it runs")
        found = [
            self._judge_one(path, word.text, is_write=is_write) for path in self._targets(word, cwds or [self._root])
        ]
        return max(found, key=lambda judgement: ["allow", "ask", "deny"].index(judgement.verdict), default=allowed())

    def is_inside(self, path: Path) -> bool:
        return path.is_relative_to(self._root)

    def _targets(self, word: Word, cwds: list[Path]) -> list[Path]:
        paths = [Path(os.path.normpath(cwd / word.text)) for cwd in cwds]
        if word.has_glob:
            # The pattern itself counts too: it may match by the time the command runs.
            for cwd in cwds:
                matches = glob.iglob(word.text, root_dir=cwd)  # noqa: PTH207
                paths += [cwd / match for match, _ in zip(matches, range(_MAX_MATCHES), strict=False)]
        return paths

    def _judge_one(self, path: Path, written: str, *, is_write: bool) -> Judgement:
        try:
            real = path.resolve()
        except (OSError, RuntimeError):
            return denied("path-link", f"{written!r} is a link that leads nowhere")
        if real == self._root:
            return self._inside("/", False)  # what is done to the folder itself depends on the program
        if self.is_inside(real):
            relative = path.relative_to(self._root) if self.is_inside(path) else real.relative_to(self._root)
            return self._inside(f"/{relative.as_posix()}", is_write)
        if self.is_inside(path):
            return denied("path-outside", f"{written!r} is a link that leaves the workspace")
        return self._judge_outside(PurePosixPath(real), written, is_write=is_write, exists=os.path.lexists(real))

    def _judge_outside(self, path: PurePosixPath, written: str, *, is_write: bool, exists: bool) -> Judgement:
        if any(Path(path).is_relative_to(hidden) for hidden in self._hidden):
            return denied("path-outside", f"{written!r} is not the agent's")
        is_home = self._home is not None and path.is_relative_to(self._home)
        if path.is_relative_to(_TMP) and path != _TMP and not is_home:
            return allowed("path-tmp")
        if is_write:
            return denied("path-outside", f"{written!r} is outside the workspace")
        if path.is_relative_to("/proc") or path.is_relative_to("/sys"):
            return (
                allowed("path-system") if str(path) in _PROC else denied("path-outside", f"{written!r} is about others")
            )
        if any(path.is_relative_to(place) for place in _SYSTEM_SECRETS) or (is_secret(path) and exists):
            return denied("secret", f"{written!r} holds secrets")
        if any(path.is_relative_to(place) for place in _SYSTEM) or not exists:
            return allowed("path-system")  # what is not there cannot be read: a pattern, an address, a name
        return needs_approval("path-outside", f"{written!r} is outside the workspace")
