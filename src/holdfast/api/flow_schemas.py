"""The wire of flows: one run in a list, one in full, and a person's answer."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.api.schemas import ShortText, Text, check_text

FlowIdPath = Annotated[str, Path(description="The id of a flow run.", max_length=200), AfterValidator(check_text)]


class FlowItem(BaseModel):
    """A flow run in a list. `wake_at` is when it is looked at next, `waits_for` what it waits for."""

    run_id: str
    flow: str
    state: str
    is_driven: bool
    wake_at: str | None
    waits_for: str | None
    parent_run_id: str | None
    queue: str
    tags: dict[str, str]
    created_at: str | None
    updated_at: str | None


class FlowList(BaseModel):
    items: list[FlowItem]


class FlowStepItem(BaseModel):
    """One step, timer, event or approval of a flow, with its latest outcome."""

    key: str
    lane: str
    type: str
    state: str
    attempts: int
    started_at: str | None
    ended_at: str | None
    retry_at: str | None
    wake_at: str | None
    result: Any
    error: dict[str, Any] | None


class FlowQuestionItem(BaseModel):
    """What a person is asked; `about` is `approval`, or `outcome` for a call of which it is unknown."""

    key: str
    about: str
    show: Any
    digest: str = Field(description="Of what is shown; an answer with it counts for nothing else.")
    requested_at: str | None


class FlowDetail(FlowItem):
    """A flow run in full."""

    args: Any
    kwargs: Any
    ended_at: str | None
    result: Any
    error: dict[str, Any] | None
    reason: str | None = Field(description="Why it does not go on, as far as this server knows.")
    steps: list[FlowStepItem]
    questions: list[FlowQuestionItem]


class AnswerFlow(BaseModel):
    """An answer to what a flow asks: `approve`, `reject`, `request_changes`, `abort`; of an outcome `rerun`, `done`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"key": "ship", "action": "approve"}]})
    key: ShortText
    action: ShortText
    comment: Annotated[Text, Field(max_length=100_000)] = ""
    digest: ShortText | None = Field(default=None, description="The answer counts only for what was shown under it.")
    result: Any = Field(default=None, description="With `done`: what the call has returned.")


class FlowAnswered(BaseModel):
    run_id: str
    key: str
    action: str
