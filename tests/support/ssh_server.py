"""Repositories on disk that git reaches as those of a host, by the user's own ssh: a program that needs no network."""

from pathlib import Path

_SSH = """#!/bin/sh
# What ssh does with its last argument on the other side; who was asked for is written down.
echo "$*" >> "{log}"
case "$*" in *git@{host}*) ;; *) echo "unknown host" >&2; exit 255 ;; esac
cd "{root}" || exit 255
for command; do :; done
exec sh -c "$command"
"""


def serve_by_ssh(root: Path, host: str, settings: Path) -> Path:
    """Let git find the repositories below `root` at git@`host`, by ssh or https, as the user's `settings` file says.

    Returns the file that has every request.
    """
    log, program = root / "ssh.log", root / "ssh"
    program.write_text(_SSH.format(log=log, root=root, host=host))
    program.chmod(0o755)
    settings.parent.mkdir(parents=True, exist_ok=True)
    rewritten = f'[url "git@{host}:"]\n\tinsteadOf = https://{host}/\n'
    settings.write_text(f"[core]\n\tsshCommand = {program}\n{rewritten}")
    return log
