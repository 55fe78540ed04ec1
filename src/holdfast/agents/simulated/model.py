"""The simulated model: no key, no network, no chance. It speaks the real tool-calling protocol.

What it does next depends on its messages, its tools and its persona's script alone, so two runs on the same
repository, template and requirements make the same calls. `turns` says what it does; here it is made a chat model.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field

from holdfast.agents.calls.live_text import LiveTextCallback
from holdfast.agents.calls.provider_errors import CutShort
from holdfast.agents.simulated.conversation import PastCall
from holdfast.agents.simulated.faults import DELIVERIES, Delivery
from holdfast.agents.simulated.turns import MISBEHAVIOURS, SLOW_S, Reply, Scene, next_turn
from holdfast.agents.tool_schemas import tool_schema
from holdfast.errors import ConfigInvalid, PersonaInvalid
from holdfast.persona import ScriptedTurn

MISBEHAVE_VARIABLE = "HOLDFAST_SIMULATE_MISBEHAVE"
DELAY_VARIABLE = "HOLDFAST_SIMULATE_DELAY_S"
_CHARS_PER_TOKEN = 4
_CUT = "the connection was lost before the answer was whole"


class SimulatedChatModel(BaseChatModel):
    """A chat model that plays an agent at work. `misbehave` names one of `MISBEHAVIOURS`, or nothing."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: str
    priced_as: str
    misbehave: str = ""
    delay_s: float = 0.0
    streaming: bool = False
    delivery: Delivery = Field(default_factory=Delivery)
    script: dict[str, tuple[ScriptedTurn, ...]] = Field(default={})
    max_tokens: int | None = None

    @property
    def _llm_type(self) -> str:
        return "holdfast-simulated"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[tool_schema(tool) for tool in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        time.sleep(self.delay_s)
        return self._generate_whole(messages, kwargs.get("tools", ()))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        await asyncio.sleep(self.delay_s)
        # A schema that a stranger wrote may keep a thread busy for seconds; the others are not to wait for it.
        return await asyncio.to_thread(self._generate_whole, messages, kwargs.get("tools", ()))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer, is_cut = await asyncio.to_thread(self._answer, messages, kwargs.get("tools", ()))
        pieces = self.delivery.split(answer.text)
        for piece in pieces[: len(pieces) // 2] if is_cut else pieces:
            await asyncio.sleep(self.delay_s / len(pieces))
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        if is_cut:
            raise CutShort(_CUT)
        calls: list[Any] = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
            for index, call in enumerate(answer.tool_calls)
        ]
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=calls,
                response_metadata=answer.response_metadata,
                usage_metadata=answer.usage_metadata,
            )
        )

    def _generate_whole(self, messages: list[BaseMessage], tools: Sequence[Any]) -> ChatResult:
        answer, is_cut = self._answer(messages, tools)
        if is_cut:
            raise CutShort(_CUT)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _answer(self, messages: list[BaseMessage], tools: Sequence[Any]) -> tuple[AIMessage, bool]:
        """Return the answer, and whether it is broken off. Raises what a refusing server makes its client raise."""
        names = frozenset(tool["function"]["name"] for tool in tools)
        scene = replace(_to_scene(messages, names, self.misbehave), script=self.script)
        is_first = not scene.turns
        self.delivery.check(is_first=is_first)
        return _to_message(next_turn(scene), messages, tools, self.model), self.delivery.cuts_off(is_first=is_first)


def open_simulated_model(
    name: str, *, max_tokens: int | None = None, script: Mapping[str, tuple[ScriptedTurn, ...]] | None = None
) -> SimulatedChatModel:
    """Return the model of a simulated persona: `rehearsal-1`, or `rehearsal-1:loop+stream` for one that misbehaves.

    In a phase that the `script` names it plays that.

    The variable `HOLDFAST_SIMULATE_MISBEHAVE` does the same for personas without a suffix, and
    `HOLDFAST_SIMULATE_DELAY_S` slows every call down. Raises `PersonaInvalid`, `ConfigInvalid`.
    """
    base, _, suffix = name.partition(":")
    names = (suffix or os.environ.get(MISBEHAVE_VARIABLE, "")).split("+")
    delivery = Delivery(frozenset(names) & DELIVERIES.keys())
    misbehave, *others = [name for name in names if name not in DELIVERIES] or [""]
    if others or (misbehave and misbehave not in MISBEHAVIOURS):
        known = ", ".join(sorted({**MISBEHAVIOURS, **DELIVERIES}))
        wrong = "+".join([misbehave, *others])
        hint = f"It can by: {known}. Of these {', '.join(sorted(DELIVERIES))} can be joined to another with +."
        raise PersonaInvalid(f"A simulated model cannot misbehave by {wrong!r}.", hint=hint)
    delay_s = _read_delay(SLOW_S if misbehave == "slow" else 0.0)
    return SimulatedChatModel(
        model=name,
        priced_as=base,
        misbehave=misbehave,
        delay_s=delay_s,
        script=dict(script or {}),
        max_tokens=max_tokens,
        delivery=delivery,
        streaming=delivery.is_streamed,
        disable_streaming=not delivery.is_streamed,
        callbacks=[LiveTextCallback()],
    )


def _read_delay(default_s: float) -> float:
    setting = os.environ.get(DELAY_VARIABLE, "")
    try:
        return max(0.0, float(setting)) if setting else default_s
    except ValueError as error:
        message = f"{DELAY_VARIABLE} is {setting!r}, which is no number of seconds."
        raise ConfigInvalid(message, key=DELAY_VARIABLE, origin="environment") from error


def _to_scene(messages: Sequence[BaseMessage], tools: frozenset[str], misbehave: str) -> Scene:
    """Turn a conversation into one without anything of the framework's."""
    spoken = [message for message in messages if not isinstance(message, SystemMessage)]
    people = [index for index, message in enumerate(spoken) if isinstance(message, HumanMessage)]
    last = people[-1] if people else 0
    answered = {message.tool_call_id: message for message in spoken if isinstance(message, ToolMessage)}
    turns = [
        tuple(_to_past_call(call, answered.get(call["id"] or "")) for call in message.tool_calls)
        for message in spoken[last:]
        if isinstance(message, AIMessage)
    ]
    return Scene(
        first=spoken[people[0]].text if people else "",
        follow_up=spoken[last].text if len(people) > 1 else "",
        turns=tuple(turns),
        tools=tools,
        misbehave=misbehave,
    )


def _to_past_call(call: Any, answer: ToolMessage | None) -> PastCall:
    is_error = answer is None or answer.status == "error"
    return PastCall(call["name"], call["args"], answer.text if answer is not None else "", is_error=is_error)


def _to_message(turn: Reply, messages: Sequence[BaseMessage], tools: Sequence[Any], model: str) -> AIMessage:
    read = sum(len(message.text) + len(json.dumps(getattr(message, "tool_calls", []))) for message in messages)
    input_tokens = (read + len(json.dumps(list(tools)))) // _CHARS_PER_TOKEN + 1
    written = len(turn.text) + sum(len(json.dumps(call.args)) + len(call.name) for call in turn.calls)
    output_tokens = written // _CHARS_PER_TOKEN + 1
    return AIMessage(
        content=turn.text,
        tool_calls=[
            {"name": call.name, "args": dict(call.args), "id": call.call_id, "type": "tool_call"} for call in turn.calls
        ],
        response_metadata={"model_name": model, "finish_reason": "tool_calls" if turn.calls else "stop"},
        usage_metadata={
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    )
