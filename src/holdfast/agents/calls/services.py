"""What the calls of one turn need from outside. Whatever is left out does nothing."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.agents.calls.gate import ModelCallGate
from holdfast.agents.calls.permission import Allow, ToolApprover
from holdfast.agents.calls.rate_limits import ProviderSlot
from holdfast.agents.calls.retries import RetryRules
from holdfast.agents.calls.stall_detector import Limits
from holdfast.agents.image_blocks import ReadImage
from holdfast.agents.tools.rules import ToolCall, ToolRule
from holdfast.agents.tools.shell import Shell


class ToolHooks(Protocol):
    """Runs what somebody wants run around tool calls.

    Both are asked for a call with the same key in every process that comes to it, and give the same answer each time:
    what was recorded is not run again.
    """

    async def before(self, key: str, lane_id: str, call: ToolCall) -> str | None:
        """Run what comes before the call of this key; return why the call must not be made, if so."""
        ...

    async def after(self, key: str, lane_id: str, call: ToolCall) -> str:
        """Run what comes after the call of this key; return what the agent should know of it."""
        ...


@dataclass(frozen=True)
class TurnServices:
    """The rules, the money, the permissions and the limits of one turn of an agent."""

    rules: Mapping[str, ToolRule] = field(default_factory=dict)
    """What each tool does; one that is not named may have changed anything."""
    gate: ModelCallGate | None = None
    """Writes money beside calls, in the same transaction."""
    policy: Allow | None = None
    """Judges a tool call before anything of it is recorded."""
    approver: ToolApprover | None = None
    """Asks a person where the policy wants one; without it such a call is denied."""
    shell: Shell | None = None
    """Where commands run; a tool call gets it with the network that it may have."""
    hooks: ToolHooks | None = None
    """Runs commands before and after tool calls."""
    before_command: Callable[[], Awaitable[str]] | None = None
    """Returns the id of the files that a command is started on, so that a person can put them back."""
    check_files: Callable[[], None] | None = None
    """Called before a tool call is begun and once its result is recorded; raises `Suspended` if nothing may follow what
    is recorded for now."""
    read_image: ReadImage | None = None
    """Returns the bytes of an image of the run by their hash."""
    limits: Limits = field(default_factory=Limits)
    """When an agent that gets nowhere is nudged, handed to another model and stopped."""
    retries: RetryRules = field(default_factory=RetryRules)
    provider_slot: ProviderSlot | None = None
    """When the provider may be called: it is shared by all runs of the process."""
    keeps_prompts: bool = True
    """Whether the journal keeps what models were sent, for people to read."""
