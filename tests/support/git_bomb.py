"""A commit that stands for more files than a disk has room for."""

from pathlib import Path

from holdfast.workspace.git import Git


def commit_bomb(repo: Path, levels: int) -> str:
    """Make a commit of ten to the power of `levels` files, out of one object a level, as the branch `bomb`."""
    git = Git(git_dir=repo / ".git")
    mode, kind, name = "100644", "blob", git.line("hash-object", "-w", "--stdin")
    for _ in range(levels):
        lines = "".join(f"{mode} {kind} {name}\tf{number}\n" for number in range(10))
        mode, kind, name = "040000", "tree", git.line("mktree", stdin=lines.encode())
    commit = git.line("commit-tree", name, "-m", "bomb")
    git.run("update-ref", "refs/heads/bomb", commit)
    return commit
