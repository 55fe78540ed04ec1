"""Everything that the parts of one run share while one process drives it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.agents.tools.shell import probe_once
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.config import Config
from holdfast.engine.conversation.journal import is_conversation
from holdfast.engine.disk_work import run_interruptible
from holdfast.engine.history import History
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import HoldfastError, SchemaInvalid, SchemaNotFound, StoreError, WorkspaceError
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunRow
from holdfast.persona import AgentPersona
from holdfast.runtime.clock import wall_time
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.failures import describe_error
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Stopped
from holdfast.runtime.stores import read_events, read_for_owner
from holdfast.workflow import Phase, WorkflowTemplate
from holdfast.workspace import RunLease, SandboxProbe, Workspace, is_running, lease_folder, write_tree

_T = TypeVar("_T")


@dataclass(frozen=True)
class ApprovalRequest:
    """What a person is asked: the phase, its artifact, the change it made, and the digest that the answer binds to."""

    approval_id: str
    run_id: str
    phase_key: str
    title: str
    risk: str
    attempt: int
    digest: str
    content: Mapping[str, Any]
    deadline_at: str | None = None
    """Until when it can be answered; then the template's default is the answer."""

    @property
    def shown(self) -> Mapping[str, Any]:
        """The content, under the name that callbacks already use."""
        return self.content


class FilePacker(Protocol):
    """Packs the files of a run for the database."""

    async def pack_ahead(self, tree: str) -> dict[str, Any]:
        """Pack files before an event names them; return what the event says: them, or what is too big of them.

        Raises `WorkspaceError`, and `StoreError` if the database does not have what is missing here.
        """
        ...

    def raise_if_too_large(self) -> None:
        """Raise `Suspended` if files were too big: their result is recorded, and nothing may follow it."""
        ...


ApprovalCallback = Callable[[ApprovalRequest], Awaitable[ApprovalDecisionAction | str]]


@dataclass
class RunScope:
    db: Database
    config: Config
    registry: ArtifactSchemaRegistry
    approval_callback: ApprovalCallback | None
    journal: Journal
    log: RunLog
    run: RunRow
    template: WorkflowTemplate
    personas: Mapping[str, AgentPersona]
    history: History = field(default_factory=History)
    workspace: Workspace | None = None
    has_put_back: bool = False
    """The machine was restarted and the recorded files were put back: no command in flight has worked on them."""
    packer: FilePacker | None = None
    """Packs the files where they travel with the journal."""
    tree_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    current_tree: str = ""
    """The files as the last call of this turn left them; nothing where a look at the files must say."""
    earlier_commands: frozenset[str] = field(init=False)
    """Of the agents' commands those that were in flight when this process took the run over; they may be long over."""
    find_sandbox: Callable[[], SandboxProbe] = probe_once
    """Says what can contain commands on this machine."""

    def __post_init__(self) -> None:
        self.earlier_commands = frozenset(self.history.agent_commands)

    @property
    def run_id(self) -> str:
        return self.run.id

    @property
    def is_conversation(self) -> bool:
        return is_conversation(self.template)

    @property
    def place(self) -> Workspace:
        assert self.workspace is not None, "the workspace is prepared before any phase"
        return self.workspace

    @property
    def spool_dir(self) -> Path:
        return self.config.data_dir / "spool"

    @property
    def lease(self) -> RunLease | None:
        """The lease of the run; `None` where runs are held without."""
        if not self.journal.has_leases:
            return None
        return RunLease(lease_folder(self.config.data_dir), self.run_id)

    def persona_of(self, phase: Phase) -> AgentPersona:
        return self.personas[phase.role]

    def record_tree(self) -> dict[str, str]:
        """Record the files as a tree, for a caller that holds the lock; nothing while a command of an agent runs.

        Git reads the files as the user: a command that changes a folder into a link at the right moment would have it
        read what lies outside. The last of several commands records what all of them have left.
        """
        for key in tuple(self.history.agent_commands):
            if key not in self.earlier_commands or is_running(key, spool_dir=self.spool_dir):
                return {}
        return {"tree": write_tree(self.place).tree_id}

    async def record_files(self) -> dict[str, Any]:
        """Record the files as they are now; return what an event is to say of them.

        Whoever has written that event calls `raise_if_too_large`. If the files cannot be packed, that is no failure of
        the call that changed them: the drive stops, as with `on_disk`.
        """
        facts = await self.on_disk(self.record_tree)
        if self.packer is None or not facts:
            return facts
        try:
            # crash: as after every call that was made and has no result; its rule for unknown outcomes decides.
            return await self.packer.pack_ahead(facts["tree"])
        except (WorkspaceError, StoreError) as error:
            raise Stopped(error) from error

    def raise_if_too_large(self) -> None:
        """Raise `Suspended` if files that were just recorded are too big to travel."""
        if self.packer is not None:
            self.packer.raise_if_too_large()

    async def on_disk(self, work: Callable[[], _T]) -> _T:
        """Do the engine's own work on files and git in a thread, one piece at a time.

        If the disk, git or a schema file refuses, that is no failure of the phase: the drive stops with the error, and
        the run goes on from here once the cause is gone.
        """
        async with self.tree_lock:
            try:
                return await run_interruptible(work)
            except (WorkspaceError, SchemaInvalid, SchemaNotFound) as error:
                raise Stopped(error) from error
            except OSError as error:
                raise Stopped(to_workspace_error(error)) from error

    async def from_rows(self, read: Callable[[], Awaitable[_T]]) -> _T:
        """Read from the database in the middle of a drive. If it does not answer in time, the drive stops, as with the
        disk: the run goes on from here, and no phase has failed."""
        return await read_for_owner(self.journal, read)

    async def read_events(self, after: int = 0) -> list[Event]:
        """Read the run's events after this number, as `from_rows` reads."""
        return await read_events(self.journal, self.run_id, after)


def to_workspace_error(error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"{error.filename or 'The workspace'} could not be used: {error.strerror or error}.",
        hint="Mend the cause, then resume the run; nothing is lost.",
    )


def error_facts(error: BaseException) -> dict[str, str]:
    """Return an error as rows, events and reports hold it."""
    if isinstance(error, HoldfastError):
        return {"code": error.code, "message": error.message, "hint": error.hint}
    attempts = getattr(error, "__holdfast_notice__", "")  # which model it was, and where
    return {
        "code": "agent_failed",
        "message": f"{type(error).__name__}: {describe_error(error)['message']} {attempts}".rstrip(),
        "hint": "Look at the events of the phase, then retry the run.",
    }


def utc_now() -> datetime:
    """Return the time by the clock that all machines of a database share."""
    return datetime.fromtimestamp(wall_time(), UTC)
