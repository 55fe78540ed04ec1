"""The command that prepares a repository. What is there already is left as it is."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.output import print_json, print_text

_CONFIG = """\
# Settings of holdfast. Everything here is a default: take the # away to change it.
# A variable such as HOLDFAST_DATA_DIR comes before this file, an option before both.

# Where database, worktrees and reports are.
# data_dir = "~/.local/share/holdfast"

# Another database, for many machines: postgresql://user@host/name
# database_url = "sqlite+aiosqlite:////home/you/.local/share/holdfast/holdfast.db"

# What one run, and all runs of a day, may spend, in dollars. A run that needs more pauses and asks.
# run_budget_usd = 5.0
# day_budget_usd = 20.0

# How many runs one process works on at once.
# max_parallel_runs = 4
"""
_WORKFLOW = """\
# A workflow of your own. Check it with: holdfast workflows validate .holdfast/workflows/small-change.yaml
# Rehearse it without spending money: holdfast run small-change --repo . --simulate --requirements "..."
name: small-change
version: 1
description: A small change with a review. An example to change.

# Who does the work: a role is filled by a persona that has its capabilities (holdfast personas list).
roles:
  - id: developer
    required_capabilities: [code_write, test_write]
  - id: reviewer
    required_capabilities: [code_review]

# What is done, in order. Each phase writes one file that its schema describes.
phases:
  - key: change
    title: Make the change
    role: developer
    risk: medium
    # A person looks at the result before the review begins; "never" goes on without.
    approval: always
    timeout_seconds: 3600
    instructions: |
      Make the change that is asked for, with tests. Follow the style of the files you are in.
    expected_artifact:
      path: .holdfast/results/change.json
      schema: dev/change@1
    # Commands that must succeed before the phase counts as done, for example:
    # checks:
    #   - [python, -m, pytest, -q]
  - key: review
    title: Review the change
    role: reviewer
    risk: low
    read_only: true
    timeout_seconds: 1800
    instructions: |
      Review the change against what was asked for. Name what is wrong, where, and the smallest remedy.
    expected_artifact:
      path: .holdfast/results/review.json
      schema: dev/review@1
"""


def init(
    repo: Annotated[Path, typer.Option("--repo", metavar="PATH", help="The repository to prepare.")] = Path(),
    as_json: JSON = False,
) -> None:
    """Prepare a repository: write commented settings and an example workflow, and list the models you can use.

    Example: holdfast init
    """
    from holdfast.config import load_config
    from holdfast.doctor import find_models
    from holdfast.errors import ConfigInvalid

    if not repo.is_dir():
        raise ConfigInvalid(f"{repo} is no folder.", hint="Name a repository with --repo.", key="--repo")
    config = load_config()
    files = {
        config.config_dir / "config.toml": _CONFIG,
        repo.absolute() / ".holdfast" / "workflows" / "small-change.yaml": _WORKFLOW,
    }
    written = {str(path): _write_new(path, text) for path, text in files.items()}
    models = find_models(config)
    following = _next_command(is_any_ready=any(is_ready for is_ready, _, _ in models.values()))
    if as_json:
        backends = [
            {"backend": name, "ready": is_ready, "found": finding} for name, (is_ready, finding, _) in models.items()
        ]
        file_list = [{"path": path, "written": is_new} for path, is_new in written.items()]
        print_json({"files": file_list, "backends": backends, "next": following})
        return
    for path, is_new in written.items():
        print_text(f"{'✓ wrote' if is_new else '– kept'}  {path}")
    for backend, (is_ready, finding, _) in models.items():
        print_text(f"{'✓' if is_ready else '–'} {backend}: {finding}")
    print_text(f"\nNext:\n  {following}")


def _write_new(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _next_command(*, is_any_ready: bool) -> str:
    rehearse = "" if is_any_ready else " --simulate"
    return f'holdfast run small-change{rehearse} --requirements "What you want"'
