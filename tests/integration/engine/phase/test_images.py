"""Images that a person gives reach the model as they are, on every call and after a kill, and are recorded once."""

import base64
import json
import os
import shutil
import signal
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, template
from tests.support.forked_command import WarmProcess, start_warm
from tests.support.model_server import Hangs, ModelServer, Refuses, Says, asks, own_persona
from tests.support.progress_limit import wait_until
from tests.support.terminal import shell

import holdfast.engine
from holdfast.engine import RunResult
from holdfast.enums import Backend, RunStatus
from holdfast.errors import ImageInvalid, ImageUnsupported
from holdfast.images import Image, to_image
from holdfast.persona import AgentPersona

REAL_BUILD_AGENT = holdfast.engine.build_agent
CONTENT = json.dumps(artifact("00000000-0000-4000-8000-000000000000", "spec"))
LOOK = asks(("ls", {"path": "/"}))
WRITE = asks(("write_file", {"file_path": "/out/spec.json", "content": CONTENT}))
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def png(side: int = 2, noise: bytes = b"") -> bytes:
    """A PNG with so many rows, and some bytes that no viewer shows."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * side for _ in range(side)))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"tEXt", noise) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def images_in(body: Any) -> list[bytes]:
    blocks = [block for message in body["messages"] for block in _blocks(message)]
    urls = [block["image_url"]["url"] for block in blocks if block.get("type") == "image_url"]
    return [base64.b64decode(url.partition("base64,")[2]) for url in urls]


def _blocks(message: Any) -> list[Any]:
    return message["content"] if isinstance(message.get("content"), list) else []


def persona_on(server: ModelServer, **fields: Any) -> AgentPersona:
    return AgentPersona.model_validate(
        {
            "name": "mine",
            "version": 1,
            "backend": "openai_compatible",
            "base_url": server.address,
            "model": "main",
            "capabilities": ["spec_write"],
            "tries": 1,
            **fields,
        }
    )


async def run_on(server: ModelServer, world: World, images: list[Image], **fields: Any) -> RunResult:
    engine = world.engine(pool=(persona_on(server, **fields),), backends=frozenset({Backend.OPENAI_COMPATIBLE}))
    holdfast.engine.build_agent = REAL_BUILD_AGENT  # the last word, for the world's engines bring agents of their own
    return await engine.run(template("spec"), repo_path=world.repo, requirements_md="As in the picture.", images=images)


@ON_SQLITE
async def test_every_call_of_a_phase_gets_the_bytes_and_the_journal_has_none_of_them(world: World) -> None:
    data = png(noise=os.urandom(20_000))
    with ModelServer({"": [LOOK, WRITE, Says("Written.")]}) as server:
        result = await run_on(server, world, [to_image(data, "mock-up.png")])

    assert result.state is RunStatus.COMPLETED
    assert [images_in(received.body) for received in server.received] == [[data]] * 3
    assert "image mock-up.png (PNG, 20 kB)" in json.dumps(server.received[0].body["messages"])
    [created] = world.events(result.run_id, "run.created")
    [label] = created.payload["images"]
    assert label == {"digest": label["digest"], "media_type": "image/png", "size": len(data), "name": "mock-up.png"}
    journal = json.dumps([event.to_dict() for event in world.events(result.run_id)])
    assert base64.b64encode(data).decode()[100:200] not in journal
    assert len(journal) < 100_000


@ON_SQLITE
async def test_an_image_that_is_given_later_reaches_the_attempt_that_starts_anew_and_forks(world: World) -> None:
    first, second = to_image(png(), "a.png"), to_image(png(3), "b.png")
    with ModelServer({"": [[Refuses(401), WRITE, WRITE], Says("Written.")]}) as server:
        paused = await run_on(server, world, [first])
        engine = world.engine(pool=(persona_on(server),), backends=frozenset({Backend.OPENAI_COMPATIBLE}))
        holdfast.engine.build_agent = REAL_BUILD_AGENT
        done = await engine.resume(paused.run_id, images=[second], by="ann")
        count = len(server.received)
        fork = await engine.fork(paused.run_id, "spec", images=[second, to_image(png(4), "c.png")])

    assert (paused.state, done.state, fork.state) == (RunStatus.PAUSED, RunStatus.COMPLETED, RunStatus.COMPLETED)
    seen = [images_in(received.body) for received in server.received]
    assert seen[:count] == [[first.data], *[[first.data, second.data]] * (count - 1)]
    assert seen[count:] == [[first.data, second.data, png(4)]] * (len(seen) - count)
    [changed] = world.events(paused.run_id, "run.changed")
    assert ([one["name"] for one in changed.payload["images"]], changed.payload["reopened"]) == (["b.png"], ["spec"])


@ON_SQLITE
async def test_a_persona_that_sees_nothing_is_refused_before_a_run_is_made(world: World) -> None:
    with ModelServer({"": [WRITE, Says("Written.")]}) as server, pytest.raises(ImageUnsupported) as raised:
        await run_on(server, world, [to_image(png(), "a.png")], vision=False)

    assert "mine" in raised.value.message
    assert world.db.store.list_runs() == []


@ON_SQLITE
async def test_a_provider_that_refuses_images_is_understood(world: World) -> None:
    with ModelServer({"": [Refuses(400, message="This model does not support image input.")]}) as server:
        result = await run_on(server, world, [to_image(png(), "a.png")])

    assert result.error is not None
    assert "does not support image input" in result.error.message
    assert "vision: false" in result.error.hint


@ON_SQLITE
async def test_too_many_images_are_refused(world: World) -> None:
    with ModelServer({"": []}) as server, pytest.raises(ImageInvalid):
        await run_on(server, world, [to_image(png(noise=bytes([number])), "a.png") for number in range(9)])


def test_an_image_is_there_again_after_a_kill_and_for_another_process(
    database_url: str, plain_repo: Path, tmp_path: Path
) -> None:
    data = png(noise=os.urandom(50_000))
    (tmp_path / "shot.png").write_bytes(data)
    repo = shutil.copytree(plain_repo, tmp_path / "repo")
    folder = tmp_path / "config" / "holdfast" / "personas"
    folder.mkdir(parents=True)
    env = {**os.environ, "HOLDFAST_DATABASE_URL": database_url, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    env["HOLDFAST_DATA_DIR"] = str(tmp_path / "data")
    workflow = tmp_path / "wf.json"
    workflow.write_text(json.dumps(template("spec").model_dump(by_alias=True)))
    with ModelServer({"": [LOOK, [Hangs(), WRITE], Says("Written.")]}) as server:
        (folder / "mine.yaml").write_text(own_persona(server.address, "spec_write"))
        options = ["--repo", str(repo), "--requirements", "As in the picture.", "--persona", "author=mine"]
        started = _start(["run", str(workflow), *options, "--image", str(tmp_path / "shot.png"), "--yes"], env)
        wait_until(lambda: len(server.received) >= 2, "the model has got its second request")
        started.send_signal(signal.SIGKILL)
        started.wait()
        (tmp_path / "shot.png").unlink()
        run_id = json.loads(_run(["runs", "list", "--json"], env))[0]["run_id"]
        _run(["resume", run_id, "--yes"], env)
        printed = _run(["runs", "show", run_id], env)

    assert [images_in(received.body) for received in server.received] == [[data]] * 4
    assert "image shot.png (PNG, 50 kB)" in printed
    assert "completed" in printed


def _start(arguments: list[str], env: dict[str, str]) -> WarmProcess:
    return start_warm(arguments, env, None, (os.devnull, os.devnull, os.devnull))


def _run(arguments: list[str], env: dict[str, str]) -> str:
    done = shell(*arguments, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout
