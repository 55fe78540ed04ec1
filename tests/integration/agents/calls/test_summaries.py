"""A conversation that gets too long is summarised: journaled, the same in every replay, and outside the workspace."""

import inspect
from typing import Any

import pytest
from deepagents.middleware.summarization import SummarizationMiddleware
from tests.support.agents.phase import LANE, RUN_ID, Phase, essence
from tests.support.agents.scripted_model import ScriptedModel, asks, says

from holdfast.agents.calls.summaries import JournaledSummaries
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import create_event

LOOK = ("ls", {"path": "/"})


class Forgetful(ScriptedModel):
    """Answers in the order it is asked; asked for a summary it gives one."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if "<messages>" in messages[-1].text or "Context Extraction" in messages[-1].text:
            self.calls.append(-1)
            return _says(f"Summary {self.calls.count(-1)}.")
        turn = sum(call >= 0 for call in self.calls)
        self.calls.append(turn)
        return _says(self.script[turn])


def _says(answer: Any) -> Any:
    from langchain_core.outputs import ChatGeneration, ChatResult

    message = says(answer) if isinstance(answer, str) else answer
    return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summarise after a few messages instead of after thousands of tokens."""

    class Early(JournaledSummaries):
        def __init__(self, model: Any, **settings: Any) -> None:
            super().__init__(model, **settings, trigger=("messages", 5), keep=("messages", 2))

    monkeypatch.setattr("holdfast.agents.calls.summaries.JournaledSummaries", Early)


def script() -> list[Any]:
    return [
        asks(LOOK),
        asks(LOOK),
        asks(("ls", {"path": "/src"})),
        asks(LOOK),
        asks(("glob", {"pattern": "*"})),
        "Done.",
    ]


async def test_summaries_are_recorded_and_replayed_without_a_call(phase: Phase) -> None:
    model = Forgetful(script=script())
    messages = await phase.play(text="Go.", build={"model": model})
    files, events = phase.files(), phase.events()

    again = Forgetful(script=[])
    replayed = await phase.play(text="Go.", build={"model": again})

    assert messages[-1].content == "Done."
    assert essence(replayed) == essence(messages)
    assert again.calls == []
    assert phase.events() == events
    summaries = [e.payload["key"] for e in events if e.kind == "model.response" and "/s" in e.payload["key"]]
    assert summaries == [f"{LANE}/s{number}" for number in range(model.calls.count(-1))]
    assert len(summaries) >= 2
    assert phase.files() == files
    assert not [path for path in files if "conversation" in path]


async def test_a_run_that_died_after_a_summary_goes_on_after_it(phase: Phase) -> None:
    half = Forgetful(script=script()[:4])
    with pytest.raises(IndexError):
        await phase.play(text="Go.", build={"model": half})
    _take_back_the_failure(phase)

    rest = Forgetful(script=script())
    rest.calls.extend(call for call in half.calls[:-1] if call >= 0)
    messages = await phase.play(text="Go.", build={"model": rest})

    assert messages[-1].content == "Done."


async def test_what_was_summarised_can_be_read_by_the_agent(phase: Phase) -> None:
    await phase.play(text="Go.", build={"model": Forgetful(script=script())})

    files = sorted((phase.folder / "data").rglob("session_*.md"))
    assert len(files) >= 2
    assert "Go." in files[0].read_text()


def test_the_private_parts_of_the_framework_we_rely_on_are_as_we_know_them() -> None:
    def names(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert names(SummarizationMiddleware._get_session_id) == ["self", "state"]
    assert names(SummarizationMiddleware._aoffload_to_backend) == ["self", "backend", "messages", "session_id"]
    assert names(SummarizationMiddleware._get_history_path) == ["self", "session_id"]
    assert names(SummarizationMiddleware._filter_summary_messages) == ["self", "messages"]
    plain = SummarizationMiddleware(ScriptedModel(script=[]), backend=None)  # type: ignore[arg-type]
    assert plain.name == JournaledSummaries.name.fget(None)  # type: ignore[attr-defined]
    assert "{messages}" in plain._lc_helper.summary_prompt
    called = inspect.getsource(SummarizationMiddleware.awrap_model_call)
    for part in ("self._get_session_id(", "self._aoffload_to_backend(", "self._acreate_summary("):
        assert part in called


def _take_back_the_failure(phase: Phase) -> None:
    """As a retry of the run does."""
    failed = next(event.payload["key"] for event in phase.events() if event.kind == "model.error")
    store = SQLiteCheckpointer(phase.store)
    store.save_event(create_event(RUN_ID, "run.failed", steps=[failed]))
    store.close()
