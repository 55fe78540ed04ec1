"""The files of one attempt, kept under a ref of its own as a durable step."""

from typing import Any

from holdfast.engine.scope import RunScope, utc_now
from holdfast.runtime.durable import Step
from holdfast.workflow import Phase
from holdfast.workspace import snapshot


async def keep_files(scope: RunScope, phase: Phase, attempt: int, step: Step) -> dict[str, Any]:
    """Where the files are kept: ref, commit and tree, and what was left out of it."""

    def keep() -> dict[str, Any]:
        kept = snapshot(scope.place, phase.key, attempt, at=utc_now(), message=phase.title)
        left_out = [{"path": item.path, "reason": item.reason.value} for item in kept.left_out]
        return {"ref": kept.ref, "commit": kept.commit, "tree": kept.tree_id, "left_out": left_out}

    kept: dict[str, Any] = await scope.log.step(step, lambda: scope.on_disk(keep))
    return kept
