"""A tool call as a durable step, in the order of the design: replay → permission → intent → price → effect → result."""

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from holdfast.agents.calls.codec import encode_or_opaque, is_opaque
from holdfast.agents.calls.conversion import (
    STEP_MARK,
    await_if_needed,
    describe_args,
    find_asking_message,
    is_refused,
    pack,
    to_reported_usage,
    to_tool_call,
    unpack,
    with_args,
    with_change_notice,
    with_note,
)
from holdfast.agents.calls.in_flight import InFlight
from holdfast.agents.calls.lane_keys import LaneKeys, tool_key
from holdfast.agents.calls.model_calls import Refusal
from holdfast.agents.calls.permission import ToolPermission, ToolPermissions
from holdfast.agents.calls.services import TurnServices
from holdfast.agents.calls.stall_detector import StallDetector
from holdfast.agents.calls.tool_costs import PricedCall, ToolCosts
from holdfast.agents.policy.command_policy import READ_ONLY_FORM
from holdfast.agents.redaction import scrubbed
from holdfast.agents.sent_requests import SentRequests
from holdfast.agents.tools.rules import FILE_TOOLS, NO_TOOL, UNKNOWN_TOOL, CommandSpool, ToolCall, ToolRule
from holdfast.agents.tools.shell import grant_shell
from holdfast.concurrency import ExclusiveGroups
from holdfast.runtime.outcomes.unknown_outcomes import Done, NotDone, OnUnknown, Unclear
from holdfast.runtime.records import Record, StepState, fingerprint_of
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import TOOL_CALL, Step, idempotency_key
from holdfast.workspace import record_requests

_EXECUTE = "execute"
AfterMutation = Callable[[], Awaitable[dict[str, Any]]]
ToolHandler = Callable[[ToolCallRequest], Awaitable["ToolMessage | Command[Any]"]]


@dataclass(frozen=True)
class ToolCallState:
    """A tool call on its way: each stage returns it with what that stage has found out."""

    key: str
    lane_id: str
    call: ToolCall
    rule: ToolRule
    request: ToolCallRequest
    handler: ToolHandler
    is_stand_in: bool
    """No journaled model made it: someone drives the middleware directly."""
    is_known: bool
    """The agent has a tool of this name."""
    live: list[Any] = field(default_factory=list)
    """What the handler returned in this process, if it was called."""
    # -- of the replay
    record: Record | None = None
    is_new: bool = True
    """Nothing of it is recorded, so its permission is still to be had."""
    # -- of the permission
    permission: ToolPermission = field(default_factory=ToolPermission)
    # -- of the intent
    tree_before: str = ""
    """The files that a command is started on."""
    details: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    """What the target was like before the call, for a later process that must find out whether it happened."""
    # -- of the price, the effect and the result
    price: PricedCall | None = None
    is_begun: bool = False
    """Another process began its command, which is found again."""
    effect: Callable[[], Any] | None = None
    result: Any = None
    # -- of the hooks after it
    note: str = ""

    @property
    def effective_call(self) -> ToolCall:
        """The call as it is made: with the arguments that a person has put in the place of the model's."""
        args = self.permission.args
        return self.call if args is None else replace(self.call, args=args)


class ToolCallRecorder:
    """Makes the tool calls of one middleware."""

    def __init__(
        self,
        log: RunLog,
        keys: LaneKeys,
        in_flight: InFlight,
        detector: StallDetector,
        services: TurnServices,
        after_mutation: AfterMutation | None,
        sent: SentRequests | None = None,
    ) -> None:
        self._log = log
        self._keys = keys
        self._in_flight = in_flight
        self._detector = detector
        self._services = services
        self._after_mutation = after_mutation
        self._sent = sent
        self._permissions = ToolPermissions(services.policy, services.approver)
        self._mutating = asyncio.Lock()
        self._workspace = ExclusiveGroups()
        self.costs = ToolCosts(log, services.gate)
        self.rules = dict(services.rules)

    async def call(self, request: ToolCallRequest, handler: ToolHandler) -> "ToolMessage | Command[Any]":
        """Return the recorded answer of a tool call, or make the call and record it."""
        state = self._find_call(request, handler)
        try:
            state = await self._in_flight.finish(self._run(state), tool_key=state.key)
        except Refusal as refusal:
            is_subagent = self._keys.is_subagent(state.lane_id)
            raise refusal.to_raise(is_subagent=is_subagent) from refusal.error.__cause__
        self._detector.note_result(state.lane_id, state.key, state.call, state.result)
        if state.live and state.is_stand_in and is_opaque(state.result["value"]):
            return state.live[0]  # type: ignore[no-any-return]  # whoever drives us directly gets what its handler gave
        recorded: ToolMessage | Command[Any] = unpack(state.result, state.call)
        if self._sent and not state.note:
            self._sent.note_answer(state.key, recorded)
        answer: ToolMessage | Command[Any] = with_note(recorded, state.note)
        return answer

    async def _run(self, state: ToolCallState) -> ToolCallState:
        """Take one call through its stages. Their order is a promise.

        What is recorded counts before anything is asked; nothing is recorded as begun that was not permitted; the money
        is reserved with the intent; and the effect comes after both, so that a crash leaves either nothing or a call
        whose rule says how its outcome is found.
        """
        state = self._replay(state)
        state = await self._get_permission(state)
        state = await self._run_hooks_before(state)
        async with self._beside_no_others(state):  # from here on, so that its files are those of its own turn
            state = await self._find_tree(state)
            state = self._add_intent_facts(state)
            state = self._set_price(state)
            state = self._prepare_effect(state)
            state = await self._record_result(state)
        return await self._run_hooks_after(state)

    # -- the stages, in their order -----------------------------------------------------------------------------------

    def _find_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolCallState:
        call = to_tool_call(request.tool_call)
        lane_id = self._keys.current_lane()
        message = find_asking_message(request, call.call_id)
        if message is None:
            key = self._keys.next_stand_in_key(lane_id)
        else:
            position = [tool_call["id"] for tool_call in message.tool_calls].index(call.call_id)
            key = tool_key(message.response_metadata[STEP_MARK], position)
        is_stand_in = message is None
        is_known = is_stand_in or request.tool is not None
        rule = self.rules.get(call.name, UNKNOWN_TOOL) if is_known else NO_TOOL
        if is_stand_in and rule.is_of_engine:
            call = replace(call, is_of_engine=True)
        return ToolCallState(key, lane_id, call, rule, request, handler, is_stand_in, is_known)

    def _replay(self, state: ToolCallState) -> ToolCallState:
        """Find what is recorded of the call; a completed one is not made again, whatever follows here."""
        record = self._log.records.by_key.get(("step", state.key))
        is_new = record is None or record.is_skipped or record.state is StepState.OPEN
        return replace(state, record=record, is_new=is_new)

    async def _get_permission(self, state: ToolCallState) -> ToolCallState:
        """Ask the policy, and a person where it wants one. Raises `Suspended` while the person has not answered."""
        permission = await self._permissions.get(
            state.key, state.lane_id, state.call, is_new=state.is_new, is_known=state.is_known
        )
        return replace(state, permission=permission)

    async def _run_hooks_before(self, state: ToolCallState) -> ToolCallState:
        """Run the commands that come before a call; one that fails refuses it. They were run if the call was begun."""
        hooks = self._services.hooks
        if hooks is None or not state.is_new or not state.is_known or state.permission.refusal is not None:
            return state
        refusal = await hooks.before(state.key, state.lane_id, state.effective_call)
        if refusal is None:
            return state
        facts = {**state.permission.facts, "denied": refusal}
        return replace(state, permission=replace(state.permission, refusal=refusal, facts=facts))

    async def _find_tree(self, state: ToolCallState) -> ToolCallState:
        """Find the files that a new command is started on, unless it is one that only shows some."""
        rule = state.permission.facts.get("policy", {}).get("rule")
        is_command = state.rule.on_unknown == "reattach" and state.permission.refusal is None
        if not (is_command and state.is_new) or rule == READ_ONLY_FORM or self._services.before_command is None:
            return state
        async with self._mutating:
            return replace(state, tree_before=await self._services.before_command())

    def _add_intent_facts(self, state: ToolCallState) -> ToolCallState:
        """Gather what is recorded with the intent: the arguments, their fingerprint, and how the target was before."""
        call, permission = state.call, state.permission
        details = {"tool": call.name, "call_id": call.call_id, "caller": call.caller, "args": describe_args(call)}
        details |= permission.facts
        if state.tree_before:
            details["tree_before"] = state.tree_before
        if state.rule.spool is not None and permission.refusal is None:
            details["place"] = self._find_place(state, state.rule.spool)
        # Of the call as the model made it, also where a person changed its arguments: a replay compares that.
        fingerprint = fingerprint_of(tool=call.name, arguments=encode_or_opaque(dict(call.args)))
        before = "" if state.record is None else state.record.fingerprint.get("before", "")
        if state.rule.look is not None and permission.refusal is None:
            before = state.rule.look(state.effective_call) if state.is_new else before
            fingerprint["before"] = before
        return replace(state, details=details, fingerprint=fingerprint, before=before)

    def _find_place(self, state: ToolCallState, spool: CommandSpool) -> dict[str, Any]:
        """Say where the command is begun; of one that a person is asked about, where it was."""
        key = idempotency_key(self._log.run_id, state.key)
        if state.record is not None and state.rule.must_ask(key, state.record):
            return dict(state.record.place)
        if state.is_new or state.rule.is_in_doubt(state.record):
            spool.announce(key)
        shell = self._services.shell
        is_contained = spool.is_contained or (
            state.call.name == _EXECUTE
            and shell is not None
            and replace(shell, has_network=state.permission.has_network).changes_worktree_only
        )
        if shell is not None and spool.on_lost == "rerun" and not is_contained:
            shell.unfenced.add(key)
        return {**spool.place.record_requests(), "at": round(time.time(), 3), "is_contained": is_contained}

    def _set_price(self, state: ToolCallState) -> ToolCallState:
        """Price the call of a tool that calls models by itself; the money is reserved with the intent."""
        if state.permission.refusal is not None:
            return state
        is_begun = state.rule.can_reattach(idempotency_key(self._log.run_id, state.key), state.record)
        price = self.costs.to_call(state.key, state.lane_id, state.call.name, is_begun=is_begun)
        return replace(state, price=price, is_begun=is_begun)

    def _prepare_effect(self, state: ToolCallState) -> ToolCallState:
        """Choose what happens if nothing is recorded: the tool's work at its price, or the refusal."""
        permission = state.permission
        if permission.refusal is not None:
            refusal = permission.refusal
            return replace(state, effect=lambda: pack(_denial(state.call, refusal), refused=True))
        work: Callable[[], Awaitable[Any]] = functools.partial(self._call_tool, state)
        if state.price is not None:
            work = state.price.counting_failures(work)
        return replace(state, effect=lambda: self._finish(state, self._with_shell(permission, work)))

    async def _record_result(self, state: ToolCallState) -> ToolCallState:
        """Replay the step or carry it out: intent, effect and result are three moments of `RunLog.step`."""
        assert state.effect is not None
        step = Step(
            state.key, state.lane_id, fingerprint=state.fingerprint, kinds=TOOL_CALL, details=dict(state.details)
        )
        if state.permission.refusal is None:
            step.on_unknown = self._to_on_unknown(state)
            if state.price is not None:
                step.with_intent, step.with_result = state.price.with_intent, state.price.with_result
            # The next to read it is a model, and what it is asked is recorded first.
            step.is_acked_late = not (state.rule.is_mutating or state.is_stand_in)
        self._check_files()  # another call may have been recorded while this one waited
        result = await self._log.step(step, state.effect)
        self._check_files()
        return replace(state, result=result)

    def _check_files(self) -> None:
        if self._services.check_files is not None:
            self._services.check_files()

    def _beside_no_others(self, state: ToolCallState) -> contextlib.AbstractAsyncContextManager[None]:
        """Let no file tool work while a command runs: the engine opens files as the user, and a command that changes a
        folder into a link at the right moment would lead it out of the workspace."""
        if state.rule.spool is not None:
            return self._workspace.running("commands")
        if state.call.name in FILE_TOOLS:
            return self._workspace.running("files")
        return contextlib.nullcontext()

    async def _run_hooks_after(self, state: ToolCallState) -> ToolCallState:
        """Run the commands that come after a call that was made, in whichever process that was."""
        hooks = self._services.hooks
        if hooks is None or not state.is_known or is_refused(state.result):
            return state
        return replace(state, note=await hooks.after(state.key, state.lane_id, state.effective_call))

    # -- the effect ---------------------------------------------------------------------------------------------------

    async def _call_tool(self, state: ToolCallState) -> Any:
        # A subagent started by this tool keeps its own count under the tool's key.
        self._keys.enter_tool_call(state.key)
        args = state.permission.args
        request = state.request if args is None else with_args(state.request, args)
        state.live.append(await scrubbed(await_if_needed(state.handler(request))))
        return state.live[0] if args is None else with_change_notice(state.live[0], args)

    async def _with_shell(self, permission: ToolPermission, work: Callable[[], Awaitable[Any]]) -> Any:
        if self._services.shell is not None:
            grant_shell(replace(self._services.shell, has_network=permission.has_network))
        return await work()

    async def _finish(self, state: ToolCallState, work: Awaitable[Any]) -> Any:
        began = time.monotonic()
        answer = await work
        key = idempotency_key(self._log.run_id, state.key)
        own_s = state.rule.find_duration(key) if state.is_begun else None
        took_s = round(own_s or time.monotonic() - began, 3)
        facts: dict[str, Any] = {}
        if state.rule.is_mutating and self._after_mutation is not None:
            async with self._mutating:
                facts = await self._after_mutation()
        # crash: the files are changed and nothing says so yet; the tool's rule for unknown outcomes decides.
        if took_s:
            facts["took_s"] = took_s
        if self._services.shell is not None:
            facts |= record_requests(self._services.shell.requests.pop(key, ()))
        return pack(answer, usage=to_reported_usage(answer), **facts)

    def _to_on_unknown(self, state: ToolCallState) -> OnUnknown:
        """Return what decides where a call was in flight at a crash: the tool's own rule, asked for this call."""
        rule, reconcile = state.rule, state.rule.on_unknown
        if reconcile == "reattach":
            return functools.partial(rule.look_for_begun, record=state.record)
        if isinstance(reconcile, str):
            return reconcile
        call = state.effective_call

        async def ask_destination(_key: str) -> Done | NotDone | Unclear:
            outcome = await reconcile(call, state.before)
            if not isinstance(outcome, Done):
                return outcome
            answer = ToolMessage(content=str(outcome.result), name=call.name, tool_call_id=call.call_id)
            return Done(await self._finish(state, await_if_needed(answer)))

        return ask_destination


def _denial(call: ToolCall, reason: str) -> ToolMessage:
    return ToolMessage(content=f"Denied: {reason}", name=call.name, tool_call_id=call.call_id, status="error")
