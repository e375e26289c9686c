"""Settings: a flag wins over a variable, a variable over a file, a file over the default."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cachekeeper import config
from cachekeeper.config import cache_home, keep_in_cache, setting
from cachekeeper.errors import UsageError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    directory = tmp_path / "project" / "inner"
    directory.mkdir(parents=True)
    monkeypatch.chdir(directory)
    return directory


def own(directory: Path, text: str) -> None:
    (directory / "cachekeeper.toml").write_text(text)


def pyproject(directory: Path, text: str) -> None:
    (directory / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.cachekeeper]\n{text}")


def test_nobody_set_it(project: Path):
    assert config.setting("name") is None


def test_a_flag_wins_over_everything(project: Path, monkeypatch: pytest.MonkeyPatch):
    own(project, "name = 'file'")
    monkeypatch.setenv("CACHEKEEPER_NAME", "variable")
    assert config.setting("name", "flag") == "flag"


def test_a_flag_that_is_false_is_a_flag(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_WAIT", "5")
    assert config.setting("wait", 0) == 0


def test_a_variable_wins_over_files(project: Path, monkeypatch: pytest.MonkeyPatch):
    own(project, "name = 'file'")
    monkeypatch.setenv("CACHEKEEPER_NAME", "variable")
    assert config.setting("name") == "variable"


def test_an_empty_variable_is_none(project: Path, monkeypatch: pytest.MonkeyPatch):
    own(project, "name = 'file'")
    monkeypatch.setenv("CACHEKEEPER_NAME", "")
    assert config.setting("name") == "file"


def test_cachekeeper_toml_wins_over_pyproject_toml(project: Path):
    own(project, "name = 'own'")
    pyproject(project, "name = 'shared'")
    assert config.setting("name") == "own"


def test_pyproject_toml(project: Path):
    pyproject(project, "name = 'shared'")
    assert config.setting("name") == "shared"


def test_the_nearest_file_upwards_counts_alone(project: Path):
    own(project.parent, "name = 'outer'\nwait = 3")
    assert config.setting("name") == "outer"
    own(project, "name = 'inner'")
    assert config.setting("name") == "inner"
    assert config.setting("wait") is None


def test_a_pyproject_toml_without_our_table_is_passed_over(project: Path):
    (project / "pyproject.toml").write_text("[tool.ruff]\nline-length = 120\n")
    own(project.parent, "name = 'outer'")
    assert config.setting("name") == "outer"


def test_a_relative_path_in_a_file_is_below_the_file(project: Path):
    own(project.parent, "store = 'caches'\ncache_dir = './inductor'\nmodel_config = 'config.json'\nname = 'drafter'")
    assert config.setting("store") == f"{project.parent}/caches"
    assert config.setting("cache_dir") == f"{project.parent}/inductor"
    assert config.setting("model_config") == f"{project.parent}/config.json"
    assert config.setting("name") == "drafter"


def test_files_of_the_model(project: Path, monkeypatch: pytest.MonkeyPatch):
    own(project.parent, "model_config = 'config.json'\nmodel_sources = 'model:/srv/ops.py'")
    configured = {
        "model_config": project.parent / "config.json",
        "model_sources": [project.parent / "model", Path("/srv/ops.py")],
    }
    assert config.model_files() == configured
    assert config.model_files(None, ["b.py"]) == {**configured, "model_sources": [Path("b.py")]}
    monkeypatch.setenv("CACHEKEEPER_MODEL_SOURCES", "a.py:b")
    assert config.model_files()["model_sources"] == [Path("a.py"), Path("b")]


def test_an_absolute_path_or_url_in_a_file_stays(project: Path):
    own(project, "store = 'file:///srv/caches'\ncache_dir = '/tmp/inductor'")
    assert config.setting("store") == "file:///srv/caches"
    assert config.setting("cache_dir") == "/tmp/inductor"


@pytest.mark.parametrize("key", ["store", "cache_dir", "model_config"])
def test_home_in_a_file_is_expanded(project: Path, own_environment: Path, key: str):
    own(project, f"{key} = '~/x'")
    assert config.setting(key) == f"{own_environment}/x"


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("2.5", 2.5), ("'4'", 4.0), ("0", 0.0)])
def test_numbers_from_a_file(project: Path, text: str, value: float):
    own(project, f"wait = {text}")
    assert config.setting("wait") == value


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1e9"])
def test_numbers_that_make_no_sense(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv("CACHEKEEPER_WAIT", text)
    with pytest.raises(UsageError, match="CACHEKEEPER_WAIT makes no sense") as caught:
        config.setting("wait")
    assert "seconds" in caught.value.facts[0]


@pytest.mark.parametrize("text", ["store = ['a']", "store = 5", "name = true", "cache_dir = {a = 1}", "wait = true"])
def test_a_value_of_the_wrong_type_is_refused(project: Path, text: str):
    own(project, text)
    with pytest.raises(UsageError, match=r"cachekeeper\.toml makes no sense"):
        config.setting(text.split()[0])


def test_an_unknown_key_is_refused_with_what_was_meant(project: Path):
    own(project, "stoer = 'x'")
    with pytest.raises(UsageError, match="has no setting 'stoer'") as caught:
        config.setting("store")
    assert caught.value.hint == "did you mean `store`?"


def test_an_unknown_key_without_a_likeness_gets_the_list(project: Path):
    pyproject(project, "zzz = 1")
    with pytest.raises(UsageError) as caught:
        config.setting("store")
    assert caught.value.hint == "known settings: " + ", ".join(config.SETTINGS)


@pytest.mark.parametrize("key", ["runs", "telemetry"])
def test_what_only_a_variable_sets_is_refused_in_a_file(project: Path, monkeypatch: pytest.MonkeyPatch, key: str):
    own(project, f"{key} = '0'")
    with pytest.raises(UsageError, match=f"{key} in .*: it is a variable only") as caught:
        config.setting("store")
    assert f"CACHEKEEPER_{key.upper()}" in caught.value.hint


@pytest.mark.parametrize("text", ["name = ", "[[[", "name = 'a'\nname = 'b'"])
def test_a_file_that_does_not_parse_is_named(project: Path, text: str):
    own(project, text)
    with pytest.raises(UsageError, match=f"cannot read {project}/cachekeeper.toml"):
        config.setting("name")


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\ncachekeeper = 'x'", "[[tool.cachekeeper]]\nname = 'x'"])
def test_a_table_that_is_none_is_passed_over(project: Path, text: str):
    (project / "pyproject.toml").write_text(text)
    assert config.setting("name") is None


def test_the_default_store_is_not_among_the_caches(own_environment: Path, monkeypatch: pytest.MonkeyPatch):
    assert config.store_url() == f"{own_environment}/data/cachekeeper"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert config.store_url() == f"{own_environment}/.local/share/cachekeeper"
    assert config.store_url("/srv/caches") == "/srv/caches"


def test_variables_that_are_no_setting_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_STORE", "/x")
    monkeypatch.setenv("CACHEKEEPER_STOER", "/x")
    for name in ("RUN", "RUNS", "GUARD", "TELEMETRY"):
        monkeypatch.setenv(f"CACHEKEEPER_{name}", "0")
    assert config.unknown_variables() == ["CACHEKEEPER_STOER"]


def test_a_working_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert config.setting("name") is None


@pytest.mark.parametrize("name", ["cachekeeper.toml", "pyproject.toml"])
@pytest.mark.parametrize(("owner", "mode"), [(12345, 0o644), (None, 0o666)])
def test_settings_of_somebody_else_are_refused(
    name: str, owner: int | None, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In /tmp, anybody can put a file of settings that says what is restored."""
    if owner and os.geteuid():
        pytest.skip("only root can give files away")
    text = 'store = "/elsewhere"\n'
    (tmp_path / name).write_text(text if name == "cachekeeper.toml" else f"[tool.cachekeeper]\n{text}")
    (tmp_path / name).chmod(mode)
    os.chown(tmp_path / name, owner or os.geteuid(), -1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="are not this user's"):
        setting("store")
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", f"nobody, {owner or os.geteuid()}")
    assert setting("store") == "/elsewhere"


def test_what_is_kept_is_the_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = cache_home() / "seen" / "x"
    keep_in_cache(kept, b"data")
    assert kept.read_bytes() == b"data" and [path.name for path in kept.parent.iterdir()] == ["x"]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (cache_home(), kept.parent, kept)]
    assert modes == [0o700, 0o700, 0o600]
