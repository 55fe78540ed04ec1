"""Which files of a workspace hold secrets, by their names: what an agent reads goes to whoever runs its model."""

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

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
    """Whether a file of this name usually holds a secret, whichever way its letters are written."""
    name = path.name.lower()
    if any(part.lower() in _FOLDERS for part in path.parts[:-1]):
        return True
    return any(fnmatchcase(name, pattern) for pattern in _NAMES) and not any(
        fnmatchcase(name, pattern) for pattern in _HARMLESS
    )


def find_secrets(root_dir: Path) -> Iterator[Path]:
    """The secret files in a workspace as it is now, installed packages left out."""
    for folder, names, files in os.walk(root_dir):
        names[:] = [name for name in names if name not in _NOT_SEARCHED]
        here = PurePosixPath(folder).relative_to(root_dir.as_posix())
        yield from (Path(folder, name) for name in files if is_secret(here / name))
