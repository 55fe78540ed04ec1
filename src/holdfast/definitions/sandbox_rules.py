"""What definitions say about the sandbox around commands: places, hosts, and whether there is one at all."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from holdfast.definitions.base import Definition

_HOST = re.compile(
    r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?", re.IGNORECASE
)


def _check_host(value: str) -> str:
    if not _HOST.fullmatch(value) or ".." in value:
        raise ValueError("should be a host such as pypi.org, *.npmjs.org or localhost:8080")
    return value.lower()


def _check_own_path(value: str) -> str:
    path = PurePosixPath(value)
    if not value.isprintable() or ".." in path.parts or not (path.is_absolute() or path.parts[:1] == ("~",)):
        raise ValueError("should be an absolute path, or one in the home folder such as ~/.my-agent")
    return value


def _check_path_pattern(value: str) -> str:
    path = PurePosixPath(value)
    if not value.isprintable() or not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError("should be a pattern relative to the workspace, such as docs/** or *.md")
    return value


Host = Annotated[str, AfterValidator(_check_host)]
OwnPath = Annotated[str, AfterValidator(_check_own_path)]
PathPattern = Annotated[str, AfterValidator(_check_path_pattern)]


class CommandSandbox(Definition):
    """What the program of a `command` persona reaches on this machine; `sandbox: false` in a file means all of it.

    It writes in the workspace and in `write`, and reads system folders and the tools on `PATH`; other places it sees
    where `read` or `write` name them. What it does in the network is up to `permissions.network`.
    """

    is_on: bool = Field(default=True, alias="enabled")
    read: tuple[OwnPath, ...] = ()
    write: tuple[OwnPath, ...] = ()


class WorkflowSandbox(Definition):
    """Which of a workflow's commands run in the sandbox, and what they reach from there; `sandbox: false`: none do.

    Without `network`, set-up has the network as long as no agent has worked on the files, and checks and hooks have
    none.
    """

    setup: bool = True
    checks: bool = True
    hooks: bool = True
    network: Literal["allow", "deny"] | tuple[Host, ...] | None = None
    readable: tuple[OwnPath, ...] = ()
    secrets: tuple[PathPattern, ...] = ()
    """Files of the workspace, such as keys for tests, that commands may read although they are named like secrets."""

    @property
    def switched_off(self) -> tuple[str, ...]:
        """The kinds of commands that run without the sandbox."""
        return tuple(name for name in ("setup", "checks", "hooks") if not getattr(self, name))
