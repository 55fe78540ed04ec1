"""Which names a result may be brought to: git's rules for branches, and none of holdfast's own branches."""

import re

_OWN = re.compile(r"holdfast/|holdfast-[0-9a-f]{8}-[0-9a-f]{4}-")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_MAX_BYTES = 200  # of a part of it: git makes a file of that name with .lock behind it


def is_own_branch(name: str) -> bool:
    """Return true for a branch that a run works on: only its own run may write it, under the run's lock."""
    return _OWN.match(name) is not None


def find_name_fault(name: str) -> str | None:
    """Return why a name cannot be that of a branch to bring a result to; `None` if it can."""
    if is_own_branch(name):
        return "it is a branch that a run of holdfast works on"
    if name in ("HEAD", "@") or name.startswith("refs/"):
        return "it is another name for something else; name the branch itself, such as main"
    if not name or not name.isprintable() or _FORBIDDEN.search(name):
        return "it holds characters that git or a terminal does not take"
    if name[0] in "-/" or name[-1] in "./":
        return "it begins or ends with a character that git does not take there"
    for part in name.split("/"):
        if part.startswith(".") or part.endswith(".lock"):
            return "no part of it may begin with a dot or end with .lock"
        if len(part.encode(errors="replace")) > _MAX_BYTES:
            return f"no part of it may have more than {_MAX_BYTES} bytes"
    return None
