"""What a persona needs of a machine, and who is chosen by that."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.binding import bind_personas
from holdfast.catalog import PACKAGE_DIR
from holdfast.enums import Backend
from holdfast.errors import PersonaIneligible
from holdfast.persona import AgentPersona, load_personas_from_dir
from holdfast.readiness import PLACEHOLDER_MODEL, Readiness, find_available
from holdfast.workflow import WorkflowTemplate

MODELS = {"object": "list", "data": [{"id": "any", "object": "model"}]}
NOBODY = "http://127.0.0.1:9/v1"
Serve = Callable[..., "Listener"]


def persona(backend: str, **options: Any) -> AgentPersona:
    fields = {"name": "one", "version": 1, "backend": backend, "capabilities": ["research"], **options}
    return AgentPersona.model_validate(fields if "argv" in options else {"model": "any", **fields})


class Listener(ThreadingHTTPServer):
    """A server on loopback that answers every request with the same."""

    daemon_threads = True

    def __init__(self, body: bytes, status: int, headers: dict[str, str]) -> None:
        self.paths: list[str] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listener.paths.append(self.path)
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(body: Any = MODELS, status: int = 200, **headers: str) -> Listener:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            listener = stack.enter_context(Listener(data, status, headers))
            thread = threading.Thread(target=listener.serve_forever, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown)
            return listener

        yield start


def own(address: str, **options: Any) -> AgentPersona:
    return persona("openai_compatible", base_url=address, **options)


def find_finding(one: AgentPersona, readiness: Readiness | None = None) -> str:
    missing = (readiness or Readiness({})).find_missing(one)
    return "" if missing is None else missing.finding


def test_a_key_is_needed_where_the_backend_or_the_file_names_one() -> None:
    (need,) = Readiness({}).list_needs(persona("openai"))

    assert need == (False, "OPENAI_API_KEY is not set", "OPENAI_API_KEY", "Set OPENAI_API_KEY.")
    assert Readiness({"OPENAI_API_KEY": "k"}).is_ready(persona("openai"))
    assert not Readiness({"OPENAI_API_KEY": "k"}).is_ready(persona("openai", api_key_env="OTHER_KEY"))


def test_a_command_needs_its_program() -> None:
    assert Readiness({}).is_ready(persona("command", argv=[sys.executable, "-V"]))
    assert find_finding(persona("command", argv=["no-such-program"])) == "no-such-program is not on the path"


@pytest.mark.parametrize("listing", [MODELS, {"models": [{"name": "any"}]}, [{"id": "any"}], {"data": []}])
def test_a_server_that_lists_models_is_a_model_server(serve: Serve, listing: Any) -> None:
    server = serve(listing)

    assert Readiness({}).is_ready(own(server.address))
    assert server.paths == ["/v1/models"]


@pytest.mark.parametrize(
    ("body", "status", "finding"),
    [
        (b"<html>Welcome</html>", 200, "answers, but not as a model server does"),
        ({"status": "ok"}, 200, "answers, but not as a model server does"),
        ({"data": ["a", "b"]}, 200, "answers, but not as a model server does"),
        (MODELS, 404, "answers, but not as a model server does"),
        (b"[" * 100_000, 200, "answers, but not as a model server does"),
        (b"[" + b" " * 2_000_000 + b"]", 200, "answers, but not as a model server does"),
        ({"error": "who are you"}, 401, "wants a key"),
    ],
)
def test_anything_else_that_listens_is_none(serve: Serve, body: Any, status: int, finding: str) -> None:
    address = serve(body, status).address

    assert find_finding(own(address)) == f"{address} {finding}"


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    elsewhere = serve()
    address = serve(b"", 302, Location=f"{elsewhere.address}/models").address

    assert find_finding(own(address)) == f"{address} answers, but not as a model server does"
    assert elsewhere.paths == []


def test_holdfast_never_takes_itself_for_a_model_server(serve: Serve) -> None:
    address = serve(MODELS, Server="holdfast").address

    assert find_finding(own(address)) == f"{address} is holdfast itself, no model server"


def test_nobody_there_is_said() -> None:
    assert find_finding(own(NOBODY)) == f"{NOBODY} does not answer"


def test_a_port_that_never_says_a_word_costs_two_seconds_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        readiness = Readiness({})
        findings = {find_finding(own(address, name=name), readiness) for name in ("one", "two", "three")}
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()  # nobody came a second time

    assert findings == {f"{address} does not answer"}


def test_bytes_that_trickle_do_not_hold_anybody_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        is_over = threading.Event()

        def trickle() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not is_over.wait(0.05):
                    try:
                        connection.sendall(b"X-A: b\r\n")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        finding = find_finding(own(address))
        is_over.set()
        thread.join()

    assert finding.startswith(address)


def test_ollama_is_asked_for_the_models_it_has(serve: Serve) -> None:
    server = serve({"models": [{"name": "qwen3:8b"}, {"name": "mine:latest"}]})
    address = server.address.removesuffix("/v1")

    assert Readiness({}).is_ready(persona("ollama", base_url=address, model="qwen3"))
    assert Readiness({}).is_ready(persona("ollama", base_url=address, model="mine"))
    assert Readiness({}).is_ready(persona("ollama", base_url=address, model="other", fallback_models=["mine"]))
    assert find_finding(persona("ollama", base_url=address, model="other")) == "ollama has no other"
    assert set(server.paths) == {"/api/tags"}


def test_the_shipped_form_is_never_ready_and_says_what_to_set(serve: Serve) -> None:
    (form,) = [one for one in load_personas_from_dir(PACKAGE_DIR / "personas") if one.model == "your-model"]

    missing = Readiness({}).find_missing(form.model_copy(update={"base_url": serve().address}))

    assert form.name == "openai-compatible-generalist"
    assert ":8000" not in (form.base_url or "")  # where holdfast serve listens
    assert missing is not None
    assert "base_url and model" in missing.remedy


def template(*liked: str) -> WorkflowTemplate:
    phase = {"key": "look", "title": "Look", "risk": "low", "role": "finder", "instructions": "Look."}
    artifact = {"path": "out/spec.json", "schema": "dev/spec@1"}
    role = {"id": "finder", "required_capabilities": ["research"], "preferred_backends": list(liked)}
    return WorkflowTemplate.model_validate(
        {"name": "w", "version": 1, "roles": [role], "phases": [{**phase, "expected_artifact": artifact}]}
    )


def bind(pool: list[AgentPersona], readiness: Readiness, *liked: str, **options: Any) -> str:
    available = find_available(is_simulated=False, readiness=readiness)
    return bind_personas(template(*liked), pool, available, **options)["finder"].persona.name


def test_a_persona_is_bound_only_if_it_is_ready_itself(serve: Serve) -> None:
    """Not because another of its backend is."""
    pool = [own(NOBODY, name="away"), own(serve().address, name="there"), persona("simulated", name="acted")]

    assert bind(pool, Readiness({})) == "there"


def test_a_server_is_not_asked_while_somebody_with_a_key_comes_first(serve: Serve) -> None:
    server = serve()
    pool = [own(server.address, name="own"), persona("openai", name="keyed")]

    assert bind(pool, Readiness({"OPENAI_API_KEY": "k"}), "openai") == "keyed"
    assert server.paths == []
    assert bind(pool, Readiness({"OPENAI_API_KEY": "k"}), "openai_compatible") == "own"


def test_one_readiness_asks_a_server_once(serve: Serve) -> None:
    server, readiness = serve(), Readiness({})
    pool = [own(server.address, name="one"), own(server.address, name="two")]

    readiness.ask_servers(pool)
    names = {bind(pool, readiness), bind(pool, readiness.before_trust()), bind(pool, readiness)}

    assert names == {"one"}
    assert server.paths == ["/v1/models"]


def test_nobody_ready_is_said_in_few_words_with_all_of_them_beside() -> None:
    pool = load_personas_from_dir(PACKAGE_DIR / "personas")

    with pytest.raises(PersonaIneligible) as refused:
        bind(pool, Readiness({}), "openrouter", "anthropic", "openai")

    error = refused.value
    assert len(error.message) + len(error.hint) < 300
    assert error.message.startswith("Nobody is ready for role finder: it needs OPENROUTER_API_KEY, ")
    assert error.hint.startswith("Set OPENROUTER_API_KEY. ")
    assert {entry["persona"] for entry in error.facts["missing"]} >= {"openrouter-deepseek-spec-writer"}


def test_a_persona_that_is_named_and_not_ready_says_what_it_needs() -> None:
    pool = [own(NOBODY, name="away"), persona("openai", name="keyed")]

    with pytest.raises(PersonaIneligible, match=r"cannot be given to away: .*does not answer") as refused:
        bind(pool, Readiness({"OPENAI_API_KEY": "k"}), overrides={"finder": "away"})

    assert refused.value.hint == f"Start the model server at {NOBODY}."


def test_a_server_of_somebody_nobody_agreed_to_is_not_asked(serve: Serve) -> None:
    server = serve()
    pool = [own(server.address, name="stranger")]
    readiness = Readiness({}, is_trusted=lambda one: False)

    readiness.ask_servers(pool)

    assert find_finding(pool[0], readiness) == "nobody has agreed to it yet"
    assert bind(pool, readiness.before_trust()) == "stranger"  # so that a person is asked about it
    assert server.paths == []


def test_a_rehearsal_is_for_simulated_personas_alone() -> None:
    assert find_available(is_simulated=True).available_backends == {Backend.SIMULATED}
    assert Readiness({}).list_needs(persona("simulated")) == []


def bind_for_workers(readiness: Readiness, **overrides: str) -> str:
    writer = persona("openrouter", name="writer")
    other = persona("openai_compatible", name="form", model=PLACEHOLDER_MODEL, base_url=NOBODY)
    template = WorkflowTemplate.model_validate(
        {
            "name": "w",
            "version": 1,
            "roles": [{"id": "author", "required_capabilities": ["research"]}],
            "phases": [
                {
                    "key": "spec",
                    "title": "Spec",
                    "risk": "low",
                    "role": "author",
                    "instructions": "Do it.",
                    "expected_artifact": {"path": "out/spec.json", "schema": "dev/spec@1"},
                }
            ],
        }
    )
    available = find_available(is_simulated=False, readiness=readiness)
    return bind_personas(template, [writer, other], available, overrides=overrides)["author"].persona.name


def test_whoever_is_named_for_a_run_of_workers_needs_no_key_here() -> None:
    here = Readiness({})
    assert bind_for_workers(here.for_workers(), author="writer") == "writer"
    with pytest.raises(PersonaIneligible, match="OPENROUTER_API_KEY is not set"):
        bind_for_workers(here, author="writer")
    with pytest.raises(PersonaIneligible, match="no model is named yet"):
        bind_for_workers(here.for_workers(), author="form")
    stranger = Readiness({}, is_trusted=lambda _persona: False).for_workers()
    with pytest.raises(PersonaIneligible, match="nobody has agreed to it yet"):
        bind_for_workers(stranger, author="writer")


def test_who_is_chosen_for_a_run_of_workers_is_ready_here_and_else_one_may_be_named() -> None:
    assert bind_for_workers(Readiness({"OPENROUTER_API_KEY": "k"}).for_workers()) == "writer"
    with pytest.raises(PersonaIneligible, match="Nobody is ready for role author") as refused:
        bind_for_workers(Readiness({}).for_workers())
    assert "--persona author=NAME" in str(refused.value.hint)
    with pytest.raises(PersonaIneligible) as refused:
        bind_for_workers(Readiness({}))
    assert "--persona" not in str(refused.value.hint)
