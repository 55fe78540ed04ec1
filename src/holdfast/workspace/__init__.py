"""Where a run works: its git worktree, snapshots of it, the way of its result to the user, and detached commands."""

from holdfast.workspace.commands.bubblewrap import to_sandboxed
from holdfast.workspace.commands.enclosure import Enclosed, enclose
from holdfast.workspace.commands.git_view import open_git_view
from holdfast.workspace.commands.network_log import NetworkRequest, to_facts
from holdfast.workspace.commands.sandbox import (
    GitView,
    ResourceLimits,
    Sandbox,
    SandboxKind,
    open_sandbox,
    workspace_sandbox,
)
from holdfast.workspace.commands.sandbox_probe import SandboxProbe, find_bubblewrap, find_landlock, find_sandbox
from holdfast.workspace.commands.spool import (
    CommandState,
    Outcome,
    SpoolOptions,
    clean_environment,
    find_command,
    is_lost,
    remove_spooled,
    run_spooled,
    spool_folder,
    stop_spooled,
)
from holdfast.workspace.copied_files import CopyReport, copy_files
from holdfast.workspace.copy_back import Delivered, deliver_result
from holdfast.workspace.diff import DiffSummary, FileChange, changed_paths, diff, has_object, is_named, summarize_diff
from holdfast.workspace.git import Author, Git
from holdfast.workspace.merge import MergeAction, Merged, MergeOptions, ResultBranch, make_branch, merge_result
from holdfast.workspace.private_repository import CopyLimits
from holdfast.workspace.restore import Removed, Restored, remove_workspace, restore
from holdfast.workspace.result import ResultStep, find_author, leave_out
from holdfast.workspace.setup_files import LeftOutGroup, SetupFiles, inherit_setup, read_setup, record_setup
from holdfast.workspace.snapshot import LeftOut, LeftOutReason, Snapshot, SnapshotRules, Tree, snapshot, write_tree
from holdfast.workspace.start import Start, find_current_branch, find_start
from holdfast.workspace.worktree import Workspace, open_workspace, prepare_workspace

__all__ = [
    "Workspace",
    "prepare_workspace",
    "open_workspace",
    "Start",
    "find_start",
    "find_current_branch",
    "CopyLimits",
    "copy_files",
    "CopyReport",
    "write_tree",
    "snapshot",
    "restore",
    "remove_workspace",
    "Tree",
    "Snapshot",
    "SnapshotRules",
    "LeftOut",
    "LeftOutReason",
    "Restored",
    "Removed",
    "diff",
    "has_object",
    "is_named",
    "summarize_diff",
    "changed_paths",
    "DiffSummary",
    "FileChange",
    "merge_result",
    "make_branch",
    "deliver_result",
    "find_author",
    "ResultStep",
    "Merged",
    "MergeAction",
    "MergeOptions",
    "leave_out",
    "SetupFiles",
    "LeftOutGroup",
    "record_setup",
    "read_setup",
    "inherit_setup",
    "ResultBranch",
    "Delivered",
    "Author",
    "Git",
    "run_spooled",
    "stop_spooled",
    "remove_spooled",
    "spool_folder",
    "find_command",
    "is_lost",
    "clean_environment",
    "Outcome",
    "SpoolOptions",
    "CommandState",
    "Sandbox",
    "SandboxProbe",
    "workspace_sandbox",
    "to_sandboxed",
    "find_bubblewrap",
    "find_landlock",
    "find_sandbox",
    "SandboxKind",
    "open_sandbox",
    "open_git_view",
    "GitView",
    "ResourceLimits",
    "Enclosed",
    "enclose",
    "NetworkRequest",
    "to_facts",
]
