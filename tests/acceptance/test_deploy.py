"""What `deploy/` offers works as it is: each file is checked by what reads it, each command by holdfast itself."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.support import terminal

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
KUBERNETES = "1.32"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PROGRAM = "/opt/holdfast/bin/holdfast"


def read_unit(path: Path) -> configparser.SectionProxy:
    unit = configparser.RawConfigParser(strict=False)
    unit.read_string(path.read_text())
    return unit["Service"]


def commands() -> dict[str, list[str]]:
    """The words after `holdfast`, by where they stand."""
    found = {path.name: shlex.split(read_unit(path)["ExecStart"])[1:] for path in UNITS}
    found |= {f"compose {name}": part["command"] for name, part in COMPOSE["services"].items() if "command" in part}
    for manifest in MANIFESTS:
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            found[f"kubernetes {container['name']}"] = container["args"]
    return found


@pytest.mark.parametrize("where", commands())
def test_every_command_is_one_of_holdfasts(where: str) -> None:
    done = terminal.shell(*commands()[where], "--help", env=os.environ)  # unknown options are refused first

    assert done.returncode == 0, done.stderr


def test_a_worker_has_longer_to_end_than_its_grace() -> None:
    for where, words in commands().items():
        assert ("--grace" in words) == (words[0] == "worker"), where
    (worker,) = (
        m["spec"]["template"]["spec"]
        for m in MANIFESTS
        if m["metadata"]["name"] == "holdfast-worker" and "template" in m["spec"]
    )
    limits = {
        "holdfast-worker.service": read_unit(DEPLOY / "holdfast-worker.service")["TimeoutStopSec"],
        "compose worker": COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s"),
        "kubernetes worker": worker["terminationGracePeriodSeconds"],
    }
    for where, limit in limits.items():
        words = commands()[where]
        assert float(limit) > float(words[words.index("--grace") + 1]), where


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']} {manifest['metadata']['name']}"
)
def test_the_manifest_is_one_of_kubernetes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    assert len(UNITS) == 2
    program = Path(sys.executable).with_name("holdfast")
    for unit in UNITS:
        assert read_unit(unit)["ExecStart"].startswith(f"{PROGRAM} ")
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, str(program)))
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    command = [analyze, "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "holdfast" in line]) == (0, [])


def test_systemd_lets_a_drained_worker_stay_away_and_nothing_else() -> None:
    restarts = {unit.name: read_unit(unit)["Restart"] for unit in UNITS}

    assert restarts == {"holdfast-worker.service": "on-failure", "holdfast-serve.service": "always"}


def test_the_image_is_made_from_what_is_there() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    assert copied
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []
    built = {part["build"]["dockerfile"] for part in COMPOSE["services"].values() if "build" in part}
    assert built == {"deploy/Dockerfile"}
