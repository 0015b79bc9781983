"""Settings: all problems are reported by name in one error."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from tidemill.config import ENV_PREFIX, Settings, SourceFolder, load_settings
from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import InvalidSettings
from tidemill.core.principal import Role


def problems(monkeypatch: pytest.MonkeyPatch, **env: str) -> str:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings) as caught:
        load_settings()
    return str(caught.value)


def test_settings_without_environment_have_defaults() -> None:
    settings = load_settings()
    assert settings.database_url is None
    assert (settings.batch_size, settings.flush_interval_ms, settings.flush_buffer) == (100, 5_000, 500)
    assert settings.blobs == str(settings.home / "blobs")


def test_settings_are_read_from_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMILL_BATCH_SIZE", "17")
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    settings = load_settings()
    assert (settings.batch_size, settings.home) == (17, tmp_path)


def test_tidemill_database_url_overrides_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://bare")
    assert load_settings().database_url == "postgresql://bare"
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", "postgresql://ours")
    assert load_settings().database_url == "postgresql://ours"


def test_export_file_path_is_alias_for_blobs_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_EXPORT_FILE_PATH", "./exports")
    assert load_settings().blobs == "./exports"
    assert load_settings(blobs="elsewhere").blobs == "elsewhere"
    monkeypatch.setenv("TIDEMILL_BLOBS", "blobs")
    assert load_settings().blobs == "blobs"


def test_idle_connections_above_maximum_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    said = problems(monkeypatch, TIDEMILL_DB_MAX_IDLE_CONNS="9", TIDEMILL_DB_CONN_MAX_LIFETIME="60")
    assert said.endswith("db_max_idle_conns must not exceed db_max_conns")


def test_invalid_blobs_url_is_reported_with_setting_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TIDEMILL_BLOBS: " in problems(monkeypatch, TIDEMILL_EXPORT_FILE_PATH="ftp://somewhere/else")


def test_explicit_setting_overrides_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WORKER_POOL_SIZE", "3")
    assert load_settings(worker_pool_size=5).worker_pool_size == 5
    assert load_settings(worker_pool_size=None).worker_pool_size == 3


def test_unknown_settings_and_invalid_values_are_reported_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    message = problems(
        monkeypatch,
        TIDEMILL_BATCHSIZE="1",
        TIDEMILL_ZEAL="high",
        TIDEMILL_BATCH_SIZE="zero",
        TIDEMILL_POLL_MS="-1",
        TIDEMILL_SAFETY_FACTOR="1.5",
        TIDEMILL_LOG_LEVEL="loud",
    )
    lines = message.splitlines()
    assert lines[0] == "Invalid settings:"
    assert lines[1:3] == [
        '  - TIDEMILL_BATCHSIZE: unknown setting; did you mean "TIDEMILL_BATCH_SIZE"?',
        "  - TIDEMILL_ZEAL: unknown setting",
    ]
    assert '  - TIDEMILL_LOG_LEVEL: must be debug, info, warning or error, not "loud"' in lines
    named = {line.split(":")[0].removeprefix("  - ") for line in lines[3:]}
    assert named == {"TIDEMILL_BATCH_SIZE", "TIDEMILL_POLL_MS", "TIDEMILL_SAFETY_FACTOR", "TIDEMILL_LOG_LEVEL"}


def test_blobs_default_to_home_and_bucket_url_hides_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    assert load_settings().blobs == str(tmp_path / "blobs")
    monkeypatch.setenv("TIDEMILL_BLOBS", "s3://bucket/prefix")
    assert load_settings().blobs == "s3://bucket/prefix"
    message = problems(monkeypatch, TIDEMILL_BLOBS="s3://key:secret@bucket", TIDEMILL_POLL_MS="-1")
    assert "TIDEMILL_BLOBS: a bucket URL can contain only the bucket's name and a prefix" in message
    assert ("secret" in message, "TIDEMILL_POLL_MS" in message) == (False, True)


PAIRS = [
    ("claim_min", "claim_max"),
    ("lock_floor_ms", "lock_cap_ms"),
    ("ingest_min_rows", "ingest_max_rows"),
    ("db_p50_ms", "db_p95_ms"),
    ("batch_size", "flush_buffer"),
    ("max_row_bytes", "ingest_max_batch_bytes"),
]


@pytest.mark.parametrize(("low", "high"), PAIRS)
def test_lower_bound_above_upper_bound_is_rejected(monkeypatch: pytest.MonkeyPatch, low: str, high: str) -> None:
    bound = getattr(Settings(), high)
    message = problems(monkeypatch, **{ENV_PREFIX + low.upper(): str(bound + 1)})
    assert f"{low} must not exceed {high}" in message


def test_all_contradicting_bounds_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    message = problems(
        monkeypatch, TIDEMILL_CLAIM_MIN="99999", TIDEMILL_BATCH_SIZE="501", TIDEMILL_DB_TIMEOUT_MS="30000"
    )
    assert "claim_min must not exceed claim_max" in message
    assert "batch_size must not exceed flush_buffer" in message
    assert "db_timeout_ms must be below lock_floor_ms" in message


def test_contradicting_bounds_are_reported_beside_invalid_values(monkeypatch: pytest.MonkeyPatch) -> None:
    message = problems(
        monkeypatch, TIDEMILL_POLL_MS="soon", TIDEMILL_CLAIM_MIN="50", TIDEMILL_CLAIM_MAX="10", TIDEMILL_ZEAL="1"
    )
    assert "TIDEMILL_POLL_MS" in message
    assert "TIDEMILL_ZEAL" in message
    assert "claim_min must not exceed claim_max" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claim_max", 100_001),
        ("claim_max", 0),
        ("safety_factor", 0),
        ("db_max_conns", 0),
        ("stop_grace_ms", -1),
        ("child_memory_mb", 0),
        ("log_level", "infos"),
    ],
)
def test_setting_out_of_bounds_is_rejected(name: str, value: object) -> None:
    with pytest.raises(InvalidSettings, match=f"TIDEMILL_{name.upper()}: "):
        load_settings(**{name: value})


def test_settings_at_their_bounds_are_accepted() -> None:
    settings = load_settings(claim_max=100_000, claim_min=100_000, safety_factor=1, stop_grace_ms=0, log_level="DEBUG")
    assert settings.claim_max == 100_000


def test_settings_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Settings(), "batch_size", 5)  # noqa: B010  a type checker would not let us try


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_has_description(name: str) -> None:
    description = Settings.model_fields[name].description
    assert description
    assert len(description) > 5


def test_list_setting_accepts_comma_separated_values_or_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMILL_CORS_ORIGINS", "https://a.example, https://b.example")
    monkeypatch.setenv("TIDEMILL_TRUSTED_PROXIES", '["127.0.0.1", "10.0.0.0/8"]')
    monkeypatch.setenv("TIDEMILL_SOURCES", f'{{"inbox": "{tmp_path}", "all": {{"path": "/srv", "read": ["user"]}}}}')
    monkeypatch.setenv("TIDEMILL_KIND_ROLES", "admin")
    settings = load_settings()
    assert settings.cors_origins == ["https://a.example", "https://b.example"]
    assert [str(network) for network in settings.trusted_proxies] == ["127.0.0.1/32", "10.0.0.0/8"]
    admins, users = SourceFolder(path=tmp_path), SourceFolder(path=Path("/srv"), read=(Role.USER,))
    assert settings.sources == {"inbox": admins, "all": users}
    assert settings.kind_roles == [Role.ADMIN]


def test_source_is_a_folder_or_a_bucket_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "TIDEMILL_SOURCES", '{"lake": "s3://lake/daily", "all": {"path": "gs://lake", "read": ["user"]}}'
    )
    lake, everything = load_settings().sources.values()
    assert lake == SourceFolder(path=BucketLocation("s3", "lake", "daily"))
    assert everything == SourceFolder(path=BucketLocation("gs", "lake"), read=(Role.USER,))
    message = problems(monkeypatch, TIDEMILL_SOURCES='{"lake": "s3://key:hunter2@lake"}')
    assert "put credentials into environment variables" in message
    assert "hunter2" not in message


def test_malformed_list_setting_is_reported_with_other_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    message = problems(
        monkeypatch,
        TIDEMILL_CORS_ORIGINS='["https',
        TIDEMILL_TRUSTED_PROXIES="nginx",
        TIDEMILL_SOURCES="/srv/inbox",
        TIDEMILL_POLL_MS="-1",
    )
    named = {line.split(":")[0].removeprefix("  - ") for line in message.splitlines()[1:]}
    assert named == {
        "TIDEMILL_CORS_ORIGINS",
        "TIDEMILL_TRUSTED_PROXIES.0",
        "TIDEMILL_SOURCES",
        "TIDEMILL_POLL_MS",
    }


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:hunter2@db/shop",
        "postgresql://ada:hunter2/x@db/shop",
        "postgresql://ada:x@hunter2@db/shop",
        "postgresql://ada:x/hunter2@db/shop?sslmode=require",
    ],
)
def test_malformed_database_url_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(InvalidSettings) as settings_error:
        load_settings()
    assert str(settings_error.value).startswith("Invalid settings: DATABASE_URL: has ")
    monkeypatch.delenv("DATABASE_URL")
    with pytest.raises(ValidationError) as direct_error:
        Settings(database_url=url)
    assert "hunter2" not in f"{settings_error.value!r} {direct_error.value!r} {direct_error.value}"


@pytest.mark.parametrize(
    "url", ["postgresql://ada:hun%40ter2%2F@db/shop", "postgresql://db/shop?options=-c%20x%3Da@b", "host=db dbname=a@b"]
)
def test_valid_database_url_is_accepted_and_not_in_repr(url: str) -> None:
    settings = Settings(database_url=url, broker="redis://:hunter2@cache/0")
    assert settings.database_url == url
    assert "ter2" not in repr(settings)
