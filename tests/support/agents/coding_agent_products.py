"""The real coding agents, as far as a folder has them, set up to talk to a fake of their provider on loopback."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.agents.phase import CATALOG
from tests.support.provider_fakes import API_KEY

from holdfast.persona import AgentPersona, load_persona_file

_CODEX = """model = "gpt-5-codex"
model_provider = "loopback"
[model_providers.loopback]
name = "loopback"
base_url = "{url}/v1"
env_key = "CODEX_API_KEY"
wire_api = "responses"
"""
_CONTINUE = """name: loopback
version: 1.0.0
schema: v1
models:
  - {name: fake, provider: openai, model: gpt-4o, apiBase: "{url}/v1", apiKey: {key}, roles: [chat]}
"""
_PI_MODEL = {
    "id": "fake-model",
    "name": "fake",
    "reasoning": False,
    "input": ["text"],
    "contextWindow": 128000,
    "maxTokens": 4096,
    "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
}
_PI = {"providers": {"loopback": {"baseUrl": "{url}/v1", "apiKey": "OPENAI_API_KEY", "api": "openai-completions"}}}
_PI["providers"]["loopback"]["models"] = [_PI_MODEL]  # type: ignore[assignment]
_OPENCODE = {"provider": {"openai": {"options": {"baseURL": "{url}/v1"}}}, "share": "disabled", "autoupdate": False}


@dataclass(frozen=True)
class Product:
    """One product: its shipped persona, its program, and how it is led to the fake; `{url}` is the fake's address."""

    persona: str
    program: str
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    runs_commands: bool = True
    can_continue: bool = True

    def find(self, folder: Path) -> Path | None:
        places = (folder / "npm/node_modules/.bin", folder / "aider/venv/bin")
        return next((place / self.program for place in places if (place / self.program).exists()), None)

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        """Write its settings into a home folder; return its environment."""
        for name, text in self.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(_fill(text, url))
        return {name: _fill(value, url) for name, value in self.env.items()}

    def to_persona(self, folder: Path) -> AgentPersona:
        shipped = load_persona_file(CATALOG / f"personas/{self.persona}.yaml").model_dump(by_alias=True)
        own = {"argv": [str(self.find(folder))], "sandbox": {"read": [str(folder)]}, "model": self.model}
        return AgentPersona.model_validate({**shipped, **own, "permissions": {"network": "allow"}})


def _fill(text: str, url: str) -> str:
    return text.replace("{url}", url).replace("{key}", API_KEY)


PRODUCTS = {
    "claude-code": Product(
        "command-claude-code", "claude", {"ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": "{url}"}
    ),
    "codex": Product("command-codex", "codex", {"CODEX_API_KEY": API_KEY}, {".codex/config.toml": _CODEX}),
    "gemini": Product("command-gemini", "gemini", {"GEMINI_API_KEY": API_KEY, "GOOGLE_GEMINI_BASE_URL": "{url}"}),
    "opencode": Product(
        "command-opencode",
        "opencode",
        {"OPENAI_API_KEY": API_KEY},
        {".config/opencode/opencode.json": json.dumps(_OPENCODE)},
        model="openai/gpt-5",
    ),
    "qwen": Product(
        "command-qwen",
        "qwen",
        {"OPENAI_API_KEY": API_KEY, "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": "qwen3-coder-plus"},
    ),
    "pi": Product(
        "command-pi",
        "pi",
        {"OPENAI_API_KEY": API_KEY},
        {".pi/agent/models.json": json.dumps(_PI)},
        model="loopback/fake-model",
    ),
    "continue": Product("command-continue", "cn", {}, {".continue/config.yaml": _CONTINUE}, can_continue=False),
    "aider": Product(
        "command-aider",
        "aider",
        {"OPENAI_API_KEY": API_KEY, "OPENAI_API_BASE": "{url}/v1"},
        {".aider.conf.yml": "edit-format: whole\n"},
        model="openai/gpt-4o",
        runs_commands=False,
        can_continue=False,
    ),
}


def read_version(program: Path, home: Path) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    done = subprocess.run([program, "--version"], env=env, capture_output=True, text=True, check=False)
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
