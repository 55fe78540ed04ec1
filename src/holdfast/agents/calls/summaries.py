"""Summaries of long conversations, made so that a replay makes the same ones without asking a model.

The framework's own call a model that no middleware sees, put a random path into the prompt and add to a file each time.
Here the call is a durable step, the path follows from the lane, and the file is written whole. This relies on private
methods of the framework; a contract test pins them, and the version is pinned in pyproject.toml.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepagents.middleware.summarization import SummarizationMiddleware, compute_summarization_defaults
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AnyMessage, get_buffer_string
from langchain_core.messages.utils import count_tokens_approximately

from holdfast.agents.calls.provider_errors import to_overflow
from holdfast.agents.image_blocks import list_references
from holdfast.agents.redaction import SECRETS
from holdfast.agents.tool_schemas import count_tool_tokens

if TYPE_CHECKING:
    from holdfast.agents.calls.middleware import JournalMiddleware

_CUT = "\n[… the middle is left out …]\n"


class _TokenCounter:
    """Estimates tokens as the framework does, but each message and each set of tools once, not with every call."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[Any, int]] = {}

    def __call__(self, messages: Iterable[Any], *, tools: Sequence[Any] | None = None) -> int:
        return sum(self._of_message(message) for message in messages) + count_tool_tokens(tools or ())

    def _of_message(self, message: Any) -> int:
        found = self._messages.get(id(message))
        if found is None or found[0] is not message:
            found = self._messages[id(message)] = (message, count_tokens_approximately([message]))
        return found[1]


class JournaledSummaries(SummarizationMiddleware):
    """Takes the place of the framework's summaries, in the agent and in its subagents. One instance for each."""

    def __init__(self, model: Any, *, backend: Any, journal: "JournalMiddleware", **settings: Any) -> None:
        self._journal = journal
        self._counts: Counter[str] = Counter()
        self._images: dict[str, list[dict[str, Any]]] = {}
        super().__init__(
            model,
            backend=backend,
            trim_tokens_to_summarize=None,
            token_counter=_TokenCounter(),
            summarizer=self._summarize,
            **{**compute_summarization_defaults(model), **settings},
        )

    @property
    def name(self) -> str:
        return "SummarizationMiddleware"

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        try:
            return await super().awrap_model_call(request, handler)
        except ContextOverflowError as error:
            raise to_overflow(error, request.model) from error

    async def _summarize(self, messages: Sequence[AnyMessage]) -> str:
        self._images[self._journal.current_lane()] = list_references(messages)
        history = get_buffer_string(messages, format="xml")
        try:
            return await self._ask(history)
        except ContextOverflowError:
            # Its beginning says what is wanted, its end what was done last.
            return await self._ask(history[: len(history) // 8] + _CUT + history[-len(history) // 4 :])

    def _build_new_messages_with_path(self, summary: str, file_path: str | None) -> list[AnyMessage]:
        """Put the images that were given behind the summary: no words stand for them."""
        messages = super()._build_new_messages_with_path(summary, file_path)
        images = self._images.pop(self._journal.current_lane(), [])
        if not images:
            return messages
        content = [{"type": "text", "text": messages[0].text}, *images]
        return [messages[0].model_copy(update={"content": content}), *messages[1:]]

    async def _ask(self, history: str) -> str:
        prompt = self._lc_helper.summary_prompt.format(messages=history).rstrip()
        return await self._journal.ask_aside(self.model, prompt)

    def _get_session_id(self, state: Mapping[str, Any]) -> str:
        lane_id = self._journal.current_lane()
        return f"session_{hashlib.sha256(lane_id.encode()).hexdigest()[:16]}"

    async def _aoffload_to_backend(self, backend: Any, messages: list[AnyMessage], session_id: str) -> str | None:
        """Write what is about to be summarised to a file of its own, the same one in every replay.

        The path is told even if the file could not be written: what a model is told must not depend on the disk.
        """
        number = self._counts[session_id]
        self._counts[session_id] += 1
        path = self._get_history_path(f"{session_id}_{number}")
        history = get_buffer_string(self._filter_summary_messages(messages), format="xml")
        await backend.awrite(path, SECRETS.scrub_text(history))
        return path
