"""Each adapter against output that its product printed here, and the command lines that it makes."""

from pathlib import Path

import pytest

from holdfast.agents.calls.gate import Usage
from holdfast.agents.coding_agent.adapters.base import Adapter, AgentCall, Needs, add_usage, to_activity, to_usage
from holdfast.agents.coding_agent.adapters.registry import TABLE, find_adapter
from holdfast.agents.coding_agent.summary import summarize
from holdfast.catalog import Catalog
from holdfast.enums import Backend
from holdfast.persona import ADAPTERS

RECORDED = Path(__file__).parents[4] / "support/agents/recorded_output"
SESSION = "11111111-1111-4111-8111-111111111111"
SHELLS = ["echo hello > a.txt; echo ran", "cat a.txt"]
CODEX = [f"/bin/bash -lc '{command}'" for command in SHELLS]
# The session, what its tools were about, its last words, its tokens and its cost.
EXPECTED = {
    "claude-code": (SESSION, SHELLS, "I wrote a.txt.", (300, 60), 3_000),
    "codex": ("01a1e75d-ada7-7213-8d94-97aee2f92acd", CODEX, "I wrote a.txt.", (300, 60), None),
    "gemini": (SESSION, SHELLS, "I wrote a.txt.", (400, 80), None),
    "opencode": ("ses_", SHELLS, "I wrote a.txt.", (300, 60), 975),
    "qwen": (SESSION, SHELLS, "I wrote a.txt.", (300, 60), None),
    "pi": ("01a1e761-ddc9-7778-a365-940677cb3c23", SHELLS, "I wrote a.txt.", (300, 60), 420),
    "aider": ("", ["a.txt"], "", (648, 13), 1_800),
    "continue": ("", [], "I wrote a.txt.", None, None),
}


def call(**fields: object) -> AgentCall:
    known = {"argv": ["prog", "--mine"], "model": "m-1", "session": SESSION}
    return AgentCall(**{**known, "envelope_file": Path("/task.md"), "home": Path("/home"), **fields})  # type: ignore[arg-type]


def test_the_table_and_the_personas_name_the_same_agents() -> None:
    shipped = [entry.definition for entry in Catalog.for_repository(None, None).list_personas()]
    used = {persona.adapter for persona in shipped if persona.backend is Backend.COMMAND}

    assert set(TABLE) == set(ADAPTERS) == used == set(EXPECTED)
    assert {find_adapter(persona) for persona in shipped if persona.adapter} == set(TABLE.values())


@pytest.mark.parametrize("name", sorted(TABLE))
def test_what_the_product_printed_is_understood(name: str) -> None:
    adapter = TABLE[name]
    session, activities, answer, tokens, cost = EXPECTED[name]
    lines = (RECORDED / f"{name}.txt").read_text().splitlines()
    items = [item for line in lines for item in adapter.read_line(line)]
    summary = summarize(adapter, RECORDED / f"{name}.txt")

    assert summary.session.startswith(session)
    started = [
        item.activity for item in items if item.tool and (item.state == "started" or name in ("opencode", "aider"))
    ]
    assert started == activities
    assert answer in summary.answer
    used = summary.usage
    assert (None if used is None else (used.input_tokens, used.output_tokens)) == tokens
    assert (None if used is None else used.cost_micros) == cost
    assert not summary.error


@pytest.mark.parametrize("name", sorted(TABLE))
def test_any_part_of_a_line_is_read_without_a_failure(name: str) -> None:
    for line in (RECORDED / f"{name}.txt").read_text().splitlines():
        for cut in {0, 1, len(line) // 3, len(line) // 2, max(len(line) - 1, 0)}:
            TABLE[name].read_line(line[:cut])
            TABLE[name].read_line(line[cut:])


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_record_of_another_shape_is_passed_over(name: str) -> None:
    kinds = ("system", "assistant", "result", "item.completed", "turn.completed", "message_end", "step_finish", "error")
    for kind in kinds:
        for value in ("null", "[]", "7", '"x"', "{}", '{"type": []}'):
            fields = ", ".join(
                f'"{field}": {value}' for field in ("message", "item", "part", "usage", "error", "stats")
            )
            TABLE[name].read_line(f'{{"type": "{kind}", {fields}}}')


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"continue"}))
def test_a_session_is_named_when_it_is_continued(name: str) -> None:
    adapter = TABLE[name]
    start, resume = adapter.start(call()), adapter.resume(call())

    assert start != resume
    assert any(SESSION in word for word in resume)
    assert any(SESSION in word for word in start) == adapter.chooses_session
    for argv in (start, resume):
        assert argv[0] == "prog"
        assert {"--mine", "m-1"} <= set(argv)
        assert ("/task.md" in argv) == adapter.has_envelope_file
    assert "m-1" not in adapter.start(call(model=""))


def test_a_session_is_found_where_the_product_stores_it(tmp_path: Path) -> None:
    stored = {
        "claude-code": f".claude/projects/-work/{SESSION}.jsonl",
        "codex": f".codex/sessions/2026/11/17/rollout-2026-11-17T02-37-{SESSION}.jsonl",
        "gemini": ".gemini/tmp/work/chats/session-2026-11-17T02-39-11111111.jsonl",
        "opencode": ".local/share/opencode/opencode.db",
        "qwen": f".qwen/projects/-work/chats/{SESSION}.jsonl",
        "pi": f".pi/agent/sessions/--work--/2026-11-17T02-42-01-424Z_{SESSION}.jsonl",
        "aider": f".aider/{SESSION}.md",
    }
    for name, file in stored.items():
        home = tmp_path / name
        assert TABLE[name].find_session(home, SESSION) is None
        (home / file).parent.mkdir(parents=True)
        (home / file).touch()
        assert TABLE[name].find_session(home, SESSION) == home / file
        assert TABLE[name].find_session(home, "") is None
        assert TABLE[name].find_session(home, "../*") is None


def test_the_hosts_that_an_agent_needs_follow_its_addresses() -> None:
    needs = Needs(hosts=("api.example.com",), base_urls=("BASE_URL", "OTHER_URL"))

    assert needs.find_hosts({}) == ("api.example.com",)
    assert needs.find_hosts({"BASE_URL": "http://127.0.0.1:8080/v1"}) == ("api.example.com", "127.0.0.1:8080")


def test_numbers_that_make_no_sense_count_as_not_said() -> None:
    assert to_usage(True, -1, cost_usd="much") == Usage(0, 0)
    assert to_usage(2**70, 3.5, cost_usd=-1.0) == Usage(0, 0)
    assert to_usage(1, 2, cost_usd=10**9).cost_micros is None


def test_costs_are_added_where_they_are_known() -> None:
    assert add_usage(None, Usage(1, 2)) == Usage(1, 2)
    assert add_usage(Usage(1, 2, cost_micros=5), Usage(1, 2)) == Usage(2, 4, cost_micros=5)
    assert add_usage(Usage(1, 2), Usage(1, 2)) == Usage(2, 4)


def test_an_activity_is_one_short_line() -> None:
    assert to_activity({"command": "make\n  test"}) == "make test"
    assert to_activity({"command": ["sh", "-c", "make"]}) == "sh -c make"
    assert to_activity({"other": 1}) == ""
    assert len(to_activity("x" * 10_000)) == 300


def test_an_adapter_must_say_how_it_starts() -> None:
    with pytest.raises(NotImplementedError):
        Adapter().start(call())
