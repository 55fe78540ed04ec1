"""How much the sandbox costs a command: `python -m benchmarks.sandbox`, bare and in each kind that works here.

A command is measured from its request to its outcome, as an agent has it: the rules are made, the runner starts, the
command runs, what it left is ended. By turns, since the machine may be busy; the best of each counts. At most 1.5 times
the bare command and 15 ms are allowed.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from holdfast.workspace import (
    SandboxProbe,
    SpoolOptions,
    Workspace,
    clean_environment,
    enclose,
    find_bubblewrap,
    find_landlock,
    open_git_view,
    prepare_workspace,
    run_spooled,
    spool_folder,
    workspace_sandbox,
)

ROUNDS = int(os.environ.get("ROUNDS", "15"))
COMMANDS = {"true": "true", "git status": "git status --short", "python": "python3 -c pass"}
FACTOR, EXTRA_S = 1.5, 0.015


def make_workspace(folder: Path) -> Workspace:
    repo = folder / "repo"
    repo.mkdir()
    (repo / "a.txt").write_text("one\n")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        git = ["git", "-c", "user.name=Bench", "-c", "user.email=bench@localhost"]
        subprocess.run([*git, *words], cwd=repo, check=True)
    return prepare_workspace(repo, data_dir=folder / "data", run_id="bench")


async def measure(workspace: Workspace, line: str, probe: SandboxProbe | None, key: str) -> float:
    data_dir = workspace.worktree.parents[1]
    # An agent's turn makes it once for all its commands.
    sandbox = workspace_sandbox(workspace, data_dir=data_dir, home=Path.home(), env=clean_environment())
    started = time.perf_counter()
    argv, confinement = ["/bin/sh", "-c", line], None
    if probe is not None:
        enclosed = enclose(
            replace(sandbox, git=open_git_view(workspace, lambda _path: False)),
            argv,
            cwd=workspace.root,
            folder=spool_folder(data_dir / "spool", key),
            probe=probe,
        )
        argv, confinement = enclosed.argv, enclosed.confinement
    options = SpoolOptions(timeout_s=60, confinement=confinement)
    outcome = await run_spooled(key, argv, cwd=workspace.root, spool_dir=data_dir / "spool", options=options)
    assert outcome.exit_code == 0, outcome.output
    return time.perf_counter() - started


async def measure_all(workspace: Workspace, kinds: dict[str, SandboxProbe | None]) -> dict[tuple[str, str], float]:
    best: dict[tuple[str, str], float] = {}
    for number in range(ROUNDS + 1):
        for name, line in COMMANDS.items():
            for kind, probe in kinds.items():
                took = await measure(workspace, line, probe, f"{name}-{kind}-{number}")
                if number:  # the first round makes the view of git, and warms up
                    best[name, kind] = min(took, best.get((name, kind), took))
    return best


def main() -> int:
    kinds: dict[str, SandboxProbe | None] = {"bare": None}
    for probe in (find_bubblewrap(), find_landlock()):
        if probe.kind is None:
            print(probe.reason)
        else:
            kinds[probe.kind.value] = probe
    with tempfile.TemporaryDirectory() as folder:
        best = asyncio.run(measure_all(make_workspace(Path(folder).resolve()), kinds))
    is_met = True
    for (name, kind), took in best.items():
        limit = FACTOR * best[name, "bare"] + EXTRA_S
        is_met &= took <= limit
        print(f"{name:<12} {kind:<12} {took * 1000:6.1f} ms   at most {limit * 1000:6.1f} ms")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
