"""Where a run's objects are kept in a repository: the names of its branch and of its refs.

    refs/heads/holdfast/<run>                  the run's branch
    refs/holdfast/<run>/<phase>/<attempt>      the snapshot of a phase attempt
    refs/holdfast/<run>/@base                  the commit the run started from, whatever becomes of its branch
    refs/holdfast/<run>/@rescue/<tree>         what lay in the worktree before it was overwritten or removed
    refs/holdfast/<run>/@replaced/<commit>     a snapshot whose name was needed for a later one
    refs/holdfast/<run>/@results/<branch>      the commits that `merge` brings to a branch of the user's, by its hash
    refs/holdfast/<run>/@squashed/<digest>     the one commit that `merge --squash` brings to a branch
    refs/holdfast/<run>/@setup/<round>         the files after set-up, on top of the files before it

An encoded component never holds an `@`, so a phase cannot be mistaken for one of these.
"""

import hashlib
import re

_OWN = re.compile(r"holdfast/|holdfast-[0-9a-f]{8}-[0-9a-f]{4}-")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_MAX_BYTES = 200  # of a part of it: git makes a file of that name with .lock behind it
_PLAIN = re.compile(rb"[A-Za-z0-9_]|(?<=[A-Za-z0-9_])[-.](?=[A-Za-z0-9_])")
_LONGEST = 120


def to_component(name: str) -> str:
    """Turn a name into one component of a ref or path: different names differ, a plain name stays itself."""
    raw = name.encode("utf-8", "surrogateescape")
    plain = {match.start() for match in _PLAIN.finditer(raw)}
    encoded = "".join(chr(byte) if at in plain else f"%{byte:02X}" for at, byte in enumerate(raw)) or "%"
    if encoded.endswith(".lock"):
        encoded = encoded.removesuffix(".lock") + "%2Elock"
    if len(encoded) > _LONGEST:
        encoded = f"{encoded[: _LONGEST - 33]}%{hashlib.sha256(raw).hexdigest()[:32]}"
    return encoded


def run_refs(run_id: str) -> str:
    return f"refs/holdfast/{to_component(run_id)}"


def base_ref(run_id: str) -> str:
    return f"{run_refs(run_id)}/@base"


def result_refs(run_id: str) -> str:
    return f"{run_refs(run_id)}/@results"


def result_ref(run_id: str, branch: str) -> str:
    return f"{result_refs(run_id)}/{hashlib.sha256(branch.encode(errors='replace')).hexdigest()[:20]}"


def squash_ref(run_id: str, digest: str) -> str:
    return f"{run_refs(run_id)}/@squashed/{digest[:20]}"


def setup_refs(run_id: str) -> str:
    return f"{run_refs(run_id)}/@setup"


def rescue_ref(run_id: str, tree_id: str) -> str:
    return f"{run_refs(run_id)}/@rescue/{tree_id[:20]}"


def replaced_ref(run_id: str, commit: str) -> str:
    return f"{run_refs(run_id)}/@replaced/{commit[:20]}"


def snapshot_ref(run_id: str, phase_key: str, attempt: int) -> str:
    return f"{run_refs(run_id)}/{to_component(phase_key)}/{attempt}"


def branch_names(run_id: str) -> tuple[str, str]:
    """Return the name of the run's branch, and the one to use where a branch called `holdfast` stands in its way."""
    component = to_component(run_id)
    return f"holdfast/{component}", f"holdfast-{component}"


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
