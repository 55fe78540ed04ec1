"""A chat model that says what a test has written down, and tools that do as they are told."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool


class ScriptedModel(BaseChatModel):
    """Answers by the number of its own messages it is shown, so that a replay finds its place. Counts live calls."""

    script: list[Any]
    model: str = "scripted"
    calls: list[int] = []  # noqa: RUF012 - pydantic copies it

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        self.calls.append(turn)
        answer = self.script[turn]
        if isinstance(answer, BaseException):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


def asks(*calls: tuple[str, dict[str, Any]], ids: Sequence[str | None] | None = None) -> AIMessage:
    named = ids or [f"call_{index}" for index in range(len(calls))]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return AIMessage(
        content="",
        tool_calls=[
            {"name": name, "args": args, "id": call_id, "type": "tool_call"}
            for (name, args), call_id in zip(calls, named, strict=True)
        ],
        usage_metadata=usage,
    )


def says(text: str) -> AIMessage:
    return AIMessage(content=text, usage_metadata={"input_tokens": 10, "output_tokens": 5, "total_tokens": 15})


def tool(name: str, work: Callable[[str], Awaitable[Any]]) -> BaseTool:
    async def run(word: str) -> Any:
        return await work(word)

    return StructuredTool.from_function(coroutine=run, name=name, description=f"Does {name}.")
