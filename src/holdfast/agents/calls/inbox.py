"""Messages that come in while an agent works: each reaches it once, before its next model call."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage

from holdfast.agents.calls.lane_keys import inbox_key, model_key
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Step


class IncomingMessage(Protocol):
    """A message of a person, numbered as its event is."""

    @property
    def seq(self) -> int: ...

    @property
    def blocks(self) -> str | list[Any]: ...


class InboxMiddleware(AgentMiddleware[Any, Any, Any]):
    """Brings messages to the agent while it works, before its next model call; each of them once, as a durable step.

    Subagents carry it too, and get nothing: the person spoke to the agent.
    """

    def __init__(
        self,
        log: RunLog,
        journal: JournalMiddleware,
        read_waiting: Callable[[], Awaitable[Sequence[IncomingMessage]]],
    ) -> None:
        super().__init__()
        self._log = log
        self._journal = journal
        self._read_waiting = read_waiting
        self._delivered: set[int] = set()
        self._number = 0

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        lane_id = self._journal.lane_id
        if self._journal.current_lane() != lane_id:
            return None
        key, call = inbox_key(lane_id, self._number), model_key(lane_id, self._number)
        self._number += 1
        records = self._log.records.by_key
        if ("step", key) not in records and ("step", call) in records:
            return None  # the call was made before, and nothing was said before it
        waiting = {message.seq: message for message in await self._read_waiting() if message.seq not in self._delivered}
        if ("step", key) not in records and not waiting:
            return None
        # crash: without this record they wait for the next process; with it, the agent has got them.
        delivery = await self._log.step(Step(key, lane_id), lambda: {"messages": list(waiting)})
        self._delivered.update(delivery["messages"])
        return {"messages": [HumanMessage(waiting[seq].blocks) for seq in delivery["messages"]]}

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Pass the call on; driven without the journal around it, as other programs do, it is recorded all the same."""
        if self._journal.is_recording:
            return await handler(request)
        return await self._journal.awrap_tool_call(request, handler)
