"""Where keys come from: a variable of the environment or, by the same name, the system's keyring; never a file.

It is the `keyring` package, an extra, and is asked only for variables that a persona names and that are not set.
"""

import importlib
import os
from collections.abc import Mapping

KEYRING_SERVICE = "holdfast"


def find_key(variable: str, environ: Mapping[str, str] | None = None) -> str:
    """Find the key by this name, without white space around it; an empty text where there is none.

    The keyring is asked each time, so that a key stored while a server runs is found.
    """
    environ = os.environ if environ is None else environ
    return environ.get(variable, "").strip() or _find_in_keyring(variable)


def _find_in_keyring(variable: str) -> str:
    try:
        keyring = importlib.import_module("keyring")
        return str(keyring.get_password(KEYRING_SERVICE, variable) or "").strip()
    except Exception:  # not installed, locked, or there is no keyring on this machine: a missing key, as far as we go
        return ""
