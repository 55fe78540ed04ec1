import os
from pathlib import Path

import pytest

from holdfast.workspace.commands.system_places import find_interpreters, find_tools, lies_in


def _make(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return _make(tmp_path / "home", ".local/bin", ".local/lib", ".cargo/bin", ".rustup", "bin", "lib")


def _find(home: Path, *entries: Path, private: tuple[Path, ...] = ()) -> list[Path]:
    return find_tools(":".join(map(str, entries)), home=home, private=private)


def test_an_installation_is_the_folder_around_bin(tmp_path: Path, home: Path) -> None:
    conda = _make(tmp_path / "conda", "bin", "lib")

    assert _find(home, conda / "bin") == [conda]


def test_the_home_itself_is_never_shown(home: Path) -> None:
    assert _find(home, home / "bin") == [home / "bin"]
    assert _find(home, home / ".local/bin") == [home / ".local/bin"]
    assert _find(home, home) == []
    assert _find(home, home.parent) == []


def test_a_toolchain_in_the_home_is_shown_and_keys_beside_it_are_not(home: Path) -> None:
    _make(home, ".pyenv/shims", ".pyenv/versions")

    assert _find(home, home / ".pyenv/shims", home / ".cargo/bin") == [
        home / ".pyenv",
        home / ".cargo/bin",
        home / ".rustup",
    ]


def test_the_checkout_is_not_shown_because_its_bin_is_on_the_path(tmp_path: Path, home: Path) -> None:
    checkout = _make(tmp_path / "repo", "bin", "lib", ".venv/bin", ".venv/lib")

    assert _find(home, checkout / "bin", private=(checkout,)) == [checkout / "bin"]
    assert _find(home, checkout / ".venv/bin", private=(checkout,)) == [checkout / ".venv"]


def test_links_lead_to_what_they_start(tmp_path: Path, home: Path) -> None:
    tool = _make(tmp_path / "tools/x-1.0", "bin", "lib") / "bin/x"
    tool.touch()
    modules = _make(tmp_path / "npm/lib/node_modules", "agent/bin")
    (modules / "agent/bin/agent.js").touch()
    lone = _make(tmp_path, "secret-place") / "secret-place/program"
    lone.touch()
    for name, target in (("x", tool), ("agent", modules / "agent/bin/agent.js"), ("lone", lone)):
        (home / ".local/bin" / name).symlink_to(target)

    found = _find(home, home / ".local/bin")

    assert set(found) == {home / ".local/bin", tmp_path / "tools/x-1.0", modules, lone}


def test_a_virtual_environment_leads_to_a_python_and_to_nothing_else(tmp_path: Path, home: Path) -> None:
    python = _make(tmp_path / "python", "bin", "lib/python3.12")
    (python / "bin/python3").touch()
    (python / "lib/python3.12/os.py").touch()
    keys = _make(tmp_path / "keys", "bin")
    (keys / "bin/python3").touch()
    workspace = _make(tmp_path / "w", ".venv/bin", "venv/bin")
    (workspace / ".venv/bin/python").symlink_to(python / "bin/python3")
    (workspace / "venv/bin/python").symlink_to(keys / "bin/python3")

    assert list(find_interpreters(workspace, home=home, private=())) == [python]


@pytest.mark.parametrize(
    ("path", "folder", "is_in"),
    [("/a/b", "/a", True), ("/a", "/a", True), ("/ab", "/a", False), ("/a", "/a/b", False), ("/x", "/", True)],
)
def test_what_lies_in_a_folder(path: str, folder: str, is_in: bool) -> None:
    assert lies_in(Path(path), Path(folder)) is is_in
    assert Path(path).is_relative_to(folder) is is_in
    assert os.fspath(Path(path)) == path
