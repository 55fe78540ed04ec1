import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.config import Config, load_config
from holdfast.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in [name for name in os.environ if name.startswith(("HOLDFAST_", "XDG_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write_config(home: Path, text: str) -> Path:
    file = home / ".config/holdfast/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_without_any_source_everything_lies_in_the_users_own_folders(home: Path) -> None:
    config = load_config()

    assert config.data_dir == home / ".local/share/holdfast"
    assert config.database_url == f"sqlite+aiosqlite:///{home}/.local/share/holdfast/holdfast.db"
    assert config.workspace_root == home
    assert config.config_dir == home / ".config/holdfast"


def test_each_source_comes_before_the_one_above_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(home, 'data_dir = "/file"\nworkspace_root = "/file"\nmax_parallel_runs = 2\n')
    monkeypatch.setenv("HOLDFAST_WORKSPACE_ROOT", "/env")
    monkeypatch.setenv("HOLDFAST_MAX_PARALLEL_RUNS", "3")

    config = load_config(max_parallel_runs=5)

    assert (config.data_dir, config.workspace_root, config.max_parallel_runs) == (Path("/file"), Path("/env"), 5)


def test_an_override_of_none_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", "/env")

    config = load_config(data_dir=None)

    assert config.data_dir == Path("/env")


def test_an_empty_variable_counts_as_not_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", "")

    config = load_config()

    assert config.data_dir == home / ".local/share/holdfast"


@pytest.mark.parametrize("name", ["plain", "with space", "ümläut", "per%cent", "hash#", "question?", "a'b", "$HOME"])
def test_any_folder_the_user_names_is_the_data_folder_and_holds_the_database(home: Path, name: str) -> None:
    config = load_config(data_dir=home / name)

    assert config.data_dir == home / name
    assert config.database_path == home / name / "holdfast.db"


def test_the_tilde_is_the_home_folder(home: Path) -> None:
    config = load_config(data_dir="~/runs")

    assert config.data_dir == home / "runs"


def test_a_relative_argument_is_relative_to_the_working_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)

    config = load_config(data_dir="runs")

    assert config.data_dir == home / "runs"


def test_a_relative_path_in_the_file_is_relative_to_the_file(home: Path) -> None:
    file = write_config(home, 'data_dir = "runs"\n')

    config = load_config()

    assert config.data_dir == file.parent / "runs"


def test_the_file_can_lie_elsewhere_and_its_folder_is_the_configuration_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "mine").mkdir()
    (home / "mine/settings.toml").write_text("day_budget_usd = 12.5\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", "~/mine/settings.toml")

    config = load_config()

    assert (config.day_budget_usd, config.config_dir) == (12.5, home / "mine")


def test_variables_of_tests_and_tools_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOLDFAST_TORTURE", "HOLDFAST_SEED", "HOLDFAST_SIMULATE_LOOP", "HOLDFAST_TEST_POSTGRES"):
        monkeypatch.setenv(variable, "1")

    config = load_config()

    assert isinstance(config, Config)


def test_a_setting_cannot_be_changed_afterwards() -> None:
    config = load_config()

    with pytest.raises(AttributeError):
        config.max_parallel_runs = 9  # type: ignore[misc]


def test_a_password_in_the_database_address_is_not_shown() -> None:
    config = load_config(database_url="postgresql+psycopg://me:hunter2@db/runs")

    assert "hunter2" not in repr(config)
    assert config.database_path is None


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("data_dri = '/x'", "data_dri"),
        ("data_dir = 3", "data_dir"),
        ("data_dir = ''", "data_dir"),
        ("run_budget_usd = -1", "run_budget_usd"),
        ("run_budget_usd = nan", "run_budget_usd"),
        ("max_parallel_runs = 1.5", "max_parallel_runs"),
        ("max_parallel_runs = true", "max_parallel_runs"),
        ("model_tries = 0", "model_tries"),
        ("model_tries = 101", "model_tries"),
        ("model_answer_timeout_s = 0", "model_answer_timeout_s"),
        ("model_idle_timeout_s = nan", "model_idle_timeout_s"),
        ("model_max_wait_s = -1", "model_max_wait_s"),
        ("model_max_wait_s = 1e6", "model_max_wait_s"),
        ("[server]\nport = 3", "server"),
    ],
)
def test_a_fault_in_the_file_is_reported_with_key_file_and_line(home: Path, line: str, key: str) -> None:
    file = write_config(home, f"# mine\n\n{line}\n")

    with pytest.raises(ConfigInvalid) as refused:
        load_config()

    assert refused.value.code == "config_invalid"
    assert (refused.value.facts["key"], refused.value.facts["origin"]) == (key, f"{file}, line 3")
    assert key in refused.value.message
    assert str(file) in refused.value.message


def test_a_file_that_is_not_toml_is_named_with_the_line(home: Path) -> None:
    file = write_config(home, 'data_dir = "/x"\n???\n')

    with pytest.raises(ConfigInvalid, match=r"line 2") as refused:
        load_config()

    assert str(file) in refused.value.message


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", "/nowhere/config.toml")

    with pytest.raises(ConfigInvalid, match=r"HOLDFAST_CONFIG.*there is no file /nowhere/config.toml"):
        load_config()


@pytest.mark.parametrize("value", ["ten", "0", "inf", "1e999"])
def test_a_wrong_variable_is_reported_by_its_name(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOLDFAST_DAY_BUDGET_USD", value)

    with pytest.raises(ConfigInvalid) as refused:
        load_config()

    assert refused.value.facts["origin"] == "environment variable HOLDFAST_DAY_BUDGET_USD"


def test_an_unknown_variable_is_refused_and_the_likely_one_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIRR", "/x")

    with pytest.raises(ConfigInvalid, match="HOLDFAST_DATA_DIRR") as refused:
        load_config()

    assert "data_dir" in refused.value.hint


@pytest.mark.parametrize(
    "overrides",
    [
        {"no_such_setting": 1},
        {"data_dir": "a\0b"},
        {"data_dir": 7},
        {"data_dir": "~no-such-user-here/x"},
        {"database_url": "mysql://x"},
        {"database_url": "sqlite+aiosqlite://"},
        {"database_url": 5},
    ],
)
def test_a_wrong_argument_is_reported_by_its_name(overrides: dict[str, object]) -> None:
    key = next(iter(overrides))

    with pytest.raises(ConfigInvalid) as refused:
        load_config(**overrides)

    assert (refused.value.facts["key"], refused.value.facts["origin"]) == (key, f"argument {key}")


def test_a_refused_database_address_does_not_show_its_password() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load_config(database_url="mysql://me:hunter2@db/runs")

    assert "hunter2" not in str(refused.value.to_dict())


def test_a_data_folder_that_is_a_file_is_refused(home: Path) -> None:
    (home / "taken").write_text("")

    with pytest.raises(ConfigInvalid, match="is a file, not a folder"):
        load_config(data_dir=home / "taken")


def test_reading_settings_loads_no_pydantic() -> None:
    program = "import sys, holdfast.config; holdfast.config.load_config(); print('pydantic' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout == "False\n"


def test_the_reference_names_every_setting() -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text()

    for setting in fields(Config):
        if setting.name != "config_dir":
            assert f"`{setting.name}`" in reference
            assert f"`HOLDFAST_{setting.name.upper()}`" in reference


def test_proxies_are_addresses_or_networks() -> None:
    assert load_config(trusted_proxies="127.0.0.1, 10.0.0.0/8").trusted_proxies == ("127.0.0.1", "10.0.0.0/8")
    assert load_config().trusted_proxies == ()


@pytest.mark.parametrize("value", ["*", "proxy.example.org", "10.0.0.1/8", "0.0.0.0/0", "::/0"])
def test_a_proxy_that_could_be_anybody_is_refused(value: str) -> None:
    with pytest.raises(ConfigInvalid, match="trusted_proxies"):
        load_config(trusted_proxies=value)
