"""Where a run works: its git worktree, snapshots of it, the way of its result to the user, and detached commands."""

from holdfast.workspace.commands.bubblewrap import to_sandboxed
from holdfast.workspace.commands.enclosure import Enclosed, enclose
from holdfast.workspace.commands.git_view import open_git_view
from holdfast.workspace.commands.network_log import NetworkRequest, record_requests
from holdfast.workspace.commands.place import CommandPlace, announce, find_place, is_announced
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
    find_commands,
    find_duration,
    is_lost,
    is_running,
    list_commands,
    remove_spooled,
    run_spooled,
    spool_folder,
    stop_command,
    stop_spooled,
)
from holdfast.workspace.copied_files import CopyReport, copy_files
from holdfast.workspace.copy_back import Delivered, deliver_result
from holdfast.workspace.diff import (
    DiffSummary,
    FileChange,
    changed_paths,
    diff,
    find_cut,
    has_object,
    is_named,
    summarize_diff,
)
from holdfast.workspace.git import Author, Git
from holdfast.workspace.merge import MergeAction, Merged, MergeOptions, ResultBranch, make_branch, merge_result
from holdfast.workspace.private_repository import CopyLimits
from holdfast.workspace.restore import Removed, Restored, remove_workspace, restore
from holdfast.workspace.result import ResultStep, find_author, leave_out
from holdfast.workspace.setup_files import LeftOutGroup, SetupFiles, inherit_setup, read_setup, record_setup
from holdfast.workspace.snapshot import (
    LeftOut,
    LeftOutReason,
    Snapshot,
    SnapshotRules,
    Tree,
    snapshot,
    write_tree,
)
from holdfast.workspace.start import Start, find_current_branch, find_start
from holdfast.workspace.worktree import Workspace, open_workspace, prepare_workspace

__all__ = [
    "Author",
    "CommandPlace",
    "CommandState",
    "CopyLimits",
    "CopyReport",
    "Delivered",
    "DiffSummary",
    "Enclosed",
    "FileChange",
    "Git",
    "GitView",
    "LeftOut",
    "LeftOutGroup",
    "LeftOutReason",
    "MergeAction",
    "MergeOptions",
    "Merged",
    "NetworkRequest",
    "record_requests",
    "Outcome",
    "Removed",
    "ResourceLimits",
    "Restored",
    "ResultBranch",
    "ResultStep",
    "Sandbox",
    "SandboxKind",
    "SandboxProbe",
    "SetupFiles",
    "Snapshot",
    "SnapshotRules",
    "SpoolOptions",
    "Start",
    "Tree",
    "Workspace",
    "announce",
    "changed_paths",
    "clean_environment",
    "copy_files",
    "deliver_result",
    "diff",
    "enclose",
    "find_author",
    "find_bubblewrap",
    "find_command",
    "find_current_branch",
    "find_cut",
    "find_landlock",
    "find_place",
    "find_sandbox",
    "find_start",
    "has_object",
    "inherit_setup",
    "is_announced",
    "is_lost",
    "is_running",
    "find_commands",
    "find_duration",
    "list_commands",
    "is_named",
    "leave_out",
    "make_branch",
    "merge_result",
    "open_git_view",
    "open_sandbox",
    "open_workspace",
    "prepare_workspace",
    "read_setup",
    "record_setup",
    "remove_spooled",
    "remove_workspace",
    "restore",
    "run_spooled",
    "snapshot",
    "spool_folder",
    "stop_command",
    "stop_spooled",
    "summarize_diff",
    "to_sandboxed",
    "workspace_sandbox",
    "write_tree",
]
