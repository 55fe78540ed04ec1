"""The wire: what requests hold and what answers say. A request with a field that is not here is refused."""

from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from holdfast.api.image_data import Images
from holdfast.enums import ApprovalDecisionAction, RunPhaseState, RunStatus
from holdfast.presentation.message_box import MessageBox
from holdfast.presentation.status import Note, StatusLine
from holdfast.presentation.tool_call import QuestionedCall
from holdfast.workspace.refs import find_name_fault


def check_text(value: str) -> str:
    """Return a text as it is. Raises `ValueError` for what no store holds."""
    if "\0" in value:
        raise ValueError("must not hold NUL")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("must be valid Unicode") from error
    return value


Text = Annotated[str, AfterValidator(check_text)]
ShortText = Annotated[str, StringConstraints(max_length=200), AfterValidator(check_text)]
IdempotencyKey = Annotated[ShortText | None, Header(min_length=1)]
MessageText = Annotated[Text, Field(min_length=1, max_length=200_000, description="What the agent is told.")]


def _check_printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must hold printable characters only")
    return value


def _check_target(value: str) -> str:
    if (fault := find_name_fault(value)) is not None:
        raise ValueError(f"cannot be merged into: {fault}")
    return value


BranchName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"^[^-\x00-\x20~^:?*\[\\\x7f][^\x00-\x20~^:?*\[\\\x7f]*$"),
    AfterValidator(_check_printable),
]
TargetBranch = Annotated[BranchName, AfterValidator(_check_target)]
Flag = Annotated[bool, Field(strict=True)]
"""True or false and nothing else: a number or a word in its place is a mistake, and may start something that costs."""
RunIdPath = Annotated[
    str,
    Path(description="The id of a run.", max_length=200, examples=["3f2a0b9e-6c1d-4e8f-9a7b-2d5c8e1f0a34"]),
    AfterValidator(check_text),
]
ApprovalIdPath = Annotated[str, Path(description="The id of an approval.", max_length=1000), AfterValidator(check_text)]


TagQuery = Annotated[
    list[ShortText] | None,
    Query(max_length=20, description="Only flow runs with this tag, `name` or `name=value`; more of it: with all."),
]
RepoQuery = Annotated[Text | None, Query(max_length=4000, description="Also what this repository brings along.")]
Usd = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False, strict=True)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


_REPOSITORY = "A folder under the workspace root, or a URL that the setting `allowed_repositories` lists."
RepositoryName = Annotated[Text, Field(min_length=1, max_length=4000, description=_REPOSITORY)]


class StartRun(_Request):
    """A run to be started."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "workflow": "spec-and-review",
                    "repo_path": "/srv/code/shop",
                    "base_branch": "main",
                    "requirements_md": "Add a --verbose flag.",
                    "simulate": True,
                    "budget_usd": 2.5,
                }
            ]
        },
    )
    workflow: Annotated[Text, Field(min_length=1, max_length=500, description="A name of GET /api/workflows.")]
    repo_path: RepositoryName
    base_branch: BranchName | None = Field(
        default=None, description="The branch to start from; else the one that is checked out.", examples=["main"]
    )
    requirements_md: Text = ""
    persona_overrides: dict[ShortText, ShortText] = Field(default_factory=dict, description="Persona by role.")
    simulate: Flag = Field(default=False, description="Bind every role to the simulated model.")
    budget_usd: Usd | None = None
    title: ShortText = ""
    images: Images = Field(default_factory=list)
    unsandboxed: Flag = Field(
        default=False,
        description="Commands run without a sandbox; refused unless the setting `allow_unsandboxed` is on.",
        examples=[False],
    )
    queue: ShortText = Field(default="", description="One of the setting `queues`; else its first.", examples=["runs"])
    priority: Annotated[int, Field(ge=-1000, le=1000, strict=True)] = Field(
        default=0, description="Among the runs of one user the higher goes first."
    )
    at: AwareDatetime | None = Field(default=None, description="Not before this time.", examples=[None])


class _ChangeRun(_Request):
    """What is to be different in a run from the phase on that is opened next."""

    persona_overrides: dict[ShortText, ShortText] = Field(
        default_factory=dict, description="Other personas, by role.", examples=[{}]
    )
    requirements_md: Text | None = Field(default=None, description="Other requirements.", examples=[None])
    images: Images = Field(default_factory=list, description="More images, beside those that it has.")


class ResumeRun(_ChangeRun):
    accept_drift: Flag = Field(
        default=False, description="Go on although prompt, tools or model have changed since.", examples=[False]
    )


class RetryRun(_ChangeRun):
    """A failed run to be opened again."""


class AbortRun(_Request):
    reason: Annotated[Text, Field(max_length=10_000)] = ""


class ForkRun(_ChangeRun):
    phase_key: Annotated[ShortText, Field(description="The phase to begin with.", examples=["review"])]
    title: ShortText = ""


class TopUp(_Request):
    amount_usd: Usd


class Decide(_Request):
    """An answer to an approval; with `digest` it counts only for what was shown under it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"action": "approve", "comment": "Go on.", "digest": None}]}
    )
    action: ApprovalDecisionAction
    comment: Annotated[Text, Field(max_length=100_000)] = ""
    digest: ShortText | None = None
    result: Any = Field(default=None, description="Of a call whose outcome is unknown: it was made, and gave this.")
    args: dict[str, Any] | None = Field(
        default=None, description="Of a tool call: approve it with these arguments instead of the agent's."
    )
    allow_kind: StrictBool = Field(
        default=False, description="Of a tool call: allow every call of its kind in this run (`shown.kind_text`)."
    )
    artifact: dict[str, Any] | None = Field(
        default=None, description="Of a phase's result: approve it with this artifact instead of the agent's."
    )


class ProblemDetails(BaseModel):
    """Why a request was refused; programs match on `code`."""

    model_config = ConfigDict(title="Problem")  # its name in the OpenAPI document
    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    hint: str | None = None
    errors: list[dict[str, Any]] | None = None
    paths: list[str] | None = Field(default=None, description="Of a conflict: the files it is about.")
    role_id: str | None = Field(default=None, description="Of `persona_ineligible`: the role nobody is ready for.")
    missing: list[dict[str, str]] | None = Field(
        default=None, description="Of `persona_ineligible`: what each `persona` lacks (`finding`), and the `remedy`."
    )


class RunRef(BaseModel):
    run_id: str
    state: RunStatus


Kind = Literal["workflow", "flow"]


class RunItem(RunRef):
    """A run of a workflow, or of a flow; a flow has no workflow, repository or cost."""

    kind: Kind = Field(default="workflow", description="What it runs.")
    flow: str = Field(default="", description="The name of the flow it is a run of.")
    tags: dict[str, str] = Field(default_factory=dict, description="Of a flow run: what it was started with.")
    parent_run_id: str | None = Field(default=None, description="Of a flow run: the one that started it as its child.")
    workflow: str
    title: str
    repo_path: str
    base_branch: str
    created_at: str
    updated_at: str
    started_at: str | None
    ended_at: str | None
    started_by: str
    is_simulated: bool
    forked_from: str | None
    error: Any = None
    pause_reason: str | None = None
    waiting_for: str | None = Field(default=None, description="Why nothing moves, if nothing does.")
    queue: str = "runs"
    priority: int = 0
    due_at: str | None = Field(default=None, description="Left alone until then.", examples=[None])
    waits_for: str | None = Field(default=None, description="The place it waits for.", examples=[None])
    schedule: str | None = Field(default=None, description="What started it.", examples=[None])
    cost_usd: float = Field(description="Real money alone.")
    reserved_usd: float = Field(description="The part of it that is held for calls without an answer.", examples=[0.04])
    perhaps_paid_usd: float = Field(
        description="The part of that whose calls are over without an answer: nobody knows whether they were paid.",
        examples=[0.0],
    )
    simulated_usd: float = Field(
        description="What the simulated model made up; it counts against no limit but its own."
    )
    cost: str = Field(description="All of them in words.", examples=["$1.12", "$0.12 simulated"])
    heading: str = Field(
        description="Its title, or the first line of what is wanted.", examples=["Add a --verbose flag"]
    )
    now: str = Field(description="Where it stands, in one line.", examples=["plan · 1 of 4 done"])
    verdict: Note | None = Field(
        description="More than its state says: its last review once it is completed, or that nobody drives it."
    )
    merged: str = Field(description="Where its result was merged, or nothing.", examples=["merged into main"])


class RunPage(BaseModel):
    items: list[RunItem]
    next_cursor: str | None


class PhaseItem(BaseModel):
    key: str
    state: RunPhaseState
    status: str = Field(
        description="The state as people read it: no phase is running in a run that is `paused` or `stopped`.",
        examples=["paused"],
    )
    attempts: int
    artifact: str | None
    started_at: str | None
    ended_at: str | None
    error: Any = None


class ArtifactItem(BaseModel):
    name: str
    phase_key: str
    attempt: int
    turn: int
    path: str
    schema_id: str
    hash: str
    state: str
    findings: Any
    created_at: str
    is_current: bool = Field(description="What counts of its attempt: the last that was accepted, else the last.")


class Cause(BaseModel):
    """One of the answers to a question, what its button says and what it will lead to."""

    action: str = Field(examples=["approve"])
    label: str = Field(examples=["Approve"])
    text: str = Field(examples=["Phase “implement” starts."])


class SinceAnswer(BaseModel):
    """What the last refusal was, and how much changed after it; `/changes?of=answer` has the difference."""

    approval_id: str
    attempt: int
    comment: str
    by: str
    files: list[str] = []
    added: int = 0
    removed: int = 0


class ApprovalItem(BaseModel):
    approval_id: str
    run_id: str
    kind: Kind = Field(default="workflow", description="Of what the run is one.")
    phase_key: str = Field(description="The phase; of a flow the key of what is asked.")
    attempt: int
    state: str
    digest: str
    requested_at: str
    deadline_at: str | None = Field(
        default=None, description="Until when it can be answered; then `shown.on_deadline` is the answer."
    )
    decided_at: str | None
    action: str | None
    comment: str
    decided_by: str
    first_by: str = Field(description="Who approved first, where two people are needed.")
    shown: Any
    about: str = Field(
        description="`phase`, `tool`, or `outcome` of a call; of a flow `approval`, or `outcome` of a step.",
        examples=["phase"],
    )
    question: str = Field(examples=["Approve “Plan the work”?"])
    facts: list[str] = Field(description="What else to know of it.", examples=[["Phase plan, attempt 1", "Risk high"]])
    causes: list[Cause] = Field(description="The answers there are.")
    reason: str = Field(description='Why it is asked, as it follows "because".', examples=["phase plan has risk high"])
    call: QuestionedCall | None = Field(description="Of a tool call or its outcome: how it would be read.")
    since_answer: SinceAnswer | None = Field(description="After a refusal: what is different from what was refused.")


class ApprovalList(BaseModel):
    items: list[ApprovalItem]
    next_cursor: str | None = Field(description="Of the page that comes after this one.", examples=[None])


class RunDetail(RunItem):
    requirements_md: str
    images: list[str] = Field(
        description="The images that go with it, in words.", examples=[["image a.png (PNG, 12 kB)"]]
    )
    phases: list[PhaseItem]
    artifacts: list[ArtifactItem]
    approvals: list[ApprovalItem]
    unsettled_usd: float
    budget_usd: float | None
    final_report_path: str | None
    seq: int = Field(description="The number of the last event; follow the events from here.")
    last_events: list[dict[str, Any]]
    workflow_version: str
    sandbox: str = Field(
        description="What contains its commands where it was last driven; empty before.",
        examples=["commands run in bubblewrap"],
    )
    message_box: MessageBox | None = Field(description="Where something can be said to its agent; nowhere if `null`.")
    telling: StatusLine = Field(description="What is happening and why, in one sentence.")
    refusals: dict[str, str | None] = Field(
        description="By verb why it would be refused now, for whoever asks; `null` where it would not be.",
        examples=[{"abort": None, "retry": "Only a failed run is retried."}],
    )


class Decided(BaseModel):
    approval_id: str
    run_id: str
    state: str = Field(description="`decided`, or `pending` while a second person is needed.")
    action: str | None


class CatalogItem(BaseModel):
    name: str
    version: str
    description: str
    source: str
    hash: str
    definition: dict[str, Any]


class CatalogList(BaseModel):
    items: list[CatalogItem]
