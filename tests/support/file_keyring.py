"""A keyring for tests, kept in the file that `TEST_KEYRING_FILE` names: a real backend of the `keyring` package.

A program gets it by `PYTHON_KEYRING_BACKEND=tests.support.file_keyring.FileKeyring`, as any user chooses theirs.
"""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend

VARIABLE = "TEST_KEYRING_FILE"


class FileKeyring(KeyringBackend):
    priority = 0.1  # type: ignore[assignment]  # the package declares a property of the class; a number is what it says

    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path.write_text(json.dumps({**self._read(), f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        self._path.write_text(json.dumps({k: v for k, v in self._read().items() if k != f"{service}/{username}"}))

    @property
    def _path(self) -> Path:
        return Path(os.environ[VARIABLE])

    def _read(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        entries: dict[str, str] = json.loads(self._path.read_text())
        return entries
