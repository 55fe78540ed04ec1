"""What a known coding agent gets, what is reported of it while it runs, and what its output does not break."""

from pathlib import Path

import pytest
from tests.integration.agents.coding_agent.test_agent import invoke
from tests.integration.agents.coding_agent.test_continuation import progress, result
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.support.agents.phase import CATALOG, Phase
from tests.support.agents.stand_in_agent import make_agent

from holdfast.errors import AgentFailed
from holdfast.persona import AgentPersona, load_persona_file

BAD_MANNERS = r"""
printf 'Warning: no terminal\n{"type":"system","subtype":"in'
sleep 0.1
printf 'it","session_id":"%s"}\n' "$session"
store
printf '\377\376\000 {not json}\n{"type":\n[1,2]\n{"type":"assistant","message":7}\n{"type":"result"'
printf ',"usage":null}\n"text"\n{"type":"assistant","message":{"content":[{"type":"text"}]}}\n'
head -c 9000000 /dev/zero | tr '\0' x
printf '\n'
say m1 'Some words.'
finish 'all done'
printf '{"type":"assist'
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def shipped(folder: Path, body: str) -> AgentPersona:
    """The shipped persona of Claude Code with a stand-in as its program."""
    stand_in = make_agent(folder, body)
    persona = load_persona_file(CATALOG / "personas/command-claude-code.yaml")
    return persona.model_copy(update={"argv": stand_in.argv})


async def test_lines_that_make_no_sense_are_passed_over(phase: Phase, tmp_path: Path) -> None:
    answer = await invoke(phase, make_agent(tmp_path, BAD_MANNERS))

    assert answer == "all done"
    assert result(phase)["usage"] == {"input_tokens": 300, "output_tokens": 60, "cost_micros": 500_000}
    text = "".join(event.payload["text"] for event in phase.events() if event.kind == "text.delta")
    assert text == "Some words.\n"


async def test_words_and_tools_are_reported_while_it_runs(phase: Phase, tmp_path: Path) -> None:
    await invoke(phase, make_agent(tmp_path, "begin; say m1 'I look.'; use m2 'make test'; finish 'all done'"))

    text = "".join(event.payload["text"] for event in phase.events() if event.kind == "text.delta")
    assert text == "I look.\n▸ Bash make test\n"
    assert progress(phase, "tool") == ["Bash"]
    assert progress(phase, "activity") == ["make test"]
    [tool] = [event.payload for event in phase.events() if event.payload.get("tool") == "Bash"]
    assert tool["key"].endswith("/x0"), "as the call that it belongs to"


async def test_its_session_is_in_the_journal_before_it_has_ended(phase: Phase, tmp_path: Path) -> None:
    await invoke(phase, make_agent(tmp_path, "begin; finish 'all done'"))

    kinds = [event.kind for event in phase.events() if event.kind in ("tool.started", "tool.result", "agent.progress")]
    assert kinds[:2] == ["tool.started", "agent.progress"]
    assert kinds[-1] == "tool.result"
    assert len(set(progress(phase, "session"))) == 1
    assert progress(phase, "session")[0] in str(result(phase))


async def test_the_shipped_persona_works_for_someone_with_a_key(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "planted-key-of-the-agent")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "planted-key-of-another")
    await invoke(phase, shipped(tmp_path, 'env > env.txt; begin; finish "key $ANTHROPIC_API_KEY"'))

    env = (phase.root / "env.txt").read_text().splitlines()
    assert "ANTHROPIC_API_KEY=planted-key-of-the-agent" in env
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:9" in env
    assert not [line for line in env if "OPENAI" in line]
    assert "planted" not in str([event.payload for event in phase.events()])


async def test_a_persona_names_more_variables(phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    await invoke(
        phase, make_agent(tmp_path, "env > env.txt; begin; finish 'done'", env=["HTTPS_PROXY", "NOT_SET_HERE"])
    )

    env = (phase.root / "env.txt").read_text()
    assert "HTTPS_PROXY=http://127.0.0.1:9" in env
    assert "NOT_SET_HERE" not in env


async def test_an_error_is_told_in_the_agents_own_words(phase: Phase, tmp_path: Path) -> None:
    body = """begin; printf '{"type":"result","is_error":true,"result":"Invalid API key"}\\n'; exit 1"""
    with pytest.raises(AgentFailed, match="exit code 1; its last words: Invalid API key"):
        await invoke(phase, make_agent(tmp_path, body))


async def test_an_agent_that_ends_well_without_an_answer_has_failed(phase: Phase, tmp_path: Path) -> None:
    body = """begin; printf '{"type":"error","message":"no quota"}\\n'"""
    with pytest.raises(AgentFailed, match="no quota"):
        await invoke(phase, make_agent(tmp_path, body, adapter="codex"))


@needs_sandbox
async def test_in_the_sandbox_it_has_a_home_of_its_own(phase: Phase, tmp_path: Path, home: Path) -> None:
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"model": "opus"}')
    (home / ".claude/.credentials.json").write_text('{"token": "old", "expires": 1}')
    body = """
    cp $HOME/.claude/settings.json seen.json
    echo '{"hooks": "planted"}' > $HOME/.claude/settings.json
    echo '{"token": "new", "expires": 2}' > $HOME/.claude/.credentials.json
    begin; finish 'all done'
    """
    await invoke(phase, make_agent(tmp_path, body))

    assert (phase.root / "seen.json").read_text() == '{"model": "opus"}'
    assert (home / ".claude/settings.json").read_text() == '{"model": "opus"}', "what it writes there stays there"
    assert (home / ".claude/.credentials.json").read_text() == '{"token": "new", "expires": 2}\n'
    assert not (home / ".claude/projects").exists()


async def test_without_a_sandbox_its_home_is_the_users(phase: Phase, tmp_path: Path, home: Path) -> None:
    await invoke(phase, make_agent(tmp_path, "begin; finish 'all done'", sandbox=False))

    assert len(list((home / ".claude/projects/p").iterdir())) == 1
