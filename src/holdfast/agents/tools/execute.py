"""The framework's `execute` tool on our own shell."""

from pathlib import Path

from deepagents.backends.protocol import ExecuteResponse, SandboxBackendProtocol

from holdfast.agents.tools.files import WholeFileBackend
from holdfast.agents.tools.shell import DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S, Shell, granted_shell
from holdfast.workspace import CommandState, Outcome

TIMED_OUT_CODE = 124  # as the command `timeout` has it
DESCRIPTION = f"""\
Runs a command line with /bin/sh in the workspace's root folder and returns its output and exit code.

- Paths are relative to the workspace, or absolute as on this machine. Each call is a new shell: use `cd x && …`.
- It ends after {DEFAULT_TIMEOUT_S} seconds unless `timeout` says otherwise (at most {MAX_TIMEOUT_S}). What it leaves
  in the background ends with it, so start a server and use it within one command.
- Only the workspace and /tmp can be written. Building and testing just work; commands that use the network, publish
  something or rewrite history may have to wait for a person. The engine commits; do not.
- Use the file tools to read, search, write and edit files."""


class ShellBackend(WholeFileBackend, SandboxBackendProtocol):
    """The workspace's files, and commands in it. `shell` serves calls that no journal gave another one."""

    def __init__(self, root_dir: Path, *, staging_dir: Path, shell: Shell) -> None:
        super().__init__(root_dir, staging_dir=staging_dir)
        self._shell = shell

    @property
    def id(self) -> str:
        return "workspace"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        raise NotImplementedError("Commands run on the event loop only.")

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        shell = granted_shell() or self._shell
        limit = min(timeout or (DEFAULT_TIMEOUT_S if timeout is None else MAX_TIMEOUT_S), MAX_TIMEOUT_S)
        return _to_response(await shell.run(command, timeout_s=limit), limit)


def _to_response(outcome: Outcome, limit_s: int) -> ExecuteResponse:
    notes = {
        CommandState.TIMED_OUT: f"\n[It took longer than {limit_s} s and was ended with all that it had started.]",
        CommandState.OUTPUT_LIMIT: "\n[It wrote too much and was ended.]",
        CommandState.CANCELLED: "\n[It was stopped.]",
    }
    code = TIMED_OUT_CODE if outcome.timed_out else outcome.exit_code
    refused = [f"{request.host}:{request.port}, {request.reason}" for request in outcome.requests if request.reason]
    output = outcome.output + notes.get(outcome.state, "") + (f"\n[{outcome.limit}]" if outcome.limit else "")
    if refused:
        output += "".join(f"\n[Not reached: {line}.]" for line in dict.fromkeys(refused[:20]))
    return ExecuteResponse(output=output or "(no output)", exit_code=code, truncated=outcome.is_truncated)
