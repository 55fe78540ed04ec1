"""Real repositories for the workspace tests, made in a temporary folder by plain git."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.user_repository import UserRepo

from holdfast.workspace import Workspace, prepare_workspace


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def make_repo(tmp_path: Path) -> Callable[..., UserRepo]:
    def make(name: str = "repo", *options: str) -> UserRepo:
        (tmp_path / name).mkdir()
        repo = UserRepo(tmp_path / name)
        repo.git("init", "-q", "-b", "main", *options)
        return repo

    return make


@pytest.fixture
def repo(make_repo: Callable[..., UserRepo]) -> UserRepo:
    made = make_repo()
    made.commit("first", a_txt="one\n", src__b_py="print(1)\n")
    return made


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def workspace(repo: UserRepo, data_dir: Path) -> Workspace:
    return prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
