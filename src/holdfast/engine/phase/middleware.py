"""What stands between an agent and its calls in one turn of a phase: the journal, with money, policy and tree ids.

Imported lazily: it brings the agent framework with it.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.agents.calls.gate import ModelCall, Usage
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.calls.provider_errors import classify_error
from holdfast.agents.calls.rate_limits import get_rate_limits, provider_of
from holdfast.agents.calls.retries import RetryRules
from holdfast.agents.calls.services import TurnServices
from holdfast.agents.calls.stall_detector import Limits
from holdfast.agents.policy.approval_mode import with_mode
from holdfast.agents.policy.tool_policy import ToolPolicy
from holdfast.agents.tools.rules import command_rules, file_tool_rules
from holdfast.agents.tools.shell import Shell, open_shell, permit
from holdfast.engine.approvals.tool import PhaseToolApprover
from holdfast.engine.phase.budget import PhaseBudget, Reservation
from holdfast.engine.phase.hooks import PhaseHooks
from holdfast.engine.scope import RunScope
from holdfast.errors import JournalCorrupt, PhaseTimeout
from holdfast.persistence.carried_files import find_image
from holdfast.runtime.step import CancelRun, Interrupted, SameCommit, Stopped
from holdfast.workflow import Phase

_DRIFT = frozenset({"model", "system", "tools"})
# What a look at the repository must not run: a program that its configuration names, or one in a folder that only looks
# like a repository.
_GIT_WITHOUT_SANDBOX = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "safe.bareRepository",
    "GIT_CONFIG_VALUE_1": "explicit",
}
_DRAIN_S = 5.0  # an agent that ended in any other way waits so long for its calls in flight
# A person or a shutdown waits: what is nearly done is recorded, so that it is not paid twice. It is all that an
# interruption waits for, whatever the agent does; the rest is work, and on a busy machine that takes its time.
_HURRIED_S = 0.15


@dataclass(frozen=True)
class TurnMiddleware:
    """The middleware of one turn, and the way to wait for what it still has in flight."""

    journal: JournalMiddleware
    shell: Shell
    is_aborted: Callable[[], bool] = lambda: False

    @property
    def for_agent(self) -> list[Any]:
        return [self.journal]

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait for what is in flight, as long as it fits the way in which the turn ended, and end its commands."""
        error = sys.exception()
        limit_s = _DRAIN_S if timeout_s is None else timeout_s
        if isinstance(error, asyncio.CancelledError | CancelRun | PhaseTimeout):
            limit_s = min(limit_s, 0.0 if self.is_aborted() else _HURRIED_S)
        await self.journal.drain(limit_s)
        if not isinstance(error, asyncio.CancelledError | Interrupted):
            # The turn is over. Otherwise it is only interrupted, and whoever goes on finds its commands again.
            await self.shell.stop_all()


def make_middleware(
    scope: RunScope, phase: Phase, lane_id: str, money: PhaseBudget, *, attempt: int = 1
) -> TurnMiddleware:
    root = scope.place.root
    persona = scope.persona_of(phase)
    permissions = persona.permissions
    shell = open_shell(
        root,
        data_dir=scope.config.data_dir,
        workspace=scope.place,
        is_read_only=phase.read_only,
        is_secret_allowed=lambda path: policy.is_readable_secret(path),
        of_run=scope.history.agent_commands,
    )
    is_unsandboxed = scope.history.unsandboxed_by is not None
    if is_unsandboxed or not scope.find_sandbox().works:
        shell = replace(shell, sandbox=None)
    if shell.sandbox is None:
        shell = replace(shell, env={**shell.env, **_GIT_WITHOUT_SANDBOX})
    shell = replace(permit(shell, permissions), file_lock=scope.tree_lock)
    shell = replace(shell, unfenced=scope.history.unfenced, lease=scope.lease)
    policy = ToolPolicy(
        root,
        permissions,
        only_write=phase.expected_artifact.path if phase.read_only else None,
        is_contained=shell.sandbox is not None,
        is_unsandboxed=is_unsandboxed,
        is_switched_off=not persona.sandbox.is_on,
        hidden=(scope.config.data_dir, scope.place.repo, *([scope.place.source] if scope.place.source else [])),
        home=os.environ.get("HOME", ""),
    )

    scope.current_tree = ""  # a person may have changed files since the last turn

    async def after_mutation() -> dict[str, Any]:
        facts = await scope.record_files()
        scope.current_tree = facts.get("tree", "")  # of files that are in no tree the last one says nothing
        return facts

    async def before_command() -> str:
        scope.raise_if_too_large()  # it may have waited for the call whose files are
        if not scope.current_tree:
            await after_mutation()
            scope.raise_if_too_large()
        return scope.current_tree

    services = TurnServices(
        rules={**file_tool_rules(root), **command_rules(shell.spool_dir, persona.on_lost)},
        gate=BudgetGate(money),
        limits=Limits(max_work_s=phase.timeout_seconds),
        policy=with_mode(policy, permissions.approvals),
        approver=PhaseToolApprover(scope, phase, attempt),
        shell=shell,
        hooks=PhaseHooks(scope, phase, attempt) if scope.template.hooks else None,
        before_command=before_command,
        check_files=scope.raise_if_too_large,
        read_image=lambda digest: read_image(scope, digest),
        retries=RetryRules.of(persona, scope.config),
        provider_slot=get_rate_limits(scope.config, scope.db).slot(provider_of(persona), scope.run_id),
        keeps_prompts=scope.config.keep_prompts,
    )
    journal = JournalMiddleware(
        scope.log,
        lane_id,
        services,
        after_mutation=after_mutation,
        accept_drift=_DRIFT if scope.history.accepts_drift else frozenset(),
    )
    return TurnMiddleware(journal, shell, lambda: scope.log.records.cancel_request is not None)


async def read_image(scope: RunScope, digest: str) -> bytes:
    """Read an image of the run from the database, wherever it was given."""
    found = await scope.from_rows(lambda: find_image(scope.db, scope.run_id, digest))
    if found is None or hashlib.sha256(found.data).hexdigest() != digest:
        what = "missing" if found is None else "damaged"
        raise Stopped(JournalCorrupt(f"The image {digest[:12]}… of run {scope.run_id} is {what} in the database."))
    return found.data


class BudgetGate:
    """A `ModelCallGate` that reserves with the request and settles with the response."""

    def __init__(self, money: PhaseBudget) -> None:
        self._money = money
        self._reserved: dict[str, Reservation] = {}

    def before(self, call: ModelCall) -> SameCommit:
        reservation = self._money.reserve(
            call.key,
            model=call.model,
            input_tokens=call.max_input_tokens,
            output_tokens=call.max_output_tokens,
            cost_micros=call.max_cost_micros,
        )
        self._reserved[call.key] = reservation
        if call.is_begun:
            reservation.entry_id = self._money.scope.history.reservations.get(call.key, "")
        return SameCommit() if reservation.entry_id else reservation.with_intent()

    def after(self, call: ModelCall, usage: Usage | None) -> SameCommit:
        reservation = self._reserved.get(call.key)
        if reservation is None or usage is None:
            return SameCommit()  # what was used is not known: the reservation stays counted
        return reservation.with_result(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost_micros=usage.cost_micros,
            is_estimated=bool(usage.is_estimated),
        )

    def failed(self, call: ModelCall, error: Exception) -> SameCommit:
        reservation = self._reserved.get(call.key)
        if reservation is None or not classify_error(error, now_s=time.time()).is_free:
            return SameCommit()  # whether it was charged is not known: it stays counted
        return reservation.with_result(input_tokens=0, output_tokens=0)
