"""The example of a FastAPI application, served for real: killed in the middle of an order, and started again."""

import subprocess
import sys
from pathlib import Path

import httpx
from tests.support.progress_limit import wait_until

EXAMPLES = Path(__file__).parents[3] / "examples"
SERVE = """
import socket, sys, uvicorn
sys.path.insert(0, sys.argv[1])
import fastapi_flows
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(fastapi_flows.app, log_level="error")).run(sockets=[listening])
"""


def start(folder: Path) -> tuple["subprocess.Popen[str]", httpx.Client]:
    command = [sys.executable, "-c", SERVE, str(EXAMPLES)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    client = httpx.Client(base_url=f"http://127.0.0.1:{process.stdout.readline().strip()}", timeout=None)
    wait_until(lambda: is_up(client), "the application to answer")
    return process, client


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/orders/0").status_code == 404
    except httpx.TransportError:
        return False


def test_an_order_survives_the_death_of_the_application(tmp_path: Path) -> None:
    process, client = start(tmp_path)
    try:
        assert client.post("/orders/1", params={"amount": 5}).status_code == 200
        assert client.post("/orders/2", params={"amount": 500}).json()["run"] == "order-2"
        wait_until(lambda: client.get("/orders/1").json()["status"] == "completed", "the small order")
        paused = {"status": "paused", "says": "waits for a person"}
        wait_until(lambda: client.get("/orders/2").json() == paused, "the large order to wait")
        client.close()
        process.kill()
        process.communicate()
        process, client = start(tmp_path)
        assert client.post("/orders/2", params={"amount": 500}).json()["status"] == "paused"
        assert client.post("/orders/2/approve").status_code == 200
        wait_until(lambda: client.get("/orders/2").json()["status"] == "completed", "the large order to go on")
    finally:
        client.close()
        process.kill()
        process.communicate()
