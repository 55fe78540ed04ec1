"""The files of a run on their way into the database: a pack for each recorded tree, in the transaction of its event.

Rule: a pack is thin against what is committed, so whoever reads the packs in order can unpack each of them. At the end
of a phase one pack takes the place of its steps; it holds what a retry or a fork can start from.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.engine.disk_work import run_interruptible
from holdfast.engine.run.local_files import unpack_all
from holdfast.engine.scope import RunScope, to_workspace_error
from holdfast.enums import PauseReason
from holdfast.errors import WorkspaceError, WorkspaceTooLarge
from holdfast.persistence.carried_files import PackLabel, list_packs
from holdfast.persistence.statements import NewTreePack, drop_step_packs, insert_tree_pack
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.step import Suspended
from holdfast.workspace import find_place, write_tree
from holdfast.workspace.refs import run_refs, setup_refs
from holdfast.workspace.transfer.packs import make_pack

_log = logging.getLogger(__name__)
_MIB = 1024**2
_ENDS = (EventKind.PHASE_COMPLETED, EventKind.PHASE_FAILED, EventKind.PHASE_REOPENED)


class FilesTooLarge(Suspended):
    """What is to travel is too big: a person takes the biggest files away, and the run goes on where it stands."""

    reason = PauseReason.FILES

    def __init__(self, error: WorkspaceTooLarge) -> None:
        super().__init__(error.message)
        self.error: WorkspaceTooLarge = error


class FileCarrier:
    """Makes the rows that carry what events name. One for each drive."""

    def __init__(self, scope: RunScope, packs: Iterable[PackLabel]) -> None:
        self._scope = scope
        self._packs = list(packs)
        self._last_number = max((pack.number for pack in self._packs), default=0)
        self._pending: dict[int, tuple[PackLabel, bool]] = {}
        self._ready: dict[str, bytes] = {}
        """Packs of single trees that no event names yet."""
        self._too_large: FilesTooLarge | None = None
        self._max_bytes = scope.config.carry_step_max_mb * _MIB
        self._starts = set(scope.history.started_from.values()) | set(scope.history.accepted_tree.values())
        self._open = set(scope.history.open_phases)

    async def pack_ahead(self, tree: str) -> dict[str, Any]:
        """Pack a tree before an event names it; return what the event says of it: its id, or what is too big of it."""
        if tree not in self._ready and tree not in self._list_known():
            try:
                self._ready[tree] = await self._pack([tree], self._thin_against())
            except WorkspaceTooLarge as error:
                self._too_large = self._to_pause(error)
                return {"not_carried": list(error.facts["paths"])}
        return {"tree": tree}

    def raise_if_too_large(self) -> None:
        """Raise `FilesTooLarge` if what was packed ahead was too big."""
        if self._too_large is not None:
            raise self._too_large

    async def make_rows(self, events: Sequence[Event]) -> Sequence[Statement]:
        """Pack what these events name and no pack has yet. Raises `FilesTooLarge`; nothing is to be written then."""
        if self._scope.workspace is None:
            return ()  # nothing is recorded before there are files
        objects, refs = self._find_new(events)
        rows: list[Statement] = []
        if objects:
            rows.append(self._to_row("step", objects, refs, await self._pack_step(objects)))
        if self._note_phases(events):
            rows += await self._replace_steps()
        return rows

    def note_written(self, rows: Sequence[Statement]) -> None:
        for row in rows:
            label, is_phase = self._pending.pop(row.params.get("number", 0), (None, False))
            if label is None:
                continue
            if is_phase:
                self._packs = [pack for pack in self._packs if pack.kind != "step" or pack.number > label.number]
            self._packs.append(label)

    def _find_new(self, events: Sequence[Event]) -> tuple[list[str], dict[str, str]]:
        known = self._list_known()
        refs: dict[str, str] = {}
        objects: list[str] = []
        for event in events:
            refs |= self._find_refs(event)
            objects += [name for name in _find_trees(event) if name not in known]
        refs = {name: commit for name, commit in refs.items() if commit not in known}
        return list(dict.fromkeys([*objects, *refs.values()])), refs

    def _list_known(self) -> set[str]:
        """List what is committed. Of what is being written it is not known yet: two packs of one tree do no harm."""
        return {name for pack in self._packs for name in pack.objects}

    def _find_refs(self, event: Event) -> dict[str, str]:
        """Return what commits an event names, by the ref that keeps each of them."""
        result = event.payload.get("result")
        commit = result.get("commit") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(commit, str):
            return {}
        prefix = f"{run_refs(self._scope.run_id)}/"
        if "setup_tree" in result:
            return {f"{setup_refs(self._scope.run_id)}/{commit[:20]}".removeprefix(prefix): commit}
        ref = result.get("ref")
        return {ref.removeprefix(prefix): commit} if isinstance(ref, str) and ref.startswith(prefix) else {}

    def _note_phases(self, events: Sequence[Event]) -> bool:
        """Follow which phases are under way; return whether the last one of them has just been completed."""
        is_completed = False
        for event in events:
            phase = str(event.payload.get("phase"))
            if event.kind == EventKind.PHASE_STARTED:
                self._open.add(phase)
                self._starts.update(_find_trees(event))
            elif event.kind in _ENDS:
                self._open.discard(phase)
                is_completed |= event.kind == EventKind.PHASE_COMPLETED
        return is_completed and not self._open

    async def _replace_steps(self) -> list[Statement]:
        """Put one pack in the place of the steps' so far; they stay if that cannot be."""
        steps = [pack for pack in self._packs if pack.kind == "step"]
        steps += [label for label, _ in self._pending.values()]
        if not steps:
            return []
        refs = {name: commit for pack in steps for name, commit in pack.refs.items()}
        last = [name for pack in steps[-1:] for name in pack.objects]
        trees = [name for pack in steps for name in pack.objects if name in self._starts]
        objects = list(dict.fromkeys([*refs.values(), *trees, *last]))
        earlier = [name for pack in self._packs if pack.kind != "step" for name in pack.objects]
        self._ready.clear()  # they may be thin against what goes now
        try:
            pack = await self._pack(objects, [self._scope.place.base_commit, *earlier])
        except WorkspaceTooLarge:
            _log.warning("the packs of a phase stay as they are", extra={"run_id": self._scope.run_id})
            return []
        row = self._to_row("phase", objects, refs, pack)
        return [row, drop_step_packs(self._scope.run_id, row.params["number"])]

    def _thin_against(self) -> list[str]:
        last = self._packs[-1].objects if self._packs else ()
        return [self._scope.place.base_commit, *last]

    async def _pack_step(self, objects: list[str]) -> bytes:
        ready = self._ready.pop(objects[0], None) if len(objects) == 1 else None
        try:
            return ready or await self._pack(objects, self._thin_against())
        except WorkspaceTooLarge as error:
            raise self._to_pause(error) from error

    async def _pack(self, objects: list[str], without: list[str]) -> bytes:
        """Make a pack. Raises `WorkspaceTooLarge`, `WorkspaceError` and, while the database is away, `StoreError`."""
        repo = self._scope.place.repo

        def make() -> bytes:
            try:
                return make_pack(repo, objects, without=without, max_bytes=self._max_bytes)
            except OSError as error:
                raise to_workspace_error(error) from error

        try:
            return await run_interruptible(make)
        except WorkspaceTooLarge:
            raise
        except WorkspaceError:
            # A `git gc --prune=now` of the user's has thrown away what no ref reaches: the database has what was
            # recorded before, and the files are still there.
            await self._scope.from_rows(lambda: unpack_all(self._scope.db, self._scope.run_id, repo))
            await self._scope.on_disk(lambda: write_tree(self._scope.place))
            return await run_interruptible(make)

    def _to_row(self, kind: str, objects: list[str], refs: dict[str, str], pack: bytes) -> Statement:
        self._last_number += 1
        label = PackLabel(self._last_number, kind, tuple(objects), refs)
        self._pending[label.number] = (label, kind == "phase")
        return insert_tree_pack(NewTreePack(self._scope.run_id, label.number, kind, objects, refs, pack))

    def _to_pause(self, error: WorkspaceTooLarge) -> FilesTooLarge:
        """Return the pause for a person who is to take files away, and say where they are."""
        place = self._scope.place
        host = find_place(self._scope.config.data_dir).host
        hint = (
            f"Remove them from {place.root} on {host}, or list them in its .gitignore, or raise carry_step_max_mb; "
            f"then: holdfast resume {self._scope.run_id[:8]}. Nothing is repeated."
        )
        return FilesTooLarge(WorkspaceTooLarge(error.message, hint=hint, **error.facts))


def _find_trees(event: Event) -> Iterator[str]:
    """Yield the trees that an event names: what was there before and after, and what a person is asked about."""
    result, subject = event.payload.get("result"), event.payload.get("subject")
    found: list[Any] = [event.payload.get("tree_before"), event.payload.get("tree")]
    found += [part.get("tree") for part in (result, subject) if isinstance(part, dict)]
    yield from (name for name in found if isinstance(name, str) and name)


async def carry_files_of_place(scope: RunScope) -> None:
    """Carry what was too big when it was made, before anything builds on it. Raises `FilesTooLarge` if it still is."""
    if scope.packer is None or not scope.history.needs_files_of_place:
        return
    facts = await scope.record_files()
    scope.raise_if_too_large()
    if facts:  # else a command still works on them, and its result says how they are
        await scope.log.append(scope.log.event(EventKind.WORKSPACE_CARRIED, **facts))
        scope.history.not_carried.clear()


async def open_carrier(scope: RunScope) -> FileCarrier | None:
    """Return what carries the files of a run, if they are to travel."""
    if not scope.config.carries_files:
        return None
    return FileCarrier(scope, await list_packs(scope.db, scope.run_id))
