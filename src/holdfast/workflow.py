"""Workflow templates: which roles there are, and which phases they work through, in which order.

A template is checked when it is made: whatever holds a `WorkflowTemplate` can rely on its graph, roles and paths.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from holdfast.definitions.base import Argv, Definition, Key, Loc, Name, Version, WorkspacePath, check_not_empty, refuse
from holdfast.definitions.model_settings import ModelSettings
from holdfast.definitions.sandbox_rules import WorkflowSandbox
from holdfast.definitions.yaml_file import load_definition, load_definitions_from_dir
from holdfast.enums import Backend, Capability, RiskLevel
from holdfast.errors import HoldfastError, SchemaNotFound, TemplateInvalid, did_you_mean

if TYPE_CHECKING:
    from holdfast.artifact_schema import ArtifactSchemaRegistry

NonBlank = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]


class ApprovalRule(StrEnum):
    """Whether a person is asked after a phase: by its risk, always, or never."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class RequirementsRule(StrEnum):
    """Whether a run must be told what is wanted, or the workflow's instructions are enough."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class DeadlineAnswer(StrEnum):
    """What an approval that nobody answered in time is answered with. Never yes, and nothing that costs money."""

    REJECT = "reject"
    ABORT = "abort"


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_DEADLINE_S = 365 * 86_400


def to_seconds(duration: str) -> int:
    """Turn a text such as `3d` into seconds. Raises `ValueError`."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", duration)
    if found is None or int(found[1]) * _UNITS_S[found[2]] > _MAX_DEADLINE_S:
        raise ValueError("should be a duration such as 30m, 8h or 3d, up to 365d")
    return int(found[1]) * _UNITS_S[found[2]]


def _check_duration(value: str) -> str:
    to_seconds(value)
    return value


class WorkflowRole(Definition):
    """What a persona must be able to do to take part, and which backends are liked best, in order."""

    id: Key
    required_capabilities: tuple[Capability, ...] = ()
    preferred_backends: tuple[Backend, ...] = ()

    @field_validator("required_capabilities")
    @classmethod
    def _in_one_order(cls, value: tuple[Capability, ...]) -> tuple[Capability, ...]:
        return tuple(sorted(set(value)))

    @field_validator("preferred_backends")
    @classmethod
    def _each_once(cls, value: tuple[Backend, ...]) -> tuple[Backend, ...]:
        return tuple(dict.fromkeys(value))


class ExpectedArtifact(Definition):
    """The file a phase must leave in the workspace, and the schema it must satisfy."""

    path: WorkspacePath
    schema_id: NonBlank = Field(alias="schema")


class Phase(Definition):
    """One piece of work by one role, with one artifact as its result."""

    model_config = ConfigDict(protected_namespaces=())

    key: Key
    title: NonBlank
    risk: RiskLevel
    role: Key
    instructions: NonBlank
    timeout_seconds: float = Field(default=1800, gt=0, le=7 * 24 * 3600)
    expected_artifact: ExpectedArtifact
    needs: tuple[Key, ...] | None = None
    read_only: bool = False
    approval: ApprovalRule = ApprovalRule.AUTO
    approval_deadline: Annotated[str, AfterValidator(_check_duration)] | None = None
    approval_default: DeadlineAnswer = DeadlineAnswer.REJECT
    attempts: int = Field(default=1, ge=1, le=20)
    budget_usd: float | None = Field(default=None, ge=0.000001, le=1_000_000)
    model_settings: ModelSettings | None = None
    """Settings in which this phase differs from the persona that does it."""
    checks: tuple[Argv, ...] = ()

    @model_validator(mode="after")
    def _critical_needs_approval(self) -> "Phase":
        if self.risk is RiskLevel.CRITICAL and self.approval is ApprovalRule.NEVER:
            refuse([(("approval",), "a critical phase cannot go without approval")])
        return self

    @model_validator(mode="after")
    def _deadline_is_of_use(self) -> "Phase":
        if self.approval_deadline is not None and not self.requires_approval:
            refuse([(("approval_deadline",), "nobody is asked after this phase; set approval to always")])
        if self.approval_deadline is None and self.approval_default is not DeadlineAnswer.REJECT:
            refuse([(("approval_default",), "it counts only with an approval_deadline")])
        return self

    @property
    def approval_deadline_s(self) -> int | None:
        """How long a person has to answer; `None` is for ever."""
        return None if self.approval_deadline is None else to_seconds(self.approval_deadline)

    @property
    def requires_approval(self) -> bool:
        """Whether a person is asked once the artifact is valid."""
        by_risk = self.approval is ApprovalRule.AUTO and self.risk is not RiskLevel.LOW
        return by_risk or self.approval is ApprovalRule.ALWAYS

    @property
    def budget_micros(self) -> int | None:
        """The phase's limit in millionths of a dollar."""
        return None if self.budget_usd is None else round(Decimal(str(self.budget_usd)) * 1_000_000)


class Hook(Definition):
    """A command that runs before or after each call of these tools; before, one that fails keeps the call away."""

    before: tuple[Key, ...] = ()
    after: tuple[Key, ...] = ()
    run: Argv

    @model_validator(mode="after")
    def _names_tools(self) -> "Hook":
        if bool(self.before) == bool(self.after):
            refuse([(("before",), "a hook names its tools in before or in after")])
        return self


class WorkflowTemplate(Definition):
    """Roles and a graph of phases. `needs` is always filled in here: what was left out is the phase before."""

    name: Name
    version: Version
    description: str = ""
    requirements: RequirementsRule = RequirementsRule.REQUIRED
    roles: Annotated[tuple[WorkflowRole, ...], AfterValidator(check_not_empty)]
    phases: Annotated[tuple[Phase, ...], AfterValidator(check_not_empty)]
    setup: tuple[Argv, ...] = ()
    copy_files: tuple[WorkspacePath, ...] = Field(default=(), alias="copy")
    hooks: tuple[Hook, ...] = ()
    sandbox: WorkflowSandbox = WorkflowSandbox()
    """What contains the commands above and the checks; an agent's commands are up to its persona."""

    @field_validator("sandbox", mode="before")
    @classmethod
    def _is_on_or_off(cls, value: object) -> object:
        return dict.fromkeys(("setup", "checks", "hooks"), value) if isinstance(value, bool) else value

    @field_validator("phases")
    @classmethod
    def _fill_in_needs(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        filled = []
        for index, phase in enumerate(phases):
            before = (phases[index - 1].key,) if index else ()
            needs = before if phase.needs is None else tuple(dict.fromkeys(phase.needs))
            filled.append(phase.model_copy(update={"needs": needs}))
        return tuple(filled)

    @model_validator(mode="after")
    def _hangs_together(self) -> "WorkflowTemplate":
        outline = _Outline.of(self)
        refuse([*_find_doubled_names(outline), *_find_unknown_names(outline)])
        # The graph can be walked only once every name in it is known.
        refuse(_find_cycles(self))
        refuse(_find_shared_artifacts(self))
        return self

    @property
    def artifact_paths(self) -> list[str]:
        """Where the phases hand in."""
        return [phase.expected_artifact.path for phase in self.phases]

    @property
    def commands(self) -> list[Argv]:
        """Every command that a run of it starts by itself: set-up, checks, hooks."""
        checks = [argv for phase in self.phases for argv in phase.checks]
        return [*self.setup, *checks, *(hook.run for hook in self.hooks)]

    @property
    def requires_text(self) -> bool:
        """Whether the command line asks what is wanted before it starts a run."""
        return self.requirements is RequirementsRule.REQUIRED

    def role(self, role_id: str) -> WorkflowRole:
        """Return the role of that id. Raises `KeyError` if there is none."""
        return {role.id: role for role in self.roles}[role_id]

    def phase(self, phase_key: str) -> Phase:
        """Return the phase of that key. Raises `KeyError` if there is none."""
        return {phase.key: phase for phase in self.phases}[phase_key]

    def needs_of(self, phase_key: str) -> tuple[str, ...]:
        """Return the phases that must be completed right before this one."""
        return self.phase(phase_key).needs or ()

    def upstream_of(self, phase_key: str) -> tuple[str, ...]:
        """List every phase that is completed before this one can start, in the template's order of work."""
        needed: set[str] = set()
        waiting = list(self.needs_of(phase_key))
        while waiting:
            key = waiting.pop()
            if key not in needed:
                needed.add(key)
                waiting.extend(self.needs_of(key))
        return tuple(key for key in self.topological_order() if key in needed)

    def topological_order(self) -> tuple[str, ...]:
        """Return every phase after all it needs; among the ones that could be next, as they are written."""
        order: list[str] = []
        while ready := self.phases_ready(order):
            order.append(ready[0])
        return tuple(order)

    def phases_ready(self, completed: Collection[str]) -> tuple[str, ...]:
        """List the phases that can start now, as they are written: not completed themselves, all they need is."""
        done = set(completed)
        return tuple(phase.key for phase in self.phases if phase.key not in done and done.issuperset(phase.needs or ()))


def load_workflow_file(path: str | Path) -> WorkflowTemplate:
    """Read one template; raises `TemplateInvalid` with file, line and field of every problem."""
    return load_definition(Path(path), WorkflowTemplate, TemplateInvalid)


def load_workflows_from_dir(path: str | Path) -> list[WorkflowTemplate]:
    """Read every template of a folder, in the order of the file names; raises `TemplateInvalid`."""
    return list(load_definitions_from_dir(Path(path), load_workflow_file, TemplateInvalid).values())


def check_schemas(template: WorkflowTemplate, registry: "ArtifactSchemaRegistry") -> None:
    """Raise `TemplateInvalid` unless every phase's schema is in the registry and usable."""
    faults = find_schema_faults(template, registry)
    problems = [f"phase {template.phases[int(loc[1])].key}: {reason}" for loc, reason in faults]
    if problems:
        message = f"Workflow {template.name} cannot be used: {' '.join(problems)}"
        raise TemplateInvalid(message, hint="Add or correct the schemas named.", file="", problems=problems)


def find_template_faults(
    template: "WorkflowTemplate | Mapping[str, Any]", registry: "ArtifactSchemaRegistry"
) -> Iterator[tuple[Loc, str]]:
    """Find what is wrong beside the fields: schemas, and in plain data names too, which a template has right.

    Plain data may be wrong in any place; what cannot be read there is passed over.
    """
    outline = _Outline.of(template)
    if not isinstance(template, WorkflowTemplate):
        yield from _find_doubled_names(outline)
        yield from _find_unknown_names(outline)
    yield from _find_schema_faults(outline.schema_ids, registry)


def find_schema_faults(template: WorkflowTemplate, registry: "ArtifactSchemaRegistry") -> Iterator[tuple[Loc, str]]:
    """Find where a phase names a schema that is not in the registry or cannot be used, and why."""
    return _find_schema_faults(_Outline.of(template).schema_ids, registry)


def _find_schema_faults(
    schema_ids: Iterable[str | None], registry: "ArtifactSchemaRegistry"
) -> Iterator[tuple[Loc, str]]:
    for index, schema_id in enumerate(schema_ids):
        try:
            if schema_id is not None:
                registry.get_schema(schema_id)
        except SchemaNotFound as error:
            suggestion = did_you_mean(schema_id or "", registry.list_ids())
            yield ("phases", index, "expected_artifact", "schema"), error.message + suggestion
        except HoldfastError as error:
            yield ("phases", index, "expected_artifact", "schema"), error.message


@dataclass(frozen=True)
class _Outline:
    """The names in a workflow, in order; `None` where plain data has none that can be read."""

    roles: tuple[str | None, ...]
    phases: tuple[str | None, ...]
    phase_roles: tuple[str | None, ...]
    needs: tuple[tuple[str, ...], ...]
    schema_ids: tuple[str | None, ...]

    @classmethod
    def of(cls, template: "WorkflowTemplate | Mapping[str, Any]") -> "_Outline":
        if isinstance(template, WorkflowTemplate):
            return cls(
                tuple(role.id for role in template.roles),
                tuple(phase.key for phase in template.phases),
                tuple(phase.role for phase in template.phases),
                tuple(phase.needs or () for phase in template.phases),
                tuple(phase.expected_artifact.schema_id for phase in template.phases),
            )
        phases = _to_mappings(template.get("phases"))
        return cls(
            tuple(_to_name(role.get("id")) for role in _to_mappings(template.get("roles"))),
            tuple(_to_name(phase.get("key")) for phase in phases),
            tuple(_to_name(phase.get("role")) for phase in phases),
            tuple(tuple(filter(None, map(_to_name, _to_list(phase.get("needs"))))) for phase in phases),
            tuple(_to_name(_to_mapping(phase.get("expected_artifact")).get("schema")) for phase in phases),
        )


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _to_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _to_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [_to_mapping(item) for item in _to_list(value)]


def _to_name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _find_doubled_names(outline: _Outline) -> Iterator[tuple[Loc, str]]:
    roles, phases = Counter(outline.roles), Counter(outline.phases)
    for index, role in enumerate(outline.roles):
        if role is not None and roles[role] > 1:
            yield ("roles", index, "id"), f"there is more than one role {role}"
    for index, phase in enumerate(outline.phases):
        if phase is not None and phases[phase] > 1:
            yield ("phases", index, "key"), f"there is more than one phase {phase}"


def _find_unknown_names(outline: _Outline) -> Iterator[tuple[Loc, str]]:
    """Find names that nothing has; where some cannot be read, nobody knows whether it is one of these."""
    roles = set(filter(None, outline.roles)) if outline.roles and None not in outline.roles else None
    phases = set(filter(None, outline.phases)) if None not in outline.phases else None
    for index, role in enumerate(outline.phase_roles):
        if roles is not None and role is not None and role not in roles:
            names = f"the roles are {', '.join(sorted(roles))}.{did_you_mean(role, roles)}".rstrip(".")
            yield ("phases", index, "role"), f"there is no role {role}; {names}"
        for needed in outline.needs[index]:
            if phases is not None and needed not in phases:
                suggestion = did_you_mean(needed, phases)
                yield ("phases", index, "needs"), f"there is no phase {needed}" + (suggestion and f".{suggestion}")


def _find_cycles(template: WorkflowTemplate) -> Iterator[tuple[Loc, str]]:
    reachable = set(template.topological_order())
    stuck = [phase.key for phase in template.phases if phase.key not in reachable]
    for index, phase in enumerate(template.phases):
        if phase.key in stuck:
            yield ("phases", index, "needs"), f"phase {phase.key} can never start: {', '.join(stuck)} wait in a circle"


def _find_shared_artifacts(template: WorkflowTemplate) -> Iterator[tuple[Loc, str]]:
    """Find artifacts that phases side by side would write; phases that follow each other may write the same file."""
    for index, phase in enumerate(template.phases):
        for other in template.phases[:index]:
            if phase.expected_artifact.path == other.expected_artifact.path and not _in_order(template, phase, other):
                yield (
                    ("phases", index, "expected_artifact", "path"),
                    f"phase {other.key} beside it writes this file too",
                )


def _in_order(template: WorkflowTemplate, phase: Phase, other: Phase) -> bool:
    return other.key in template.upstream_of(phase.key) or phase.key in template.upstream_of(other.key)
