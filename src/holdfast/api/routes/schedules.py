"""Schedules: workflows and flows that are started by a cron line."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as PathParam
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Operator, Viewer
from holdfast.api.http.openapi import READ, READ_ONE, WRITE, WRITE_ONE
from holdfast.api.schemas import BranchName, Flag, RunRef, ShortText, Text, Usd
from holdfast.api.server.server import ServerDep
from holdfast.enums import RunStatus
from holdfast.fleet.schedules import (
    add_schedule,
    check_runs,
    check_schedule,
    explain_skips,
    get_schedule,
    hold_schedule,
    remove_schedule,
    start_now,
)
from holdfast.persistence.db import Database
from holdfast.persistence.schedule_table import Schedule, list_schedules

router = APIRouter(tags=["schedules"])
ScheduleName = Annotated[ShortText, PathParam(description="The name of a schedule.", examples=["nightly"])]


class AddSchedule(BaseModel):
    """A schedule to be made."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[ShortText, Field(min_length=1, examples=["nightly"])]
    target: Annotated[
        ShortText, Field(min_length=1, description="A workflow, or a flow.", examples=["spec-and-review"])
    ]
    kind: Literal["workflow", "flow"] = "workflow"
    cron: Annotated[ShortText, Field(description="Five fields.", examples=["30 2 * * 1-5"])]
    zone: ShortText = Field(default="UTC", examples=["Europe/Berlin"])
    missed: Literal["skip", "once", "all"] = "skip"
    overlap: Literal["skip", "queue"] = "skip"
    repo_path: Annotated[Text, Field(max_length=4000)] = ""
    base_branch: BranchName | None = Field(default=None, examples=["main"])
    requirements_md: Text = ""
    persona_overrides: dict[ShortText, ShortText] = Field(default_factory=dict)
    simulate: Flag = False
    budget_usd: Usd | None = None
    title: ShortText = ""
    queue: ShortText = ""
    priority: Annotated[int, Field(ge=-1000, le=1000, strict=True)] = 0
    arguments: dict[str, Any] = Field(default_factory=dict, description="A flow's keyword arguments.")


class ScheduleItem(BaseModel):
    name: str
    target: str
    kind: str
    cron: str
    zone: str
    missed: str
    overlap: str
    repo_path: str
    options: dict[str, Any]
    is_paused: bool
    created_at: str
    created_by: str
    next_at: str | None
    last_run_id: str | None
    problem: str | None = Field(
        description="Why a time could not be fired. It stays until a run starts.", examples=[None]
    )
    problem_at: str | None = Field(description="When that was found the last time.", examples=[None])
    is_tried_again: bool = Field(description="False once that time was given up, as the next one came.")
    skipped: int = Field(description="How many times were skipped since the last run, as a run was not over.")
    skipped_for: str | None = Field(description="The run that was not over at the last of them.", examples=[None])
    skip_reason: str | None = Field(
        description="That in a sentence.",
        examples=["Its last run 3f2a9c1e still waits for an approval: 4 times were skipped."],
    )


class ScheduleList(BaseModel):
    items: list[ScheduleItem]


class HoldSchedule(BaseModel):
    model_config = ConfigDict(extra="forbid")
    paused: Flag


async def _to_item(db: Database, schedule: Schedule) -> ScheduleItem:
    reason = await explain_skips(db, schedule)
    facts = {**vars(schedule), "is_tried_again": schedule.is_tried_again, "skip_reason": reason}
    return ScheduleItem.model_validate(facts)


@router.get("/api/schedules", responses=READ, summary="List schedules")
async def show_schedules(server: ServerDep, _identity: Viewer) -> ScheduleList:
    return ScheduleList(items=[await _to_item(server.db, schedule) for schedule in await list_schedules(server.db)])


@router.post("/api/schedules", status_code=201, responses=WRITE, summary="Add a schedule")
async def make_schedule(body: AddSchedule, server: ServerDep, identity: Operator) -> ScheduleItem:
    """Add a schedule; it counts from now on. What would refuse its runs refuses it, and nothing is written."""
    head = body.model_dump(include={"name", "target", "kind", "cron", "zone", "missed", "overlap"})
    options = body.model_dump(exclude={*head, "repo_path"})
    schedule = Schedule(**head, options={k: v for k, v in options.items() if v}, created_by=identity.name)
    check_schedule(server.config, schedule)
    if body.kind == "workflow":
        repo = await server.engines.resolve_repository(body.repo_path)
        schedule = Schedule(**{**vars(schedule), "repo_path": repo.name})
        await check_runs(server.config, server.engines, schedule)
    return await _to_item(server.db, await add_schedule(server.db, server.config, schedule))


@router.get("/api/schedules/{name}", responses=READ_ONE, summary="Show a schedule")
async def show_schedule(name: ScheduleName, server: ServerDep, _identity: Viewer) -> ScheduleItem:
    return await _to_item(server.db, await get_schedule(server.db, name))


@router.patch("/api/schedules/{name}", responses=WRITE_ONE, summary="Pause a schedule, or let it go on")
async def change_schedule(
    name: ScheduleName, body: HoldSchedule, server: ServerDep, _identity: Operator
) -> ScheduleItem:
    return await _to_item(server.db, await hold_schedule(server.db, name, is_paused=body.paused))


@router.delete("/api/schedules/{name}", status_code=204, responses=WRITE_ONE, summary="Remove a schedule")
async def delete_schedule(name: ScheduleName, server: ServerDep, _identity: Operator) -> None:
    """Remove a schedule; its runs stay."""
    await remove_schedule(server.db, name)


@router.post("/api/schedules/{name}/runs", status_code=202, responses=WRITE_ONE, summary="Start its run now")
async def start_run_now(name: ScheduleName, server: ServerDep, identity: Operator) -> RunRef:
    """Start a run of a schedule now, beside its times."""
    run_id = await start_now(server.db, server.engines, name, by=identity.name)
    server.wake()
    return RunRef(run_id=run_id, state=RunStatus.PENDING)
