"""Approvals of single tool calls: asked durably before the call, bound to its name and arguments, answered once."""

import uuid
from dataclasses import replace
from typing import Any

from holdfast.agents.calls.conversion import describe_for_person, is_described_whole
from holdfast.agents.calls.permission import ApprovalAnswer, digest_of
from holdfast.agents.policy.approval_mode import describe_kind, kind_of
from holdfast.agents.policy.judgement import Judgement
from holdfast.agents.tools.rules import ToolCall
from holdfast.engine.approvals.decisions import check_action
from holdfast.engine.approvals.phase import ApprovalPending
from holdfast.engine.approvals.questions import ApprovalDecision, ToolQuestion
from holdfast.engine.scope import RunScope
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import Nondeterminism, RowRefused
from holdfast.runtime.records import Record
from holdfast.runtime.run_fold.call_line import ask_about_call
from holdfast.runtime.step import Stopped
from holdfast.workflow import Phase


class PhaseToolApprover:
    """Asks a person for calls of one attempt of one phase. The phase goes on where it stands; only the run pauses."""

    def __init__(self, scope: RunScope, phase: Phase, attempt: int) -> None:
        self._scope = scope
        self._phase = phase
        self._attempt = attempt

    async def ask(self, key: str, lane_id: str, call: ToolCall, judgement: Judgement) -> ApprovalAnswer:
        """Return the answer for this call. Raises `ApprovalPending` while there is none and nobody to ask here."""
        question = self._to_question(f"{key}/approval", lane_id, call, judgement)
        record = self._scope.log.records.by_key.get(("approval", question.key))
        if record is None and (grant := self._find_grant(question.content.get("kind"))) is not None:
            return grant
        if record is None:
            # crash: before this nobody was asked, after it the question stands; the call is made in neither case.
            await self._scope.log.append(question.to_requested_event(), rows=[question.to_row()])
        else:
            question = replace(question, approval_id=str(record.result))
            _check_same(record, question)
            if record.answer is not None:
                return _to_answer(record.answer, question.approval_id)
        return await self._decide_here(question)

    def find_answer(self, key: str) -> ApprovalAnswer | None:
        record = self._scope.log.records.by_key.get(("approval", f"{key}/approval"))
        if record is None or record.answer is None:
            return None
        return _to_answer(record.answer, str(record.result))

    def has_question(self, key: str) -> bool:
        return ("approval", f"{key}/approval") in self._scope.log.records.by_key

    def _find_grant(self, kind: Any) -> ApprovalAnswer | None:
        """Find the approval of an earlier call by which a person allowed all of this kind in this run."""
        for record in self._scope.log.records.by_key.values():
            answer = record.answer if record.type == "approval" else None
            if kind is not None and answer is not None and answer.get("allowed_kind") == kind:
                return ApprovalAnswer(ApprovalDecisionAction.APPROVE, "", answer.get("by", ""), str(record.result))
        return None

    async def _decide_here(self, question: ToolQuestion) -> ApprovalAnswer:
        callback = self._scope.approval_callback
        if callback is None:
            raise ApprovalPending(question.key)
        try:
            action = check_action(await callback(question.to_request()))
        except Exception as error:
            raise Stopped(error) from error  # nobody has decided: the question stands, and the run waits
        answer = ApprovalDecision(action, by=str(getattr(callback, "by", "callback")))
        try:
            await self._scope.log.append(question.to_event(answer), rows=[question.to_answer_row(answer)])
        except RowRefused:
            await self._scope.log.catch_up()
            record = self._scope.log.records.by_key.get(("approval", question.key))
            if record is None or record.answer is None:
                raise
            return _to_answer(record.answer, question.approval_id)  # someone was faster
        return ApprovalAnswer(action, "", answer.by, question.approval_id)

    def _to_question(self, key: str, lane_id: str, call: ToolCall, judgement: Judgement) -> ToolQuestion:
        """Return the question as it would be put now."""
        described = {"tool": call.name, "caller": call.caller, "args": describe_for_person(call)}
        content: dict[str, Any] = {
            "question": f"{ask_about_call(described)} It was asked because {judgement.reason}.",
            **described,
            "is_whole": is_described_whole(call),
            "folder": str(self._scope.place.root),
            "policy": judgement.to_dict(),
        }
        if (kind := kind_of(call.name, call.args, judgement.rule)) is not None:
            content |= {"kind": kind, "kind_text": describe_kind(kind)}
        return ToolQuestion(
            approval_id=uuid.uuid4().hex,
            run_id=self._scope.run_id,
            phase_key=self._phase.key,
            attempt=self._attempt,
            lane_id=lane_id,
            key=key,
            digest=digest_of(call),
            content=content,
            title=f"{self._phase.title or self._phase.key}: {call.name}",
            risk=self._phase.risk.value,
        )


def _check_same(record: Record, question: ToolQuestion) -> None:
    if record.fingerprint.get("digest") != question.digest:
        raise Stopped(Nondeterminism(f"Approval {question.approval_id} is about another call than is made now."))


def _to_answer(stored: Any, approval_id: str) -> ApprovalAnswer:
    action = ApprovalDecisionAction(stored["action"])
    args = stored.get("args")
    return ApprovalAnswer(
        action, stored.get("comment", ""), stored.get("by", ""), approval_id, args if isinstance(args, dict) else None
    )
