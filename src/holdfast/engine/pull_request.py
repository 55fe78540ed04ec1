"""A run's result as a branch of the host that its repository is at, and the form there that asks for its merge.

A run on a URL merges into a branch of the URL, as always. The result of a run on a clone is pushed to the clone's
remote: no branch of the user's is made or moved, only what git itself notes of a push, the remote's branch as it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.engine.scope import utc_now
from holdfast.errors import PullRequestFormMissing, WorkspaceError
from holdfast.persistence.models import RunRow
from holdfast.workspace import Git, Merged, MergeOptions, ResultStep, Workspace, merge_result, open_workspace
from holdfast.workspace.result import list_base_commits
from holdfast.workspace.transfer.clone_remote import open_clone_remote
from holdfast.workspace.transfer.pull_request_form import PullRequestForm, find_form_of_clone, find_pull_request_form
from holdfast.workspace.transfer.remotes import is_remote


def find_form(data_dir: Path, run: RunRow) -> PullRequestForm | None:
    """Find where the host of a run's repository takes a pull request; `None` where it has no known form."""
    if is_remote(run.repo_path):
        return find_pull_request_form(run.repo_path, base=run.base_branch, title=run.title, run_id=run.id)
    try:
        workspace = open_workspace(data_dir, run.id)
        if workspace.is_private or workspace.is_carried:
            return None
        return find_form_of_clone(workspace.repo, base=run.base_branch, title=run.title, run_id=run.id)
    except WorkspaceError:  # its folder is not here, or is no repository any more
        return None


def get_form(data_dir: Path, run: RunRow) -> PullRequestForm:
    """Return what `find_form` finds. Raises `PullRequestFormMissing`."""
    form = find_form(data_dir, run)
    if form is None:
        raise PullRequestFormMissing(
            f"The repository {run.repo_path} has no remote at a host whose form for pull requests is known.",
            repository=run.repo_path,
        )
    return form


def push_result(
    workspace: Workspace,
    steps: Sequence[ResultStep],
    form: PullRequestForm,
    *,
    own: Sequence[str],
    options: MergeOptions,
) -> Merged:
    """Push the result to the branch of the clone's remote. A dry run only looks at what is there.

    May be repeated: what the branch has of the result is not brought again. Raises `WorkspaceConflict` and
    `RepositoryMissing` with nothing changed.
    """
    with open_clone_remote(workspace, form) as remote:
        tip = remote.fetch(form.branch)
        options = replace(options, can_create=True, is_elsewhere=True, tip=tip)
        merged = merge_result(workspace, steps, target_branch=form.branch, at=utc_now(), without=own, options=options)
        git, tracked = Git(git_dir=workspace.repo), f"refs/remotes/{form.remote}/"
        if not options.is_dry_run and not merged.is_empty:
            if merged.commit != tip:
                remote.push(merged.commit, form.branch)
            # crash: the remote has the branch; the same again finds it there, and comes to this line.
            git.run("update-ref", "-m", "holdfast merge", f"{tracked}{form.branch}", merged.commit)
        target = git.find("rev-parse", "--verify", "--quiet", f"{tracked}{form.target}")
        others = list_base_commits(workspace, target) if target and tip is None else ()
        return replace(merged, base_commits=others)
