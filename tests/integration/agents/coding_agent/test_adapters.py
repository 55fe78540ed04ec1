"""What a known coding agent gets, what is reported of it while it runs, and what its output does not break."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.integration.agents.coding_agent.test_agent import invoke
from tests.integration.agents.coding_agent.test_continuation import progress, result
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.support.agents.phase import CATALOG, Phase
from tests.support.agents.stand_in_agent import make_agent

from holdfast.agents.coding_agent.adapters.codex import Codex
from holdfast.agents.tools import shell as shell_module
from holdfast.agents.tools.shell import open_shell
from holdfast.errors import AgentFailed
from holdfast.persona import AgentPersona, load_persona_file
from holdfast.workspace import find_bubblewrap, find_landlock

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


@contextlib.contextmanager
def serve_words(words: str) -> Iterator[int]:
    """Serve a page of these words on a port of this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


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


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_an_agent_reaches_its_provider_and_what_its_persona_lists(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    probe = {"bubblewrap": find_bubblewrap, "landlock": find_landlock}[kind]()
    if not probe.works:
        pytest.skip(probe.reason)
    monkeypatch.setattr(shell_module, "probe_once", lambda: probe)
    with serve_words("provider") as provider, serve_words("listed") as listed, serve_words("other") as other:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{provider}")
        lines = [f"curl -s http://127.0.0.1:{port}/ >> got.txt" for port in (provider, listed, other)]
        lines += [f"curl -s --noproxy '*' http://127.0.0.1:{port}/ >> direct.txt" for port in (provider, other)]
        persona = shipped(tmp_path, "\n".join([*lines, "begin; finish done"]))
        permissions = {"network": [f"127.0.0.1:{listed}"]}
        fields = {**persona.model_dump(by_alias=True), "permissions": permissions}

        await invoke(phase, AgentPersona.model_validate(fields))

    got = (phase.root / "got.txt").read_text()
    assert got.startswith("providerlisted")
    assert f"127.0.0.1:{other} cannot be reached" in got
    assert (phase.root / "direct.txt").read_text() == "provider"
    [recorded] = [event.payload["result"] for event in phase.events() if event.kind == "tool.result"]
    assert {(one["port"], one["allowed"]) for one in recorded["network"]} == {
        *((port, True) for port in (provider, listed)),
        (other, False),
    }


async def test_an_agent_that_failed_says_what_it_could_not_reach(phase: Phase, tmp_path: Path) -> None:
    if not shell_module.probe_once().works:
        pytest.skip("there is no sandbox")
    with serve_words("other") as other, pytest.raises(AgentFailed) as failed:
        await invoke(phase, shipped(tmp_path, f"begin; curl -sf http://127.0.0.1:{other}/; exit 3"))

    assert f"It could not reach 127.0.0.1:{other}" in failed.value.hint


async def test_the_users_own_settings_name_a_provider_too(home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        '[model_providers.own]\nbase_url = "http://127.0.0.1:4000/v1"\nother = "http://x"'
    )
    needs = Codex.needs

    assert needs.find_own_hosts({}, home) == ("127.0.0.1:4000",)
    assert needs.find_own_hosts(
        {"X": '{"baseURL": "https://[::1]:5/v1", "endpoint": "http://a:99999"}'}, Path("/none")
    ) == ("[::1]:5",)
    assert Codex.needs.find_hosts({"OPENAI_BASE_URL": "http://localhost:81"})[-1] == "localhost:81"


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


async def test_in_a_run_without_a_sandbox_its_home_is_the_users(phase: Phase, tmp_path: Path, home: Path) -> None:
    shell = replace(open_shell(phase.root, data_dir=phase.config.data_dir), sandbox=None)

    await invoke(phase, make_agent(tmp_path, "begin; finish 'all done'"), shell=shell)

    assert len(list((home / ".claude/projects/p").iterdir())) == 1


async def test_without_a_sandbox_its_home_is_the_users(phase: Phase, tmp_path: Path, home: Path) -> None:
    await invoke(phase, make_agent(tmp_path, "begin; finish 'all done'", sandbox=False))

    assert len(list((home / ".claude/projects/p").iterdir())) == 1
