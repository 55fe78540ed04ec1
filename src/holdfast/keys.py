"""Where keys come from: a variable of the environment or, by the same name, the system's keyring; never a file.

It is the `keyring` package, an extra, and is asked only for variables that a persona names and that are not set.
"""

import functools
import importlib
import os
import re
import sys
from collections.abc import Mapping

KEYRING_SERVICE = "holdfast"
_NAMED_LIKE_A_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_\d+)?$", re.IGNORECASE)
_PR_SET_DUMPABLE = 4


@functools.lru_cache(maxsize=1000)  # every start of a program asks for all variables
def is_secret_name(variable: str) -> bool:
    """Tell whether a variable is named as those that hold secrets are."""
    return _NAMED_LIKE_A_SECRET.search(variable) is not None


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a program that needs no key: nothing named like a secret, none of our settings.

    A setting may hold a password, such as that of the database.
    """
    return {
        name: value
        for name, value in environ.items()
        if not is_secret_name(name) and not name.startswith(("HOLDFAST_", "PGPASS"))
    }


def hide_environment() -> bool:
    """Keep other processes of the same user from reading this one's variables and memory; whether that is so then.

    A process that calls models has their keys. On Linux its folder in `/proc` belongs to root after this, debuggers of
    the same user cannot attach, and a crash leaves no core. Programs that it starts are as they were.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


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
