"""How long a worker that is stopped waits: for calls of workflows shortly if it is told so, for flows to their end."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from holdfast.fleet.run_drive import NoDrive, WorkflowDrive
from holdfast.fleet.worker import Worker, WorkerOptions


class QuietQueue:
    """A queue of this process in which nothing is due."""

    def describe(self) -> Any:
        return SimpleNamespace(is_shared=False)

    async def stop(self) -> None: ...

    async def put_back(self, run_ids: list[str]) -> None: ...


class SilentModel(WorkflowDrive):
    """A run whose model never answers."""

    def __init__(self) -> None: ...

    def drain(self) -> bool:
        return True


class LongStep(NoDrive):
    """A flow in the middle of a step."""

    def drain(self) -> bool:
        return True


async def test_a_run_of_a_workflow_is_given_up_before_a_flow_is() -> None:
    options = WorkerOptions(grace_s=3600.0, workflow_grace_s=0.0)
    nothing = cast(Any, None)
    worker = Worker(nothing, nothing, cast(Any, QuietQueue()), nothing, nothing, options)
    call = asyncio.create_task(asyncio.Event().wait())
    step = asyncio.create_task(asyncio.wait([call]))  # ends by itself, once the other has been given up
    idle: Any = asyncio.create_task(asyncio.Event().wait())
    worker._background = [idle]
    worker._tasks.update({"run": cast(Any, call), "flow": cast(Any, step)})
    worker._open.update({"run": SilentModel(), "flow": LongStep()})

    await worker.stop()

    assert call.cancelled()
    assert step.done()
    assert not step.cancelled()
