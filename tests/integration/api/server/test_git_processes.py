"""How many processes of git one simulated run takes in a server that has done one before."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.api.server_world import Api

from holdfast import engine

BUILD_AGENT = engine.build_agent  # the real one; the API of tests puts another in its place
PROGRAM, SUBCOMMAND = 0, 1


@pytest.fixture
def count(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Do a run of `spec-and-review` with the simulated model, and return the git commands that it took."""
    engine.build_agent = BUILD_AGENT
    commands: list[str] = []

    class Counted(subprocess.Popen[Any]):
        def __init__(self, args: Any, *more: Any, **options: Any) -> None:
            if isinstance(args, list) and args[PROGRAM] == "git":
                commands.append(" ".join(args[SUBCOMMAND:]))
            super().__init__(args, *more, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)

    async def run() -> list[str]:
        commands.clear()
        run_id = await api.start(workflow="spec-and-review", requirements_md="Add a flag")
        while (await api.wait_for(run_id, "completed", "failed", "paused"))["state"] == "paused":
            for item in (await api.viewer.get(f"/api/approvals?run_id={run_id}")).json()["items"]:
                await api.approver.post(f"/api/approvals/{item['approval_id']}", json={"action": "approve"})
        assert (await api.wait_for(run_id))["state"] == "completed"
        return list(commands)

    return run


async def test_a_run_in_a_warm_server_takes_twelve_git_processes(api: Api, count: Callable[[], Any]) -> None:
    await count()
    commands = await count()
    assert 0 < len(commands) <= 12, "\n".join(commands)

    # With ignore files git is asked for each tree which files are new.
    (api.repo / ".gitignore").write_text("*.tmp\n")
    _git(api.repo, "add", ".gitignore")
    _git(api.repo, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "Ignore")
    commands = await count()  # three of them are about the commit, which is new
    assert 12 < len(commands) <= 18, "\n".join(commands)


def _git(repo: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(repo), *words], check=True, capture_output=True)
