"""The wire of flows: one run in a list, one in full, and a person's answer."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.api.schemas import ApprovalItem, ArtifactItem, PhaseItem, RunItem, ShortText, Text, check_text
from holdfast.presentation.status import StatusLine

FlowIdPath = Annotated[str, Path(description="The id of a flow run.", max_length=200), AfterValidator(check_text)]


class FlowItem(BaseModel):
    """A flow run in a list. `wake_at` is when it is looked at next, `waits_for` what it waits for."""

    run_id: str
    flow: str
    state: str
    is_driven: bool
    now: str = Field(description="What it is doing, or why it failed, in one line.", examples=["waits for ship"])
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
    child_run_id: str | None = Field(default=None, description="Of a child flow: its own run.")


class FlowNoteItem(BaseModel):
    """What a flow has told its watchers; `kind` is that of its event."""

    kind: str
    text: str
    written_at: str | None
    value: Any = Field(description="The fields of a log line, or the partial result.")


class FlowQuestionItem(BaseModel):
    """What a person is asked; `about` is `approval`, or `outcome` for a call of which it is unknown."""

    key: str
    about: str
    show: Any
    digest: str = Field(description="Of what is shown; an answer with it counts for nothing else.")
    requested_at: str | None
    deadline_at: str | None = Field(default=None, description="Until when it can be answered, if not for ever.")


class FlowDetail(FlowItem):
    """A flow run in full."""

    args: Any
    kwargs: Any
    ended_at: str | None
    result: Any
    error: dict[str, Any] | None
    reason: str | None = Field(description="Why it does not go on, as far as this server knows.")
    seq: int = Field(description="The number of the last event; follow the events from here.")
    status_text: str = Field(description="What the flow last said of itself.")
    notes: list[FlowNoteItem] = Field(description="The last 200, the oldest first.")
    steps: list[FlowStepItem]
    questions: list[FlowQuestionItem]


class FlowRunDetail(RunItem):
    """A flow run in full, with the fields that every run has; its phases and artifacts are none."""

    phases: list[PhaseItem] = Field(default_factory=list)
    artifacts: list[ArtifactItem] = Field(default_factory=list)
    approvals: list[ApprovalItem] = Field(description="What it has asked people; those that wait first.")
    is_driven: bool
    args: Any
    kwargs: Any
    result: Any
    status_text: str = Field(description="What the flow last said of itself.")
    notes: list[FlowNoteItem] = Field(description="The last 200, the oldest first.")
    steps: list[FlowStepItem]
    seq: int = Field(description="The number of the last event; follow the events from here.")
    last_events: list[dict[str, Any]]
    telling: StatusLine = Field(description="What is happening and why, in one sentence.")
    refusals: dict[str, str | None] = Field(
        description="By verb why it would be refused now, for whoever asks; `null` where it would not be."
    )


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
