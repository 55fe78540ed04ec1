"""Which paths the file tools of a phase may touch. The reasons go to the agent, so they say what to do instead."""

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

# Where the framework keeps what is too long for a message; outside the workspace, see `build`.
SCRATCH_ROUTE = "/.holdfast-scratch/"

WRITING_TOOLS = frozenset({"write_file", "edit_file", "delete"})
PATH_ARGUMENTS = ("file_path", "path")


def to_relative(root_dir: Path, path: str, real_root: Path | None = None) -> PurePosixPath:
    """Turn the path of a tool call into one relative to the workspace.

    Paths begin at the workspace's root, with or without a slash. One that begins with the workspace's own place on the
    machine, as agents find it in outputs, means the same file. Whoever knows where links on the way to the workspace
    lead passes it as `real_root`.
    """
    for prefix in (root_dir.absolute().as_posix(), (real_root or root_dir.resolve()).as_posix()):
        if path == prefix or path.startswith(f"{prefix}/"):
            path = path[len(prefix) :]
            break
    return PurePosixPath(path.lstrip("/"))


class FilePolicy:
    """Decides on a tool call by the paths it names: `policy(name, args)` is the reason of a denial, or `None`.

    With `only_write`, a path relative to the workspace, nothing else may be written: that is a read-only phase, whose
    one product is its artifact.
    """

    def __init__(self, root_dir: Path, *, only_write: str | None = None) -> None:
        self._root_dir = root_dir
        self._root = root_dir.resolve()
        self._only_write = None if only_write is None else PurePosixPath(only_write.lstrip("/"))

    def __call__(self, name: str, args: Mapping[str, Any]) -> str | None:
        for argument in PATH_ARGUMENTS:
            path = args.get(argument)
            if isinstance(path, str):
                reason = self.why_not(path, is_write=name in WRITING_TOOLS)
                if reason is not None:
                    return reason
        return None

    def why_not(self, path: str, *, is_write: bool) -> str | None:
        if "\0" in path or ".." in PurePosixPath(path).parts or path.startswith("~"):
            return f"{path!r} leaves the workspace; paths begin at its root, such as /README.md."
        if (path + "/").startswith(SCRATCH_ROUTE):
            return f"{path!r} cannot be written; it holds long outputs to read." if is_write else None
        relative = to_relative(self._root_dir, path, self._root)
        try:
            target = (self._root / relative).resolve()
        except (OSError, RuntimeError):
            return f"{path!r} is a link that leads nowhere."
        if not target.is_relative_to(self._root):
            return f"{path!r} is a link that leaves the workspace."
        parts = (*relative.parts, *target.relative_to(self._root).parts)
        if any(part.lower() == ".git" for part in parts):
            return f"{path!r} belongs to git; commits are made by the engine, not by the agent."
        return self._why_not_write(path, relative, target) if is_write else None

    def _why_not_write(self, path: str, relative: PurePosixPath, target: Path) -> str | None:
        if target == self._root:
            return f"{path!r} is the workspace itself."
        if self._only_write is not None and relative != self._only_write:
            return f"this phase only reads; of all files it may write {self._only_write} alone."
        return None


_NAMES = (
    *(".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials"),
    *("credentials", "credentials.json", "*credentials.json", "*credentials.toml", ".htpasswd", "*.tfstate"),
    *("secrets.y*ml", "secrets.json", "secrets.toml", "service-account*.json", "service_account*.json", ".vault-token"),
)
_HARMLESS = ("*.example", "*.sample", "*.template", "*.dist", "*.pub", "example.env", "sample.env", "template.env")
_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"})
# Installed packages bring keys for their own tests along; nobody's secret, and far too many to look through.
_NOT_SEARCHED = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", ".tox", "target"})


def is_secret(path: PurePosixPath) -> bool:
    """Tell whether a file of this name usually holds a secret, in upper or lower case."""
    name = path.name.lower()
    if any(part.lower() in _FOLDERS for part in path.parts[:-1]):
        return True
    return any(fnmatchcase(name, pattern) for pattern in _NAMES) and not any(
        fnmatchcase(name, pattern) for pattern in _HARMLESS
    )


def find_secrets(root_dir: Path) -> Iterator[Path]:
    """Find the secret files in a workspace as it is now, installed packages left out."""
    for folder, names, files in os.walk(root_dir):
        names[:] = [name for name in names if name not in _NOT_SEARCHED]
        here = PurePosixPath(folder).relative_to(root_dir.as_posix())
        yield from (Path(folder, name) for name in files if is_secret(here / name))
