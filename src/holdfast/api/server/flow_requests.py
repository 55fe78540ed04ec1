"""What requests about flow runs come to: which there are, who drives them, a person's answer, an end."""

import hashlib
from collections.abc import Sequence
from typing import Any

from holdfast.api.flow_serialize import to_approval_id
from holdfast.api.schemas import Decide, Decided, ForkRun, ResumeRun, RetryRun, RunRef
from holdfast.api.server.server import Server
from holdfast.enums import RunStatus
from holdfast.errors import ApprovalNotFound, ApprovalStale, RunNotInState
from holdfast.fleet.explanation import explain_flow
from holdfast.flows.answers import cancel_flow, decide, resume_in_journal, retry_in_journal
from holdfast.flows.format_check import describe_newer
from holdfast.flows.service.flow_fork import fork_in_journal
from holdfast.flows.service.handle import FlowHandle
from holdfast.presentation.flow_run import view_flow
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import new_run_id
from holdfast.runtime.flow_rows import FlowRow


async def find_flow(server: Server, run_id: str) -> FlowRow | None:
    """Return the row of a flow run, or `None` if the id is of none."""
    return await server.journal.query(lambda store: flow_rows.read_row(store, run_id))


async def find_driven(server: Server, rows: Sequence[FlowRow]) -> set[str]:
    """Return which of these runs a living process drives."""
    return await server.journal.query(lambda store: store.find_owned([row.run_id for row in rows]))


async def explain(server: Server, row: FlowRow, *, is_driven: bool) -> str | None:
    """Tell why a flow run that should go on does not, by what this server knows or what the workers say."""
    if server.flows is not None:
        return (None if is_driven else describe_newer(row)) or server.find_reason(row.run_id)
    return await explain_flow(server.db, row, is_owned=is_driven)


async def refuse_flow(server: Server, run_id: str, verb: str) -> None:
    """Raise `RunNotInState` if the run is a flow's: it knows no such verb."""
    if await find_flow(server, run_id) is not None:
        raise RunNotInState(
            f"Run {run_id} is of a flow, which cannot {verb}.",
            hint="A flow goes on where its code is; it can be answered and cancelled, and retried if it failed.",
        )


async def resume_flow_run(server: Server, run_id: str, body: ResumeRun | None, *, by: str) -> RunRef:
    """Let a flow run go on that was paused because processes died with it. Raises `RunNotInState` if it was not."""
    _check_plain(run_id, body)
    await resume_in_journal(server.journal, run_id, by=by)
    return RunRef(run_id=run_id, state=RunStatus.PAUSED)


async def retry_flow_run(server: Server, run_id: str, body: RetryRun | None, *, by: str) -> RunRef:
    """Let a failed flow run go on at the step that failed. Raises `RunNotInState` if it has not failed."""
    _check_plain(run_id, body)
    await retry_in_journal(server.journal, run_id, by=by)
    return RunRef(run_id=run_id, state=RunStatus.PENDING)


def _check_plain(run_id: str, body: ResumeRun | RetryRun | None) -> None:
    if body is not None and body.model_fields_set:
        names = ", ".join(sorted(body.model_fields_set))
        raise RunNotInState(f"Run {run_id} is of a flow, and goes on as it is: it takes no {names}.")


async def fork_flow_run(server: Server, run_id: str, body: ForkRun, *, key: str | None) -> RunRef:
    """Start a new run with what a flow run has recorded before a step."""
    if names := body.model_fields_set - {"phase_key"}:
        raise RunNotInState(f"Run {run_id} is of a flow, and its fork takes no {', '.join(sorted(names))}.")
    digest = None if key is None else hashlib.sha256(f"{run_id}\0{body.phase_key}\0{key}".encode()).hexdigest()
    new_id = new_run_id() if digest is None else digest[:32]
    await fork_in_journal(server.journal, run_id, body.phase_key, new_id)
    return RunRef(run_id=new_id, state=RunStatus.PENDING)


async def answer_flow(server: Server, run_id: str, key: str, action: str, *, digest: str | None, **answer: Any) -> None:
    """Record an answer to what a flow asks; the first one counts. Raises what `holdfast.decide` raises.

    With a digest it counts only for what was shown under it: `ApprovalStale`.
    """
    if digest is not None:
        view = view_flow(run_id, await server.journal.read(run_id))
        digests = [question.digest for question in view.questions if question.key == key]
        if digests and digest not in digests:
            raise ApprovalStale(
                f"What {key!r} of run {run_id} shows has changed.", hint="Look at it again, then answer."
            )
    await decide(run_id, key, action, store=server.journal.store, **answer)


async def decide_by_id(server: Server, approval_id: str, body: Decide, *, by: str) -> Decided | None:
    """Answer the question of a flow that is called so; `None` if no flow of such a name is there."""
    place = await _find_place(server, approval_id)
    if place is None:
        return None
    for name in ("args", "artifact", "allow_kind"):
        if getattr(body, name):
            raise ApprovalNotFound(f"Approval {approval_id} is of a flow, and takes no {name}.")
    run_id, key = place
    action, more = body.action.value, {}
    if "result" in body.model_fields_set:
        action, more = "done", {"result": body.result}
    await answer_flow(server, run_id, key, action, digest=body.digest, comment=body.comment, by=by, **more)
    return Decided(approval_id=approval_id, run_id=run_id, state="decided", action=action)


async def _find_place(server: Server, approval_id: str) -> tuple[str, str] | None:
    """Find the run and the key that an id means: both may have colons in them."""
    for asking in await server.flow_questions.list_open():
        if to_approval_id(asking.row.run_id, asking.question.key) == approval_id:
            return asking.row.run_id, asking.question.key
    for at in (index for index in reversed(range(len(approval_id))) if approval_id[index] == ":"):
        if await find_flow(server, approval_id[:at]) is not None:
            return approval_id[:at], approval_id[at + 1 :]
    return None


async def cancel(server: Server, run_id: str, reason: str, *, by: str) -> RunRef:
    """Cancel a flow run: at once if nobody drives it, else as soon as its owner sees the request."""
    store = server.journal.store
    await cancel_flow(run_id, store=store, reason=reason, by=by)
    return RunRef(run_id=run_id, state=await FlowHandle[Any](run_id, store).status())
