"""One attempt of one phase: pin the envelope, let the agent work, check the artifact, run the checks, save the files,
ask a person. Every part is a durable step in the attempt's own lane, so a resumed attempt goes on where it was.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.agents.image_blocks import to_content
from holdfast.agents.redaction import scrub_prompt
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.engine.approvals.content import describe_result
from holdfast.engine.approvals.phase import PhaseApproval
from holdfast.engine.approvals.questions import ApprovalDecision, Subject
from holdfast.engine.phase.agent_turn import MAX_TEXT_CHARS, AgentTurn, invoke_agent, last_text
from holdfast.engine.phase.artifact import (
    ArtifactCheck,
    check_artifact,
    find_in_answer,
    move_aside,
    to_artifact_error,
    write_artifact,
)
from holdfast.engine.phase.command_shell import CommandKind
from holdfast.engine.phase.commands import TemplateCommand, check_success, run_command, save_files
from holdfast.engine.phase.person_messages import with_messages
from holdfast.engine.phase.prompt import PhaseTask, render_envelope, render_repair
from holdfast.engine.phase.repair import REPAIR_TURN, more_for_repair
from holdfast.engine.scope import RunScope, utc_now
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import ApprovalRejected
from holdfast.images import read_labels
from holdfast.persistence.models import RunRow
from holdfast.persistence.statements import NewArtifactRow, complete_phase, insert_artifact, start_phase
from holdfast.runtime.events import EventKind
from holdfast.runtime.step import CancelRun, SameCommit, Step, StepKinds
from holdfast.workflow import Phase, WorkflowTemplate
from holdfast.workspace import Workspace, changed_paths, restore, write_tree
from holdfast.workspace.instruction_files import read_workspace_instructions

AGENT_TURN = StepKinds(EventKind.AGENT_STARTED, EventKind.AGENT_FINISHED, EventKind.AGENT_ERROR, EventKind.TOOL_UNKNOWN)
PIN = StepKinds(completed=EventKind.PHASE_STARTED)
_ARTIFACT_FOUND = StepKinds(completed=EventKind.ARTIFACT_WRITTEN)
_ARTIFACT_MISSING = StepKinds(completed=EventKind.ARTIFACT_REJECTED)
SAVE_FILES = StepKinds(completed=EventKind.CHECKPOINT_SAVED)
_EDIT = REPAIR_TURN + 1


@dataclass(frozen=True)
class ChangesRequested:
    """A person wants another attempt, with their comment."""

    comment: str


class PhaseAttempt:
    def __init__(self, scope: RunScope, phase: Phase, attempt: int, comment: str) -> None:
        self._scope = scope
        self._phase = phase
        self._attempt = attempt
        self._comment = comment
        self._lane_id = f"{phase.key}/{attempt}"

    async def run(self) -> ChangesRequested | None:
        """Bring the phase to its end in this attempt; `None` means it is completed.

        Raises what made it fail, `Suspended` while a person must answer, `CancelRun` if the answer was to abort.
        """
        pinned = await self._pin()
        artifact = await self._work(to_content(pinned["envelope"], read_labels(pinned.get("images"))))
        await self._run_checks()
        snapshot = await self._save_files()
        if self._phase.requires_approval:
            answer, subject = await self._get_approval(artifact)
            if answer.action is ApprovalDecisionAction.REQUEST_CHANGES:
                return ChangesRequested(answer.comment)
            self._check_approved(answer)
            if answer.artifact is not None:
                artifact, subject = await self._take_edited(answer, answer.artifact)
            snapshot = await self._save_approved(snapshot, subject)
        await self._complete(artifact, snapshot)
        return None

    # -- the parts, in order ------------------------------------------------------------------------------------------

    async def _pin(self) -> dict[str, Any]:
        """Fix what this attempt works from: the envelope, the persona, the template and the files."""
        scope, phase = self._scope, self._phase

        def pin() -> dict[str, Any]:
            rescued: str | None = None
            if not phase.read_only and (tree := scope.history.restore_to.get(phase.key)):
                # What the failed attempt left, or a person edited since, stays under a ref, and the event names it.
                rescued = restore(scope.place, tree, at=utc_now()).rescue_ref
            moved = move_aside(scope.place.root, phase, self._attempt)
            instructions = read_workspace_instructions(scope.place).with_skills(scope.persona_of(phase).skills)
            return {
                "envelope": scrub_prompt(
                    render_envelope(
                        PhaseTask(
                            scope.template,
                            phase,
                            run_id=scope.run_id,
                            attempt=self._attempt,
                            requirements_md=scope.run.requirements_md,
                            comment=self._comment,
                            moved_aside=moved,
                            instructions=instructions.render(),
                            images=scope.history.images,
                        ),
                        scope.registry,
                    )
                ),
                **({"images": [label.to_dict() for label in scope.history.images]} if scope.history.images else {}),
                "persona": scope.persona_of(phase).name,
                "persona_hash": scope.persona_of(phase).content_hash,
                "template_hash": scope.run.template_hash,
                "tree": write_tree(scope.place).tree_id,
                "moved_aside": moved,
                "instruction_files": instructions.names,
                "skills": [skill.name for skill in instructions.skills],
                **({"rescue_ref": rescued} if rescued else {}),
            }

        rows = [start_phase(scope.run_id, phase.key, attempt=self._attempt)]
        step = self._step("start", PIN, with_result=lambda _result: SameCommit(rows=rows))
        pinned: dict[str, Any] = await scope.log.step(step, lambda: scope.on_disk(pin))
        scope.history.restore_to.pop(phase.key, None)
        scope.history.accepted_tree.setdefault(phase.key, pinned["tree"])
        return pinned

    async def _work(self, envelope: str | list[Any]) -> ArtifactCheck:
        """Let the agent work, and once more if what it hands in is not right. Raises `ArtifactMissing`/`…Invalid`."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": envelope}]
        found = ArtifactCheck(is_missing=True)
        for turn in (1, REPAIR_TURN):
            answer = await self._invoke(turn, messages)
            found = await self._check_artifact(turn, answer)
            if found.is_valid:
                return found
            artifact = self._phase.expected_artifact
            repair = render_repair(artifact.path, artifact.schema_id, found.findings, is_missing=found.is_missing)
            messages = [*messages[:1], {"role": "user", "content": repair}]
        raise to_artifact_error(self._phase, found)

    async def _invoke(self, turn: int, messages: list[dict[str, Any]]) -> str | None:
        """Let the agent work once; return its answer if that is the artifact itself, for which only a repair asks."""
        scope, phase = self._scope, self._phase
        step = self._step(f"turn{turn}", AGENT_TURN, has_intent=True)
        more = more_for_repair(scope, phase) if turn == REPAIR_TURN else None

        async def invoke() -> dict[str, Any]:
            middleware = with_messages(scope, phase, f"{self._lane_id}/turn{turn}", more)
            request = AgentTurn(phase, self._attempt, f"turn{turn}", messages, middleware)
            result = await invoke_agent(scope, request)
            said = last_text(result, limit=None)
            answer = await scope.on_disk(lambda: find_in_answer(said, phase, scope.registry)) if more else None
            return {"text": said[:MAX_TEXT_CHARS], **({} if answer is None else {"answer": answer})}

        done: dict[str, Any] = await scope.log.step(step, invoke)
        return done.get("answer")

    async def _check_artifact(self, turn: int, answer: str | None = None) -> ArtifactCheck:
        scope, phase = self._scope, self._phase

        def look() -> ArtifactCheck:
            found = check_artifact(scope.place.root, phase, scope.run_id, scope.registry)
            if found.is_valid or answer is None:
                return found
            # crash: the turn's record has the answer, and whoever resumes writes it again.
            write_artifact(scope.place.root, phase, answer)
            return check_artifact(scope.place.root, phase, scope.run_id, scope.registry)

        found = await scope.on_disk(look)

        def beside(_result: Any) -> SameCommit:
            if found.is_missing:
                return SameCommit()
            kind = EventKind.ARTIFACT_ACCEPTED if found.is_valid else EventKind.ARTIFACT_REJECTED
            event = scope.log.event(
                kind, self._lane_id, phase=phase.key, attempt=self._attempt, turn=turn, hash=found.hash
            )
            return SameCommit([event], [insert_artifact(self._to_row(turn, found))])

        kinds = _ARTIFACT_MISSING if found.is_missing else _ARTIFACT_FOUND
        details = {"turn": turn, "path": phase.expected_artifact.path, "schema": phase.expected_artifact.schema_id}
        step = self._step(f"artifact{turn}", kinds, details=details, with_result=beside)
        recorded = ArtifactCheck.from_result(await scope.log.step(step, found.to_result))
        # A resumed attempt judges by what was recorded; the text is only that of the file as it lies there now.
        return replace(recorded, text=found.text)

    def _to_row(self, turn: int, found: ArtifactCheck) -> NewArtifactRow:
        return NewArtifactRow(
            run_id=self._scope.run_id,
            phase_key=self._phase.key,
            attempt=self._attempt,
            turn=turn,
            path=self._phase.expected_artifact.path,
            schema_id=self._phase.expected_artifact.schema_id,
            hash=found.hash,
            state="accepted" if found.is_valid else "rejected",
            findings=[finding.to_dict() for finding in found.findings],
            content=found.text,
        )

    async def _run_checks(self) -> None:
        """Raise `ChecksFailed` with the output of the first command that does not exit with 0."""
        for number, argv in enumerate(self._phase.checks, 1):
            command = TemplateCommand(
                CommandKind.CHECKS, self._lane_id, f"check{number}", argv, self._phase, self._attempt
            )
            result = await run_command(self._scope, command)
            check_success(self._scope, command, result, f"The check {command.line!r} of phase {self._phase.key!r}")

    async def _save_files(self) -> dict[str, Any]:
        """Save the files of this attempt under a ref of its own."""
        return await save_files(self._scope, self._phase, self._attempt, self._step("snapshot", SAVE_FILES))

    async def _save_approved(self, snapshot: dict[str, Any], subject: Subject) -> dict[str, Any]:
        """Save the files again if a person changed them while they waited: what was approved is the result."""
        scope, own = self._scope, self._phase.expected_artifact.path
        others = _to_git_paths(scope.place, [path for path in scope.template.artifact_paths if path != own])

        def find_changed() -> list[str]:
            paths = changed_paths(scope.place.repo, snapshot["tree"], subject.tree)
            return [path for path in paths if not _is_artifact(path, others)]

        if not await scope.on_disk(find_changed):
            return snapshot
        return await save_files(
            scope, self._phase, self._attempt, self._step(f"snapshot-{subject.tree[:12]}", SAVE_FILES)
        )

    async def _get_approval(self, artifact: ArtifactCheck) -> tuple[ApprovalDecision, Subject]:
        scope = self._scope
        subject = await scope.on_disk(
            lambda: current_subject(scope.place, self._phase, scope.template, scope.registry, scope.run)
        )
        content = await describe_result(scope, self._phase, self._attempt, artifact.text, subject.tree)
        answer = await PhaseApproval(scope, self._phase, self._attempt, self._lane_id).get(subject, content)
        return answer, subject

    async def _take_edited(self, answer: ApprovalDecision, text: str) -> tuple[ArtifactCheck, Subject]:
        """Put the artifact as the person edited it in the place of the agent's."""
        scope, phase = self._scope, self._phase

        def write() -> dict[str, Any]:
            write_artifact(scope.place.root, phase, text)
            return check_artifact(scope.place.root, phase, scope.run_id, scope.registry).to_result()

        def beside(result: Any) -> SameCommit:
            found = replace(ArtifactCheck.from_result(result), text=text)
            facts = {"phase": phase.key, "attempt": self._attempt, "turn": _EDIT, "hash": found.hash, "by": answer.by}
            event = scope.log.event(EventKind.ARTIFACT_ACCEPTED, self._lane_id, **facts)
            return SameCommit([event], [insert_artifact(self._to_row(_EDIT, found))])

        details = {"turn": _EDIT, "path": phase.expected_artifact.path, "by": answer.by}
        step = self._step(f"artifact{_EDIT}", _ARTIFACT_FOUND, details=details, with_result=beside)
        recorded = ArtifactCheck.from_result(await scope.log.step(step, lambda: scope.on_disk(write)))
        if not recorded.is_valid:  # the schema is not the one any more by which the answer was checked
            raise to_artifact_error(phase, recorded)
        subject = await scope.on_disk(
            lambda: current_subject(scope.place, phase, scope.template, scope.registry, scope.run)
        )
        return replace(recorded, text=text), subject

    def _check_approved(self, answer: ApprovalDecision) -> None:
        if answer.action is ApprovalDecisionAction.ABORT:
            raise CancelRun(answer.comment, answer.by)
        if answer.action is ApprovalDecisionAction.REJECT:
            raise ApprovalRejected(
                f"{answer.by or 'A person'} rejected phase {self._phase.key!r}: {answer.comment or 'no comment'}.",
                hint="Retry the run for another attempt, or fork it before this phase.",
                action="reject",
                comment=answer.comment,
            )

    async def _complete(self, artifact: ArtifactCheck, snapshot: dict[str, Any]) -> None:
        scope = self._scope
        event = scope.log.event(
            EventKind.PHASE_COMPLETED,
            self._lane_id,
            phase=self._phase.key,
            attempt=self._attempt,
            artifact=self._phase.expected_artifact.path,
            artifact_hash=artifact.hash,
            tree=snapshot["tree"],
            snapshot=snapshot["ref"],
        )
        row = complete_phase(scope.run_id, self._phase.key, tree=snapshot["tree"], snapshot=snapshot["ref"])
        await scope.log.append(event, rows=[row])

    def _step(self, name: str, kinds: StepKinds, **options: Any) -> Step:
        details = {"phase": self._phase.key, "attempt_no": self._attempt, **options.pop("details", {})}
        return Step(f"{self._lane_id}/{name}", self._lane_id, kinds=kinds, details=details, **options)


def current_subject(
    workspace: Workspace, phase: Phase, template: WorkflowTemplate, registry: ArtifactSchemaRegistry, run: RunRow
) -> Subject:
    """Return what an approval of this phase would be about, by what lies in the workspace now."""
    found = check_artifact(workspace.root, phase, run.id, registry)
    artifacts = _to_git_paths(workspace, template.artifact_paths)
    tree = write_tree(workspace).tree_id
    listed = workspace.git.run("ls-tree", "-r", "-z", "--full-tree", tree).names
    files = [entry for entry in listed if not _is_artifact(entry.partition("\t")[2], artifacts)]
    digest = hashlib.sha256("\0".join(files).encode(errors="surrogateescape")).hexdigest()
    return Subject(found.hash, digest, run.template_hash, tree)


def _to_git_paths(workspace: Workspace, paths: Iterable[str]) -> list[str]:
    """Return the paths of artifacts as git names them, from the worktree on."""
    prefix = workspace.root.relative_to(workspace.worktree)
    return [(prefix / path).as_posix() for path in paths]


def _is_artifact(path: str, artifacts: list[str]) -> bool:
    return any(path == artifact or path.startswith(f"{artifact}.before-") for artifact in artifacts)
