"""Approvals of a phase's result: asked durably, bound to the digest of their content, answered once.

Rule: an answer counts for what the person saw. If artifact, files or template are no longer that, it is stale, and they
are asked again with the difference.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.engine.approvals.decisions import BY, check_action, find_deadline, is_over, seconds_left, to_comment
from holdfast.engine.approvals.questions import ApprovalDecision, PhaseQuestion, Subject
from holdfast.engine.phase.artifact import hash_artifact
from holdfast.engine.scope import ApprovalCallback, ApprovalRequest, RunScope, utc_now
from holdfast.enums import ApprovalDecisionAction, PauseReason
from holdfast.errors import RowRefused, WorkspaceError
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import find_approval
from holdfast.persistence.statements import await_approval, supersede_approval
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import EventKind
from holdfast.runtime.records import Record
from holdfast.runtime.step import Stopped, Suspended
from holdfast.workflow import Phase
from holdfast.workspace import diff


class ApprovalPending(Suspended):
    """A person must look at a phase's result first, or at a tool call."""

    reason = PauseReason.APPROVAL


class PhaseApproval:
    """The question after one attempt of one phase."""

    def __init__(self, scope: RunScope, phase: Phase, attempt: int, lane_id: str) -> None:
        self._scope = scope
        self._phase = phase
        self._attempt = attempt
        self._lane_id = lane_id

    async def get(self, subject: Subject, content: Mapping[str, Any]) -> ApprovalDecision:
        """Return the answer to this content. Raises `ApprovalPending` while there is none and nobody to ask here."""
        number = 0
        before: Record | None = None
        while True:
            number += 1
            key = f"{self._lane_id}/approval" + (f"#{number}" if number > 1 else "")
            question = self._to_question(key, subject, content)
            record = self._scope.log.records.by_key.get(("approval", key))
            if record is None:
                return await self._ask(question, before)
            if _is_about(record, subject):
                if record.answer is not None:
                    return _to_decision(record.answer)
                return await self._decide_here(await self._read_deadline(question, str(record.result or "")))
            before = record  # it was about something else: ask once more, about what is there now

    async def _ask(self, question: PhaseQuestion, before: Record | None) -> ApprovalDecision:
        rows: list[Statement] = []
        if before is not None:
            changes = await self._describe_changes(question, str(before.result or ""))
            question = replace(question, content={**question.content, **changes})
            rows.append(supersede_approval(str(before.result or ""), must_be_open=False))
        rows += [question.to_row(), await_approval(self._scope.run_id, self._phase.key)]
        await self._scope.log.append(question.to_requested_event(), rows=rows)
        return await self._decide_here(question)

    async def _describe_changes(self, question: PhaseQuestion, approval_id: str) -> dict[str, Any]:
        """Describe what is different from what an earlier question was about."""
        row, subject = await self._find(approval_id), question.subject
        assert subject is not None
        earlier = row.shown.get("subject", {}) if row is not None and isinstance(row.shown, dict) else {}
        changed: dict[str, Any] = {"changed": subject.differences(earlier), "instead_of": approval_id}
        with contextlib.suppress(WorkspaceError, KeyError):  # an old tree may have been collected as garbage
            repo = self._scope.place.repo
            changed["diff_since"] = await asyncio.to_thread(diff, repo, earlier["tree"], subject.tree, max_chars=20_000)
        return changed

    async def _decide_here(self, question: PhaseQuestion) -> ApprovalDecision:
        callback = self._scope.approval_callback
        if callback is None:
            raise ApprovalPending(question.key)
        answer = await self._call(callback, question.to_request())
        try:
            await self._scope.log.append(question.to_event(answer), rows=[question.to_answer_row(answer)])
        except RowRefused:
            received = await self._scope.log.read(EventKind.HUMAN_APPROVAL_RECEIVED)
            answers = [e.payload for e in received if e.payload.get("approval_id") == question.approval_id]
            if not answers:
                raise
            return _to_decision(answers[-1])  # somebody was faster
        return answer

    async def _call(self, callback: ApprovalCallback, request: ApprovalRequest) -> ApprovalDecision:
        """Return what the callback answers, or the template's default once the time for it is over."""
        default = ApprovalDecisionAction(self._phase.approval_default)
        late = ApprovalDecision(default, to_comment(request.deadline_at), BY)
        limit = asyncio.timeout(seconds_left(request.deadline_at, now=utc_now()))
        try:
            async with limit:
                action = check_action(await callback(request))
        except Exception as error:
            if limit.expired():
                return late
            # Nobody has decided. The question stands, and the run waits where it is.
            raise Stopped(error) from error
        if is_over(request.deadline_at, now=utc_now()):  # the machine slept meanwhile, or its clock was put forward
            return late
        return ApprovalDecision(action, "", str(getattr(callback, "by", "callback")))

    async def _read_deadline(self, question: PhaseQuestion, approval_id: str) -> PhaseQuestion:
        """Return the question as it was put before, with its id and the deadline it got then."""
        row = await self._find(approval_id)
        return replace(question, approval_id=approval_id, deadline_at=row.deadline_at if row else None)

    async def _find(self, approval_id: str) -> ApprovalRow | None:
        return await self._scope.from_rows(lambda: find_approval(self._scope.db, approval_id))

    def _to_question(self, key: str, subject: Subject, content: Mapping[str, Any]) -> PhaseQuestion:
        """Return the question as it would be put now."""
        phase = self._phase
        default = {} if phase.approval_deadline is None else {"on_deadline": phase.approval_default.value}
        return PhaseQuestion(
            approval_id=uuid.uuid4().hex,
            run_id=self._scope.run_id,
            phase_key=phase.key,
            attempt=self._attempt,
            lane_id=self._lane_id,
            key=key,
            digest=subject.digest,
            content={**content, **default},
            deadline_at=find_deadline(phase, now=utc_now()),
            title=phase.title,
            risk=phase.risk.value,
            subject=subject,
        )


def _to_decision(recorded: Mapping[str, Any]) -> ApprovalDecision:
    return ApprovalDecision(
        ApprovalDecisionAction(recorded["action"]),
        recorded.get("comment", ""),
        recorded.get("by", ""),
        artifact=recorded.get("artifact"),
    )


def _is_about(record: Record, subject: Subject) -> bool:
    """Tell whether a question was about what is there now, or about it before the edit that came with its answer."""
    digest = record.fingerprint.get("digest")
    edited = None if record.answer is None else record.answer.get("artifact")
    if digest == subject.digest or edited is None:
        return digest == subject.digest
    # crash: the edited artifact was written, and nothing says so yet.
    before = replace(subject, artifact_hash=record.fingerprint.get("artifact", ""))
    return subject.artifact_hash == hash_artifact(edited) and before.digest == digest
