"""Approvals of a phase's result: asked durably, bound to the digest of their content, answered once.

Rule: an answer counts for what the person saw. If artifact, files or template are no longer that, it is stale, and they
are asked again with the difference.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.engine.approvals.decisions import (
    BY,
    Subject,
    check_action,
    decision,
    find_deadline,
    is_over,
    seconds_left,
    to_comment,
)
from holdfast.engine.scope import ApprovalCallback, ApprovalRequest, RunScope, utc_now
from holdfast.enums import ApprovalDecisionAction, RunPhaseState
from holdfast.errors import (
    RowRefused,
    WorkspaceError,
)
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import find_approval
from holdfast.persistence.statements import insert, now_text, update
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.durable import Stopped, Suspended
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.records import Record
from holdfast.workflow import Phase
from holdfast.workspace import diff


class ApprovalPending(Suspended):
    """A person must look at a phase's result first."""


@dataclass(frozen=True)
class PhaseAnswer:
    action: ApprovalDecisionAction
    comment: str
    by: str


class PhaseApproval:
    """The question after one attempt of one phase."""

    def __init__(self, scope: RunScope, phase: Phase, attempt: int, lane_id: str) -> None:
        self._scope = scope
        self._phase = phase
        self._attempt = attempt
        self._lane_id = lane_id

    async def get(self, subject: Subject, content: Mapping[str, Any]) -> PhaseAnswer:
        """Return the answer to this content. Raises `ApprovalPending` while there is none and nobody to ask here."""
        number = 0
        before: Record | None = None
        while True:
            number += 1
            key = f"{self._lane_id}/approval" + (f"#{number}" if number > 1 else "")
            record = self._scope.log.records.by_key.get(("approval", key))
            if record is None:
                return await self._ask(key, subject, content, before)
            if record.fingerprint.get("digest") == subject.digest:
                if record.answer is not None:
                    return _to_answer(record.answer)
                return await self._decide_here(
                    key, await self._read_request(subject, content, str(record.result or ""))
                )
            before = record  # it was about something else: ask once more, about what is there now

    async def _ask(self, key: str, subject: Subject, content: Mapping[str, Any], before: Record | None) -> PhaseAnswer:
        rows: list[Statement] = []
        if before is not None:
            content = {**content, **await self._what_changed(subject, str(before.result or ""))}
            superseded = {"state": "superseded", "decided_at": now_text()}
            rows.append(update("approvals", superseded, {"id": before.result, "state": "pending"}, expect=None))
        request = self._request(subject, self._with_default(content), uuid.uuid4().hex, self._find_deadline())
        rows.append(insert("approvals", _row(request, subject)))
        rows.append(self._scope.set_phase(self._phase.key, state=RunPhaseState.AWAITING_APPROVAL))
        await self._scope.log.append(_requested(request, key, self._lane_id, subject), rows=rows)
        return await self._decide_here(key, request)

    async def _what_changed(self, subject: Subject, approval_id: str) -> dict[str, Any]:
        row = await self._find(approval_id)
        earlier = row.shown.get("subject", {}) if row is not None and isinstance(row.shown, dict) else {}
        changed: dict[str, Any] = {"changed": subject.differences(earlier), "instead_of": approval_id}
        with contextlib.suppress(WorkspaceError, KeyError):  # an old tree may have been collected as garbage
            repo = self._scope.place.repo
            changed["diff_since"] = await asyncio.to_thread(diff, repo, earlier["tree"], subject.tree, max_chars=20_000)
        return changed

    async def _decide_here(self, key: str, request: ApprovalRequest) -> PhaseAnswer:
        callback = self._scope.approval_callback
        if callback is None:
            raise ApprovalPending(key)
        answer = await self._call(callback, request)
        event, rows = decision(request.run_id, request.approval_id, key, self._lane_id, **vars(answer))
        try:
            await self._scope.log.append(event, rows=rows)
        except RowRefused:
            row = await self._find(request.approval_id)
            if row is None or row.action is None:
                raise
            return PhaseAnswer(ApprovalDecisionAction(row.action), row.comment, row.decided_by)  # someone was faster
        return answer

    async def _call(self, callback: ApprovalCallback, request: ApprovalRequest) -> PhaseAnswer:
        """Return what the callback answers, or the template's default once the time for it is over."""
        late = PhaseAnswer(ApprovalDecisionAction(self._phase.approval_default), to_comment(request.deadline_at), BY)
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
        return PhaseAnswer(action, "", str(getattr(callback, "by", "callback")))

    def _find_deadline(self) -> str | None:
        return find_deadline(self._phase, now=utc_now())

    def _with_default(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._phase.approval_deadline is None:
            return content
        return {**content, "on_deadline": self._phase.approval_default.value}

    async def _read_request(self, subject: Subject, content: Mapping[str, Any], approval_id: str) -> ApprovalRequest:
        """Return the question as it was put before, with the deadline it got then."""
        row = await self._find(approval_id)
        return self._request(subject, self._with_default(content), approval_id, row.deadline_at if row else None)

    async def _find(self, approval_id: str) -> ApprovalRow | None:
        return await self._scope.from_rows(find_approval(self._scope.db, approval_id))

    def _request(
        self, subject: Subject, content: Mapping[str, Any], approval_id: str, deadline_at: str | None
    ) -> ApprovalRequest:
        return ApprovalRequest(
            approval_id=approval_id,
            run_id=self._scope.run_id,
            phase_key=self._phase.key,
            title=self._phase.title,
            risk=self._phase.risk.value,
            attempt=self._attempt,
            digest=subject.digest,
            content=content,
            deadline_at=deadline_at,
        )


def _requested(request: ApprovalRequest, key: str, lane_id: str, subject: Subject) -> Event:
    deadline: dict[str, Any] = {"deadline_at": request.deadline_at} if request.deadline_at else {}
    return create_event(
        request.run_id,
        EventKind.HUMAN_APPROVAL_REQUESTED,
        lane_id,
        key=key,
        approval_id=request.approval_id,
        phase=request.phase_key,
        attempt=request.attempt,
        risk=request.risk,
        digest=request.digest,
        fingerprint={"digest": request.digest},
        subject=vars(subject),
        show=dict(request.content),
        **deadline,
    )


def _row(request: ApprovalRequest, subject: Subject) -> dict[str, Any]:
    return {
        "id": request.approval_id,
        "run_id": request.run_id,
        "phase_key": request.phase_key,
        "attempt": request.attempt,
        "state": "pending",
        "digest": request.digest,
        "shown": {**request.content, "subject": vars(subject)},
        "requested_at": now_text(),
        "deadline_at": request.deadline_at,
    }


def _to_answer(stored: Mapping[str, Any]) -> PhaseAnswer:
    return PhaseAnswer(ApprovalDecisionAction(stored["action"]), stored.get("comment", ""), stored.get("by", ""))
