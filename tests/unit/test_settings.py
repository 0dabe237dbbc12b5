"""Settings: precedence of their sources, ranges, and secrets that stay secret."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pgq_py.errors import InvalidArgument
from pgq_py.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_defaults_need_no_file_and_no_variable() -> None:
    settings = load_settings()
    assert settings.conninfo == ""
    assert settings.tick_interval == 0.002
    assert settings.maintenance_interval == 2.0


def test_each_source_wins_over_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pgq]\ntick_interval = 0.1\n")
    assert load_settings().tick_interval == 0.1
    (tmp_path / "pgq.toml").write_text("tick_interval = 0.2\n")
    assert load_settings().tick_interval == 0.2
    monkeypatch.setenv("PGQ_TICK_INTERVAL", "0.3")
    assert load_settings().tick_interval == 0.3
    assert load_settings(tick_interval=0.4).tick_interval == 0.4


def test_sources_are_merged_field_by_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pgq.toml").write_text('dsn = "dbname=shop"\nbatch_events = 7\n')
    monkeypatch.setenv("PGQ_BATCH_EVENTS", "8")
    settings = load_settings()
    assert (settings.conninfo, settings.batch_events) == ("dbname=shop", 8)


def test_an_override_of_none_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQ_DSN", "dbname=shop")
    assert load_settings(dsn=None).conninfo == "dbname=shop"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tick_interval", 0),
        ("tick_interval", 61),
        ("tick_interval", "soon"),
        ("tick_interval", float("nan")),
        ("maintenance_interval", 0.01),
        ("poll_interval", -1),
        ("batch_events", 0),
        ("pool_max_size", 0),
        ("connect_timeout", 0),
        ("application_name", ""),
    ],
)
def test_an_impossible_value_is_refused_with_its_range(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load_settings(**{name: value})
    assert name in caught.value.message
    assert str(Settings.model_fields[name].description) in caught.value.message


def test_a_misspelt_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pgq.toml").write_text("tick_intervall = 1\n")
    with pytest.raises(InvalidArgument, match=r"tick_intervall: no such setting .*tick_interval"):
        load_settings()


def test_other_variables_of_ours_do_not_disturb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQ_SOMETHING_ELSE", "1")
    load_settings()


def test_a_password_is_never_shown() -> None:
    settings = load_settings(dsn="postgresql://app:hunter2@db/shop")
    shown = f"{settings!r} {settings} {settings.model_dump()!r} {settings.model_dump_json()}"
    assert "hunter2" not in shown
    assert "hunter2" in settings.conninfo


@pytest.mark.parametrize(
    "dsn", ["postgres//app:hunter2@db", "password=hunter2 oops", "postgresql://app:hunter2@db:port/x?no=1"]
)
def test_an_unreadable_dsn_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load_settings(dsn=dsn)
    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    assert not any("hunter2" in f"{exc} {exc!r}" for exc in chain)


def test_settings_do_not_change_and_can_travel() -> None:
    settings = load_settings(batch_events=9)
    with pytest.raises(ValueError, match="frozen"):
        settings.batch_events = 10
    assert pickle.loads(pickle.dumps(settings)) == settings
