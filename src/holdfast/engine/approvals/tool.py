"""Approvals of single tool calls: asked durably before the call, bound to its name and arguments, answered once."""

import uuid
from typing import Any

from holdfast.agents.calls.adapters import describe_args
from holdfast.agents.calls.permission import ApprovalAnswer, digest_of
from holdfast.agents.policy.judgement import Judgement
from holdfast.agents.tools.rules import ToolCall
from holdfast.engine.approvals.decisions import check_action, decision
from holdfast.engine.approvals.phase import ApprovalPending
from holdfast.engine.scope import ApprovalRequest, RunScope
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import Nondeterminism, RowRefused
from holdfast.persistence.statements import insert, now_text
from holdfast.runtime.durable import Stopped
from holdfast.runtime.events import EventKind
from holdfast.runtime.records import Record
from holdfast.workflow import Phase


class PhaseToolApprover:
    """Asks a person for calls of one attempt of one phase. The phase goes on where it stands; only the run pauses."""

    def __init__(self, scope: RunScope, phase: Phase, attempt: int) -> None:
        self._scope = scope
        self._phase = phase
        self._attempt = attempt

    async def ask(self, key: str, lane_id: str, call: ToolCall, judgement: Judgement) -> ApprovalAnswer:
        """Return the answer for this call. Raises `ApprovalPending` while there is none and nobody to ask here."""
        approval_key = f"{key}/approval"
        record = self._scope.log.records.by_key.get(("approval", approval_key))
        if record is None:
            request = self._to_request(call, judgement, uuid.uuid4().hex)
            # crash: before this nobody was asked, after it the question stands; the call is made in neither case.
            await self._request(approval_key, lane_id, request)
        else:
            request = self._to_request(call, judgement, str(record.result))
            _check_same(record, request)
            if record.answer is not None:
                return _to_answer(record.answer, request.approval_id)
        return await self._decide_here(approval_key, lane_id, request)

    def find_answer(self, key: str) -> ApprovalAnswer | None:
        record = self._scope.log.records.by_key.get(("approval", f"{key}/approval"))
        if record is None or record.answer is None:
            return None
        return _to_answer(record.answer, str(record.result))

    def was_asked(self, key: str) -> bool:
        return ("approval", f"{key}/approval") in self._scope.log.records.by_key

    async def _request(self, approval_key: str, lane_id: str, request: ApprovalRequest) -> None:
        event = self._scope.log.event(
            EventKind.HUMAN_APPROVAL_REQUESTED,
            lane_id,
            key=approval_key,
            about="tool",
            approval_id=request.approval_id,
            phase=request.phase_key,
            attempt=request.attempt,
            risk=request.risk,
            digest=request.digest,
            fingerprint={"digest": request.digest},
            show=dict(request.content),
        )
        row = {
            "id": request.approval_id,
            "run_id": request.run_id,
            "phase_key": request.phase_key,
            "attempt": request.attempt,
            "about": "tool",
            "state": "pending",
            "digest": request.digest,
            "shown": dict(request.content),
            "requested_at": now_text(),
        }
        await self._scope.log.append(event, rows=[insert("approvals", row)])

    async def _decide_here(self, approval_key: str, lane_id: str, request: ApprovalRequest) -> ApprovalAnswer:
        callback = self._scope.approval_callback
        if callback is None:
            raise ApprovalPending(approval_key)
        try:
            action = check_action(await callback(request))
        except Exception as error:
            raise Stopped(error) from error  # nobody has decided: the question stands, and the run waits
        by = str(getattr(callback, "by", "callback"))
        event, rows = decision(request.run_id, request.approval_id, approval_key, lane_id, action, by=by)
        try:
            await self._scope.log.append(event, rows=rows)
        except RowRefused:
            await self._scope.log.catch_up()
            record = self._scope.log.records.by_key.get(("approval", approval_key))
            if record is None or record.answer is None:
                raise
            return _to_answer(record.answer, request.approval_id)  # someone was faster
        return ApprovalAnswer(action, "", by, request.approval_id)

    def _to_request(self, call: ToolCall, judgement: Judgement, approval_id: str) -> ApprovalRequest:
        content = {
            "question": f"May the agent call {call.name}? It was asked because {judgement.reason}.",
            "tool": call.name,
            "args": describe_args(call),
            "policy": judgement.to_dict(),
        }
        return ApprovalRequest(
            approval_id=approval_id,
            run_id=self._scope.run_id,
            phase_key=self._phase.key,
            title=f"{self._phase.title or self._phase.key}: {call.name}",
            risk=self._phase.risk.value,
            attempt=self._attempt,
            digest=digest_of(call),
            content=content,
        )


def _check_same(record: Record, request: ApprovalRequest) -> None:
    if record.fingerprint.get("digest") != request.digest:
        raise Stopped(Nondeterminism(f"Approval {request.approval_id} is about another call than is made now."))


def _to_answer(stored: Any, approval_id: str) -> ApprovalAnswer:
    action = ApprovalDecisionAction(stored["action"])
    args = stored.get("args")
    return ApprovalAnswer(
        action, stored.get("comment", ""), stored.get("by", ""), approval_id, args if isinstance(args, dict) else None
    )
