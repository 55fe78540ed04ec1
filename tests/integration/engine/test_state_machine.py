"""Any sequence of what people and bad luck can do to a run, against a small model of its states."""

import asyncio
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.support.engine_world import Turn, World, new_world, phase, template

from holdfast.engine import RunResult
from holdfast.engine.audit import check_database
from holdfast.errors import HoldfastError

KEYS = ("spec", "plan", "code")
APPROVAL_KEY = "plan"
OUTCOMES = st.fixed_dictionaries({key: st.sampled_from(["ok", "ok", "ok", "fail", "stop"]) for key in KEYS})


class Stop(BaseException):
    """The process ends in the middle of an agent's turn."""


class Model:
    """What the contract says must become of a run."""

    def __init__(self) -> None:
        self.state = "pending"
        self.phases = dict.fromkeys(KEYS, "pending")
        self.attempts = dict.fromkeys(KEYS, 0)
        self.answer: str | None = None

    def drive(self, outcomes: dict[str, str]) -> bool:
        """Go on until the run stops; false if the process ends in the middle."""
        self.state = "running"
        for key in KEYS:
            if self.phases[key] == "completed":
                continue
            if self.phases[key] == "awaiting_approval" and not self._take_answer(key):
                return True
            if self.phases[key] == "completed":
                continue
            if self.phases[key] != "running":
                self.attempts[key] += 1
                self.phases[key] = "running"
            if outcomes[key] == "stop":
                return False
            if outcomes[key] == "fail":
                self.phases[key] = self.state = "failed"
                return True
            self.phases[key] = "completed"
            if key == APPROVAL_KEY:
                self.phases[key], self.state, self.answer = "awaiting_approval", "paused", None
                return True
        self.state = "completed"
        return True

    def _take_answer(self, key: str) -> bool:
        """False if the run stops here."""
        answer, self.answer = self.answer, None
        if answer == "approve":
            self.phases[key] = "completed"
        elif answer == "request_changes":
            self.phases[key] = "pending"
        elif answer == "reject":
            self.phases[key] = self.state = "failed"
        else:
            self.state = "cancelled" if answer == "abort" else "paused"
        return answer in ("approve", "request_changes")


class RunMachine(RuleBasedStateMachine):
    migrated: ClassVar[Path]
    repo: ClassVar[Path]

    @initialize()
    def make_run(self) -> None:
        self.model = Model()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "data").mkdir()
        shutil.copy(self.migrated, folder / "data/holdfast.db")
        self._runner = asyncio.Runner()
        url = f"sqlite+aiosqlite:///{folder}/data/holdfast.db"
        self.world: World = self._stack.enter_context(new_world(url, folder, self.repo))
        made = self.world.know(template("spec", phase(APPROVAL_KEY, risk="high"), "code"))
        self.run_id = self._do(self.world.engine().create(made, repo_path=self.world.repo))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            assert self._do(check_database(self.world.db)) == []
        finally:
            self._do(self.world.close())
            self._runner.close()
            self._stack.close()

    @property
    def is_over(self) -> bool:
        return self.model.state in ("completed", "failed", "cancelled")

    @rule(outcomes=OUTCOMES)
    def resume(self, outcomes: dict[str, str]) -> None:
        if self.is_over:
            self._expect("run_already_terminal", self._engine(outcomes).resume(self.run_id))
        else:
            self._drive(outcomes, "resume")

    @rule(outcomes=OUTCOMES)
    def retry(self, outcomes: dict[str, str]) -> None:
        if self.model.state != "failed":
            self._expect("run_not_in_state", self._engine(outcomes).retry(self.run_id))
            return
        for key, state in self.model.phases.items():
            if state == "failed":
                self.model.phases[key] = "pending"
        self._drive(outcomes, "retry")

    @precondition(lambda self: self.model.phases[APPROVAL_KEY] == "awaiting_approval" and not self.is_over)
    @rule(action=st.sampled_from(["approve", "approve", "request_changes", "reject", "abort"]))
    def decide(self, action: str) -> None:
        approvals = self._do(self.world.approvals(self.run_id, ""))
        code = "approval_answered" if self.model.answer else ""
        answering = self.world.engine().decide(self.run_id, approvals[-1].id, action)
        if code:
            self._expect(code, answering)
        else:
            self._do(answering)
            self.model.answer = action

    @rule(is_meant=st.sampled_from([False, False, True]))
    def abort(self, is_meant: bool) -> None:
        if not is_meant:
            return
        if self.is_over:
            self._expect("run_already_terminal", self.world.engine().abort(self.run_id))
            return
        assert self._do(self.world.engine().abort(self.run_id)).state.value == "cancelled"
        self.model.state = "cancelled"

    def _engine(self, outcomes: dict[str, str]) -> Any:
        async def script(turn: Turn) -> None:
            await turn.use_tool("look", lambda: "seen")
            if outcomes[turn.phase_key] == "stop":
                raise Stop
            if outcomes[turn.phase_key] == "fail":
                raise RuntimeError("no luck")
            turn.hand_in(approach=f"As best as I can {uuid.uuid4()}.")

        return self.world.engine(script)

    def _drive(self, outcomes: dict[str, str], verb: str) -> None:
        is_stopped = not self.model.drive(outcomes)
        driving = getattr(self._engine(outcomes), verb)(self.run_id)
        if is_stopped:
            with pytest.raises(Stop):
                self._do(driving)
        else:
            result: RunResult = self._do(driving)
            assert result.state.value == self.model.state
        assert self._do(self.world.run_row(self.run_id)).state == self.model.state
        assert self._do(self.world.phase_states(self.run_id)) == self.model.phases
        stored = self._do(self.world.engine().result(self.run_id))
        assert {item.key: item.attempts for item in stored.phases} == self.model.attempts

    def _expect(self, code: str, doing: Any) -> None:
        with pytest.raises(HoldfastError) as error:
            self._do(doing)
        assert error.value.code == code

    def _do(self, doing: Any) -> Any:
        return self._runner.run(doing)


def test_a_run_follows_the_model_whatever_is_done_to_it(migrated: Path, plain_repo: Path) -> None:
    RunMachine.migrated, RunMachine.repo = migrated, plain_repo

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        RunMachine,
        settings=settings(
            max_examples=6, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
