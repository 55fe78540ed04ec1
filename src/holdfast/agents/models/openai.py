"""The client for OpenAI and for every server that speaks its chat protocol.

The framework's own, with what it drops: reasoning, refusals, and the cost that some providers report. An answer that
was cut off is an error here, not a short answer.
"""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI

from holdfast.agents.calls.conversion import COST
from holdfast.agents.calls.live_text import note_response_id
from holdfast.agents.calls.provider_errors import CutShort, Malformed

_REASONING = ("reasoning_content", "reasoning")
_TOO_LONG = re.compile(r"maximum context length|context (?:window|size|length)|too many tokens", re.IGNORECASE)


class OpenAIChat(ChatOpenAI):
    """A `ChatOpenAI` that streams, and that tells apart an answer from the beginning of one."""

    is_openai: bool = True
    can_look_up_costs: bool = False
    """The provider tells later what an answer has cost, by its name; so that is noted as soon as it is known."""

    def forget_account(self) -> None:
        """Keep what OPENAI_ORG_ID and OPENAI_PROJECT_ID hold from a server that is not OpenAI's."""
        for client in (self.root_client, self.root_async_client):
            client.organization = client.project = None

    def _get_request_payload(self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if not self.is_openai and "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")  # the name that other servers know
        return payload

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        is_ended = False
        arguments: dict[Any, str] = {}
        try:
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                is_ended = is_ended or bool((chunk.generation_info or {}).get("finish_reason"))
                for call in getattr(chunk.message, "tool_call_chunks", ()):
                    arguments[call["index"]] = arguments.get(call["index"], "") + (call["args"] or "")
                yield chunk
        except openai.BadRequestError as error:
            if not isinstance(error, ContextOverflowError) and _is_too_long(error):
                raise ContextOverflowError(error.message) from error
            raise
        if not is_ended:
            raise CutShort("The server ended its answer in the middle.")
        _check_arguments(arguments.values())

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        if self.can_look_up_costs:
            note_response_id(chunk.get("id"))
        if made is None:
            return None
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("cost"), int | float):
            made.message.response_metadata[COST] = str(usage["cost"])
        if refusal := _text_of(chunk, "refusal"):
            made.message.additional_kwargs["refusal"] = refusal
        thought = next((text for name in _REASONING if (text := _text_of(chunk, name))), "")
        if thought:
            made.message.additional_kwargs["reasoning_content"] = thought
        return made


def _is_too_long(error: openai.BadRequestError) -> bool:
    """Tell whether the input is too long, which servers say in many ways; the framework knows only a few of them."""
    return error.code == "context_length_exceeded" or bool(_TOO_LONG.search(error.message))


def _check_arguments(arguments: Iterable[str]) -> None:
    """Raise `Malformed` for arguments that are no whole JSON object: the framework would complete them by guessing."""
    for text in arguments:
        try:
            is_object = isinstance(json.loads(text or "{}"), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise Malformed("The model asked for a tool with arguments that are no JSON object.")


def _text_of(chunk: Mapping[str, Any], name: str) -> str:
    choices = chunk.get("choices") or [{}]
    text = (choices[0].get("delta") or {}).get(name)
    return text if isinstance(text, str) else ""
