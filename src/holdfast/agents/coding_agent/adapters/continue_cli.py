"""Continue's `cn`: `cn --print`, which prints its answer at the end and nothing before. Run with 1.5.47."""

from typing import ClassVar

from holdfast.agents.coding_agent.adapters.base import Adapter, AgentCall, Needs, OutputItem


class ContinueCli(Adapter):
    """It reports no tokens, no tools and no session, and stores one only when it is done: one that was killed begins
    anew. It reads no task from standard input here, so that its prompt names the file.
    """

    name: ClassVar[str] = "continue"
    has_envelope_file: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(
        variables=("CONTINUE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        fixed={"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_AUTO_UPDATED": "1"},
        hosts=("api.continue.dev", "api.anthropic.com", "api.openai.com"),
        settings=(".continue/config.yaml", ".continue/config.json", ".continue/.env"),
        account=(".continue/auth.json",),
    )

    def start(self, call: AgentCall) -> list[str]:
        prompt = f"Your whole task is in the file {call.envelope_file}. Read all of it first, then do what it says."
        return [call.argv[0], *call.options, "--print", "--auto", *call.with_model("--model"), prompt]

    def read_line(self, line: str) -> list[OutputItem]:
        return [OutputItem(text=line + "\n")]
