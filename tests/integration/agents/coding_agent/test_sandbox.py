"""What the program of a command persona reaches on the machine: the workspace, and what the persona names."""

from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.coding_agent.test_agent import persona
from tests.integration.agents.policy.test_escapes import CANARY, needs_sandbox
from tests.support.agents.phase import Phase, open_log

from holdfast.agents.build import build_agent
from holdfast.agents.tools.rules import command_rules
from holdfast.agents.tools.shell import open_shell
from holdfast.errors import AgentFailed

pytestmark = needs_sandbox


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    for name in (".ssh/id_rsa", ".claude/session", ".my-agent/state"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(CANARY)
    monkeypatch.setenv("HOME", str(folder))
    return folder


async def run(phase: Phase, body: str, *, is_read_only: bool = False, **fields: Any) -> str:
    who = persona("/bin/sh", "-c", body, **fields)
    async with open_log(phase.store) as log:
        shell = open_shell(phase.root, data_dir=phase.config.data_dir, is_read_only=is_read_only)
        journal = phase.middleware(log, rules=command_rules(shell.spool_dir), shell=shell)
        agent = build_agent(who, phase.config, root_dir=phase.root, middleware=[journal])
        try:
            result = await agent.ainvoke({"messages": [{"role": "user", "content": "Do it."}]})
        finally:
            await journal.drain(0.1)
    return str(result["messages"][-1].content)


async def test_by_default_it_writes_in_the_workspace_and_sees_no_keys(phase: Phase, home: Path) -> None:
    said = await run(phase, "echo made > new.txt; cat ~/.ssh/id_rsa ~/.claude/session; touch ~/.my-agent/new; echo end")

    assert (phase.root / "new.txt").read_text() == "made\n"
    assert said.endswith("end\n")
    assert CANARY not in said
    assert not (home / ".my-agent/new").exists()


async def test_what_the_persona_names_is_there(phase: Phase, home: Path) -> None:
    said = await run(
        phase,
        "cat ~/.claude/session ~/.ssh/id_rsa; echo more >> ~/.my-agent/state; echo x >> ~/.claude/session; echo end",
        sandbox={"read": ["~/.claude"], "write": ["~/.my-agent", "~/.not-there-yet"]},
    )

    assert said.startswith(CANARY)
    assert said.count(CANARY) == 1, "what it does not name stays hidden"
    assert (home / ".my-agent/state").read_text() == f"{CANARY}more\n"
    assert (home / ".claude/session").read_text() == CANARY


async def test_keys_inside_a_place_that_was_opened_stay_hidden(phase: Phase, home: Path) -> None:
    said = await run(phase, "cat ~/.my-agent/state ~/.ssh/id_rsa; echo x > ~/new; true", sandbox={"write": ["~"]})

    assert said.count(CANARY) == 1
    assert (home / "new").read_text() == "x\n"


async def test_it_can_be_left_out(phase: Phase, home: Path) -> None:
    await run(phase, "echo x > ~/new", sandbox=False)

    assert (home / "new").read_text() == "x\n"


@pytest.mark.parametrize("network", ["ask", "deny"])
async def test_it_has_the_network_unless_the_persona_denies_it(phase: Phase, network: str) -> None:
    said = await run(phase, "tail -n +3 /proc/net/dev | cut -d: -f1", permissions={"network": network})

    here = [line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    assert sorted(said.split()) == (["lo"] if network == "deny" else sorted(here))


async def test_in_a_phase_that_only_reads_it_can_hand_in(phase: Phase) -> None:
    await run(phase, "echo handed in > artifact.json", is_read_only=True)

    assert (phase.root / "artifact.json").read_text() == "handed in\n"


async def test_the_envelope_and_the_report_are_in_reach(phase: Phase) -> None:
    body = """cat {envelope_file}; echo '{"cost_usd": 0.5}' > {usage_file}; ls "$(dirname {envelope_file})" | wc -l"""
    said = await run(phase, body)

    assert said == "Do it.2\n", "and nothing else that lies beside them"
    [done] = [event for event in phase.events() if event.kind == "tool.result"]
    assert done.payload["result"]["usage"]["cost_micros"] == 500_000


async def test_a_failure_that_the_sandbox_may_have_caused_says_so(phase: Phase) -> None:
    with pytest.raises(AgentFailed) as caught:
        await run(phase, "touch /etc/new || exit 1")

    assert "sandbox: {write:" in caught.value.hint


async def test_a_program_in_the_folder_for_temporary_files_runs(phase: Phase, tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\ncat > got.txt\n")
    program.chmod(0o755)
    who = persona(str(program))
    async with open_log(phase.store) as log:
        shell = open_shell(phase.root, data_dir=phase.config.data_dir)
        journal = phase.middleware(log, rules=command_rules(shell.spool_dir), shell=shell)
        await build_agent(who, phase.config, root_dir=phase.root, middleware=[journal]).ainvoke(
            {"messages": [{"role": "user", "content": "Do it."}]}
        )

    assert (phase.root / "got.txt").read_text() == "Do it."
