"""The last word of an agent that was asked for a file and did not write a right one: the file itself, as its answer.

It is one more model call of the same conversation, journaled like every other. The provider is asked for JSON by the
file's schema in its own way; one that refuses that is asked in words alone.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, hook_config
from langchain_core.messages import AIMessage, HumanMessage

from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.calls.provider_errors import ProviderError, classify_error
from holdfast.agents.models.structured_output import ask_for_schema
from holdfast.runtime.events import EventKind
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Step

FindFault = Callable[[str], Awaitable[str | None]]
"""Returns the words that ask for the file, given an agent's answer; `None` if it is there or is the answer itself."""


class FinalAnswer(AgentMiddleware[Any, Any, Any]):
    """Asks an agent that is about to end, once, for what `find_fault` misses, by `schema` if the provider can.

    It stands behind the journal's middleware, so its way of asking is no part of what a replay compares. Subagents
    carry it too, and are not asked.
    """

    def __init__(
        self, log: RunLog, journal: JournalMiddleware, schema: Mapping[str, Any] | None, find_fault: FindFault
    ) -> None:
        super().__init__()
        self._log = log
        self._journal = journal
        self._schema = schema
        self._find_fault = find_fault
        self._question: str | None = None

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        lane_id = self._journal.lane_id
        if self._question is not None or self._journal.current_lane() != lane_id:
            return None
        last = state["messages"][-1]
        if not isinstance(last, AIMessage) or last.tool_calls:
            return None
        # crash: without this record the file is looked at again; with it, a file that changed since changes no replay.
        question = await self._log.step(Step(f"{lane_id}/answer", lane_id), lambda: self._find_fault(last.text))
        self._question = question or ""
        return {"messages": [HumanMessage(question)], "jump_to": "model"} if question else None

    async def awrap_model_call(
        self, request: "ModelRequest[Any]", handler: Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]]
    ) -> "ModelResponse[Any]":
        is_last_word = self._question and request.messages and request.messages[-1].content == self._question
        formatted = ask_for_schema(request, self._schema) if is_last_word and self._schema is not None else None
        if formatted is None:
            return await handler(request)
        try:
            return await handler(formatted)
        except Exception as error:
            problem = classify_error(error, now_s=time.time())
            # The server does not know it, or the client cannot say it. Whatever else it is would happen again.
            if problem.code not in ("invalid_request", "failed"):
                raise
        await self._report(problem)
        return await handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(request)

    async def _report(self, problem: ProviderError) -> None:
        facts = {"code": problem.code, "words": problem.words}
        await self._journal.append_event(EventKind.AGENT_PROGRESS, structured_output="refused", error=facts)
