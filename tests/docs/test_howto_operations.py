"""Tests that run the commands of the how-to pages for operators, in order, and compare the output that the pages show.

A page is a list of blocks. ``sh`` blocks run in one shell per page. A block of another language that starts with a
comment with a file name is written to that file. A ``text`` or ``json`` block after commands is their output.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import yaml

from docs.test_deploy import DEPLOY, _names, _runs
from docs.test_docs import DOCS, SOURCE, rows
from support.brokers import folder_for, make_broker, need
from support.forks import MAIN
from support.s3 import S3Server
from tidemill.config import ENV_PREFIX, Settings
from tidemill.store.embedded_postgres import find_programs_folder
from tidemill.store.migrate import list_migrations
from tidemill.testing.throwaway_postgres import ThrowawayServer
from tidemill_bench.broker_servers import find_free_port
from watches.file_servers import PASSWORD, USER, Rclone

PAGES = DOCS / "how-to"
BLOCK_TIMEOUT_S, START_TIMEOUT_S = 120.0, 60.0
OUTPUT_LANGUAGES = ("text", "json")
SERVER_COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*tidemill (?:worker|serve|up)\b[^&]*$")
READY = re.compile(r'"event": "worker.started"|Listening at|worker\.started')
DATABASE_URL = re.compile(r"postgresql://(\w+)(?::[\w-]+)?@db\.example\.com/(\w+)")
FILE_NAME = re.compile(r"^(?:#|--|//) (\S+\.\w+|crontab)$")
# Commands that need a cluster, systemd, root or the network. Other tests check what they refer to.
NOT_RUN = (
    "systemctl",
    "kubectl",
    "pip install",
    "podman",
    "docker",
    "curl -s http://prometheus",
    "install -D",
    "promtool",
)
NORMALIZED = [
    (r"\x1b\[[0-9;]*[A-Za-z]", ""),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"\b00\d\d_\w+\.sql\b", "MIGRATION"),
    (r"^tidemill \d+\.\d+\.\S+$", "tidemill VERSION"),
    (r"\b[0-9a-f]{32}\b", "FILE"),
    (r"tm_[A-Za-z0-9_-]+", "KEY"),
    (r"J\d{8}_\d{6}", "JOB"),
    (r"20\d\d/\d\d/\d\d/", "DATE/"),
    (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+\d\d(:?\d\d)?| UTC)?", "TIME"),
    (r"20\d\d-\d\d-\d\d", "DATE"),
    (r"(?<=[_ ])20\d{6}\b", "DAY"),
    (r"_20\d\dw\d\d", "_WEEK"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"[\w.-]+-\d+-[0-9a-f]{6}\b", "WORKER"),
    (r"\b\d+(\.\d+)? ?(ms|s|rows/s|items/s|MB|kB|bytes)\b", r"N \2"),
    (r'("workers": ?)\d+', r"\1N"),  # a worker that just started may not be counted yet
    (r'("(?:pid|duration_ms|ms|rows_per_sec|queue_age_s|outbox_age_s)": )[\d.]+', r"\1N"),
    (r"[ \t]+", " "),
    (r"-{3,}[-+]*", "---"),
    (r" +$", ""),
]


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    section: str
    line: int


def read_blocks(page: Path) -> list[Block]:
    blocks: list[Block] = []
    lines: list[str] = []
    language, section = None, ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        stripped = line.strip()
        if language is None and stripped.startswith("```"):
            language, lines, indent, start = stripped[3:], [], line.index("`"), number
        elif language is not None and stripped == "```":
            blocks.append(Block(language, "".join(f"{one[indent:]}\n" for one in lines), section, start))
            language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("## "):
            section = line[3:]
    assert language is None, f"{page.name}: a block is not closed"
    return blocks


def normalize(text: str) -> list[str]:
    for pattern, replacement in NORMALIZED:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return [line.strip() for line in text.strip().splitlines()]


def matches_output(expected: str, found: str) -> bool:
    """Compare normalized texts. A line "…" matches any lines, and "…" in a line matches any text in it."""
    lines = [
        "(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in normalize(expected)
    ]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in normalize(found))) is not None


@dataclass
class Shell:
    """A shell that keeps its variables and background processes between blocks."""

    folder: Path
    env: dict[str, str]
    socket_folder: str
    replaced: list[tuple[str, str]] = field(default_factory=list)  # pairs: a name on the page, its name in the test
    blocks_run: int = 0
    server_logs: list[Path] = field(default_factory=list)
    http_port: int = field(default_factory=find_free_port)
    metrics_port: int = field(default_factory=find_free_port)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def replace(self, text: str) -> str:
        """Return the text of a page with the names that the test uses."""
        text = DATABASE_URL.sub(rf"postgresql://\1@/\2?host={self.socket_folder}", text)
        for name, value in self.replaced:
            text = text.replace(name, value)
        return text

    def restore(self, text: str) -> str:
        """Return the output of a command with the names that the page uses."""
        for name, value in self.replaced:
            text = text.replace(value, name)
        return text.replace(str(self.folder), "/root")

    def run(self, commands: str) -> tuple[bool, str]:
        """Run commands; return whether all succeeded, and their output."""
        self.blocks_run += 1
        script = self.folder / f".block-{self.blocks_run}"
        script.write_text(self.replace(commands))
        end = f"__END_{self.blocks_run}"
        self._send(
            f"failed=0; trap failed=1 ERR; . ./{script.name} < /dev/null; trap - ERR; echo; echo {end}_$failed\n"
        )
        output, deadline = "", time.monotonic() + BLOCK_TIMEOUT_S
        while not (found := re.search(rf"\n?{end}_(\d)\n", output)):
            assert self._process.stdout is not None
            output += (self._process.stdout.read() or b"").decode()
            assert self._process.poll() is None, f"the shell has ended:\n{output}"
            assert time.monotonic() < deadline, f"not finished after {BLOCK_TIMEOUT_S} s:\n{commands}\n{output}"
            time.sleep(0.01)
        return found[1] == "0", output[: found.start()]

    def start_server(self, command: str) -> None:
        """Start a command that does not end, and wait until it is ready."""
        log = self.folder / f"server-{len(self.server_logs)}.log"
        self.server_logs.append(log)
        ok, output = self.run(f"{command.strip()} > {log.name} 2>&1 &")
        assert ok, output
        deadline = time.monotonic() + START_TIMEOUT_S
        while not READY.search(log.read_text() if log.exists() else ""):
            assert time.monotonic() < deadline, f"{command} is not ready:\n{log.read_text()}"
            time.sleep(0.02)

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def end(self) -> None:
        """Stop the background processes, then the shell."""
        self._send("kill $(jobs -p) 2> /dev/null; wait; exit\n")
        try:
            self._process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(START_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def is_run(commands: str) -> bool:
    return not any(line.startswith(NOT_RUN) for line in commands.splitlines())


@dataclass
class Difference:
    """An output that is not the one on the page."""

    page: str
    block: Block
    shown: Block
    output: str

    def __str__(self) -> str:
        found, expected = "\n".join(normalize(self.output)), "\n".join(normalize(self.shown.text))
        return f"{self.page}:{self.block.line} prints\n{found}\n--- the page shows\n{expected}\n"


def run_page(page: str, shell: Shell, actions: Mapping[str, Callable[[], object]] | None = None) -> None:
    """Run all blocks of a page in order. ``actions`` replace commands that cannot run here, such as systemctl."""
    blocks = read_blocks(PAGES / page)
    differences, commands_run = [], 0
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language in OUTPUT_LANGUAGES or write_file(block, shell):
            continue
        commands = f"psql -X \"$DATABASE_URL\" <<'END'\n{block.text}END\n" if block.language == "sql" else block.text
        if action := (actions or {}).get(commands.strip()):
            action()
            continue
        if block.language not in ("sh", "sql") or not is_run(commands):
            continue
        commands_run += 1
        has_output = after is not None and after.language in OUTPUT_LANGUAGES
        if SERVER_COMMAND.match(commands.strip()) and not has_output:
            shell.start_server(commands)
            continue
        ok, output = shell.run(commands)
        output = shell.restore(output)
        if after is None or not has_output:
            assert ok, f"{page}:{block.line} failed:\n{output}"
            continue
        if not matches_output(after.text, output):
            differences.append(Difference(page, block, after, output))
        assert ok or block.section == "What can go wrong", f"{page}:{block.line} failed:\n{output}"
    assert commands_run, f"{page} has no commands"
    report_differences(differences)


def write_file(block: Block, shell: Shell) -> bool:
    """Write a block that starts with the name of its file."""
    name = FILE_NAME.match(block.text.splitlines()[0])
    if name is None or block.language == "sh" or name[1].startswith("/etc/"):
        return False
    target = Path(shell.replace(name[1])) if "/" in name[1] else shell.folder / name[1]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(shell.replace(block.text))
    return True


def report_differences(differences: list[Difference]) -> None:
    assert not differences, "\n".join(map(str, differences))


@pytest.fixture(scope="module")
def server() -> Iterator[ThrowawayServer]:
    """A server of these tests alone: they create roles and databases with fixed names."""
    with ThrowawayServer("shared_buffers = 64MB\nmax_connections = 200\n") as started:
        yield started


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the `tidemill` command and the programs of PostgreSQL."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "tidemill"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{MAIN}" "$@"\n')
    script.chmod(0o755)
    for name in ("psql", "pg_dump", "pg_restore", "createdb", "dropdb"):
        (folder / name).symlink_to(find_programs_folder() / name)
    (folder / "python").symlink_to(sys.executable)
    return folder


@pytest.fixture
def shell(server: ThrowawayServer, tmp_path: Path, programs: Path) -> Iterator[Shell]:
    """A shell in an empty folder. The server has an empty database ``tidemill``, owned by a role of that name."""
    with psycopg.connect(server._admin, autocommit=True) as admin:
        for database in ("tidemill", "restored"):
            admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        roles = admin.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'tidemill%'").fetchall()
        for (role,) in roles:
            admin.execute(f"DROP ROLE {role}")
        admin.execute("CREATE ROLE tidemill LOGIN")
        admin.execute("CREATE DATABASE tidemill OWNER tidemill")
    folder = tmp_path / "work"
    folder.mkdir()
    env = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
        "TIDEMILL_HOME": str(tmp_path / "home"),
    }
    socket_folder = str(psycopg.conninfo.conninfo_to_dict(server._admin)["host"])
    names = [("/srv/tidemill", str(tmp_path / "srv")), ("/var/lib/tidemill", str(tmp_path / "lib"))]
    started = Shell(folder, env, socket_folder, names)
    started.run(f"export TIDEMILL_HTTP_PORT={started.http_port}")
    yield started
    started.end()


def test_distribute_to_s3_page(shell: Shell, tmp_path: Path, s3: S3Server) -> None:
    (tmp_path / "srv").mkdir()
    shell.replaced += [
        ("s3://acme-reports", s3.blobs_url()),
        ("AKIAEXAMPLE", s3.key),
        ("secret-example", s3.secret),
        ("eu-central-1", s3.env["AWS_REGION"]),
    ]
    shell.run(f"export AWS_ENDPOINT_URL={s3.endpoint}")
    run_page("distribute-to-s3.md", shell)


def test_watch_a_folder_page(shell: Shell, tmp_path: Path) -> None:
    s3 = S3Server(tmp_path / "s3" / "data")
    for folder in ("srv/inbox", "home/.ssh", "ftp/outgoing", "sftp/outgoing"):
        (tmp_path / folder).mkdir(parents=True)
    for protocol in ("ftp", "sftp"):
        (tmp_path / protocol / "outgoing" / "people-1.csv").write_text(f"email,name\nada@{protocol}.org,Ada\n")
    (s3.folder / "incoming").mkdir()
    (s3.folder / "incoming" / "people-2.csv").write_text("email,name\nada@s3.org,Ada\n")
    with (
        s3,
        Rclone("ftp", tmp_path / "ftp", tmp_path / "ftp") as ftp,
        Rclone("sftp", tmp_path / "sftp", tmp_path / "sftp") as sftp,
    ):
        (tmp_path / "known_hosts").write_text(sftp.known_hosts)
        shell.replaced += [
            ("sftp://mill@files.example.com/", f"sftp://{USER}@127.0.0.1:{sftp.port}/"),
            ("ftp://mill@files.example.com/", f"ftp://{USER}@127.0.0.1:{ftp.port}/"),
            ("/etc/tidemill/known_hosts", str(tmp_path / "known_hosts")),
            ("ftp-password", PASSWORD),
            ("s3://acme-incoming", s3.blobs_url("incoming")),
        ]
        for name, value in s3.env.items():
            shell.run(f"export {name}={value}")
        run_page("watch-a-folder.md", shell)
    assert sorted(path.name for path in (tmp_path / "srv/inbox/processed").iterdir()) == ["people-0.csv"]


def test_use_your_own_postgresql_page(shell: Shell, server: ThrowawayServer, tmp_path: Path) -> None:
    with psycopg.connect(server._admin, autocommit=True) as admin:
        admin.execute("DROP DATABASE tidemill")
        admin.execute("DROP ROLE tidemill")
    shell.replaced += [
        ("/home/mill/.local/share/tidemill", str(tmp_path / "home")),
        ("--port 8484", f"--port {shell.http_port}"),
    ]
    run_page("use-your-own-postgresql.md", shell)


def test_back_up_and_restore_page(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "backup").mkdir()
    shell.replaced += [("/backup", str(tmp_path / "backup"))]
    run_page("back-up-and-restore.md", shell)


def test_add_workers_page(shell: Shell) -> None:
    def restart() -> None:
        assert shell.run("kill -TERM %1; wait %1")[0]
        assert '"event": "worker.stopped"' in shell.server_logs[0].read_text()
        shell.start_server("tidemill worker app:mill --processes 2")

    run_page("add-workers.md", shell, {"systemctl restart tidemill-worker@1": restart})


def test_upgrade_page(shell: Shell) -> None:
    shell.replaced += [("127.0.0.1:8484", f"127.0.0.1:{shell.http_port}")]
    run_page("upgrade.md", shell)
    newest = list_migrations()[-1].name
    for change, expected in (
        ("INSERT INTO tidemill.migration VALUES ('0099_next.sql', '')", "The database schema is newer than this"),
        (f"DELETE FROM tidemill.migration WHERE name >= '{newest}'", "The database schema lacks "),
    ):
        shell.run(f'psql -qc "{change}" "$DATABASE_URL"')
        _, output = shell.run("tidemill worker")
        (shown,) = [block.text for block in read_blocks(PAGES / "upgrade.md") if expected in block.text]
        assert matches_output(shown, output), output


@pytest.mark.parametrize("name", ["redis", "rabbitmq"])
def test_redis_or_rabbitmq_page(name: str, shell: Shell, tmp_path: Path) -> None:
    need(name)
    folder = folder_for(name, tmp_path)
    try:
        with make_broker(name, folder) as broker:
            shell.replaced += [
                ("127.0.0.1:8484", f"127.0.0.1:{shell.http_port}"),
                ("redis://redis.example.com:6379/0", broker.url),
            ]
            actions = {"systemctl stop redis": broker.kill, "systemctl start redis": broker.start}
            run_page("redis-or-rabbitmq.md", shell, actions)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_operate_page(shell: Shell) -> None:
    shell.run("export DATABASE_URL=postgresql://tidemill@db.example.com/tidemill; tidemill migrate")
    (shell.folder / "app.py").write_text(
        'from tidemill import Mill\n\nmill = Mill()\n\n\n@mill.handler("greet")\nasync def greet(item): ...\n'
    )
    (shell.folder / "people.csv").write_text("name\nann\n")
    keys = []
    for _ in range(2):
        ok, output = shell.run("tidemill submit greet people.csv --app app:mill")
        assert ok, output
        keys += re.findall(r"J\d{8}_\d{6}", output)[:1]
    shell.replaced += [("OTHER_JOB", keys[1]), ("JOB", keys[0])]
    run_page("operate.md", shell)


def test_monitor_and_alert_page(shell: Shell) -> None:
    shell.replaced += [
        ("127.0.0.1:8484", f"127.0.0.1:{shell.http_port}"),
        ("TIDEMILL_METRICS_PORT=9464", f"TIDEMILL_METRICS_PORT={shell.metrics_port}"),
        ("127.0.0.1:9464", f"127.0.0.1:{shell.metrics_port}"),
    ]
    run_page("monitor-and-alert.md", shell)


def test_monitor_and_alert_page_explains_every_alert() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    shown = {row[0]: row[1] for row in rows("how-to/monitor-and-alert.md", "## Alerts")[1:]}
    assert shown == {rule["alert"]: rule["labels"]["severity"] for rule in group["rules"]}


def test_monitor_and_alert_page_shows_the_scrape_configuration() -> None:
    (shown,) = [block for block in read_blocks(PAGES / "monitor-and-alert.md") if block.language == "yaml"]
    jobs = {scrape["job_name"]: scrape for scrape in yaml.safe_load(shown.text)["scrape_configs"]}
    shipped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert set(jobs) == {scrape["job_name"] for scrape in shipped}
    for scrape in jobs.values():
        assert scrape["metrics_path"] == Settings.model_fields["metrics_path"].default


MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def load_manifests() -> list[dict[str, Any]]:
    return [document for file in MANIFESTS for document in yaml.safe_load_all(file.read_text())]


def list_containers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container of the manifests, with the specification of its pod."""
    pods = [one["spec"]["template"]["spec"] for one in load_manifests() if one["kind"] in ("Deployment", "Job")]
    return [(pod, container) for pod in pods for container in pod["containers"]]


def test_kubernetes_page_shows_every_manifest() -> None:
    shown = [block.text for block in read_blocks(PAGES / "kubernetes.md") if block.language == "yaml"]
    assert sorted(shown) == sorted(file.read_text() for file in MANIFESTS)


def test_kubernetes_page_applies_existing_manifests_and_runs_existing_commands() -> None:
    commands = "".join(block.text for block in read_blocks(PAGES / "kubernetes.md") if block.language == "sh")
    files = {file.name.replace(".example", "") for file in MANIFESTS}
    assert set(re.findall(r"-f (\w+\.yaml)", commands)) == files
    named = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in load_manifests()}
    targets = re.findall(r"^kubectl .*\b(deployment|deploy|job)/([\w-]+)", commands, re.MULTILINE)
    assert len(targets) >= 4
    assert {f"{'job' if kind == 'job' else 'deployment'}/{name}" for kind, name in targets} <= named
    for words in re.findall(r"-- tidemill (.+)", commands):
        _runs(shlex.split(words)[:2])
    for file in re.findall(r"podman build -f deploy/(\S+)", commands):
        assert (DEPLOY / file).is_file()


def test_kubernetes_containers_run_commands_and_images_that_exist() -> None:
    assert len(list_containers()) == 3
    for _, container in list_containers():
        _runs(container["args"])
        image = re.fullmatch(r"registry\.example\.com/tidemill-(\w+):[\d.]+", container["image"])
        assert image is not None
        assert (DEPLOY / f"Containerfile.{image[1]}").is_file()


def test_kubernetes_manifests_refer_to_existing_settings_secrets_and_keys() -> None:
    documents = load_manifests()
    data = {(one["kind"], one["metadata"]["name"]): one.get("data") or one.get("stringData") or {} for one in documents}
    for pod, container in list_containers():
        for source in container.get("envFrom", ()):
            kind, reference = next(iter(source.items()))
            assert ("ConfigMap" if kind == "configMapRef" else "Secret", reference["name"]) in data
        for variable in container["env"]:
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in data["Secret", reference["name"]]
        for volume in pod.get("volumes", ()):
            assert ("ConfigMap", volume["configMap"]["name"]) in data
    for file in MANIFESTS:
        assert _names(file.read_text()) <= set(Settings.model_fields)
    values = {name.removeprefix(ENV_PREFIX).lower(): value for name, value in data["ConfigMap", "tidemill"].items()}
    assert str(Settings(**values).blobs).startswith("s3://")


def test_kubernetes_ports_and_users_are_those_of_the_images() -> None:
    for pod, container in list_containers():
        image = (DEPLOY / f"Containerfile.{container['image'].rpartition('-')[2].partition(':')[0]}").read_text()
        for port in container.get("ports", ()):
            assert f"EXPOSE {port['containerPort']}\n" in image
        if "securityContext" in pod:
            assert f"--uid {pod['securityContext']['runAsUser']} " in image


def test_kubernetes_pods_outlast_stop_grace_and_fit_into_memory() -> None:
    settings = next(one["data"] for one in load_manifests() if one["kind"] == "ConfigMap")
    for pod, container in list_containers():
        if container["args"][0] == "worker":
            assert pod["terminationGracePeriodSeconds"] > int(settings["TIDEMILL_STOP_GRACE_MS"]) / 1000 + 5
            (limit,) = [one["value"] for one in container["env"] if one["name"] == "TIDEMILL_CHILD_MEMORY_MB"]
            processes = int(container["args"][container["args"].index("--processes") + 1])
            assert container["resources"]["limits"]["memory"] == "2Gi"
            assert processes * int(limit) < 2048


def test_kubernetes_probes_answer_as_the_manifests_expect(shell: Shell, server: ThrowawayServer) -> None:
    """Without the database, readiness fails and liveness does not."""
    probes: dict[tuple[str, str], str] = {
        (container["name"], kind): container[kind]["httpGet"]["path"]
        for _, container in list_containers()
        for kind in ("readinessProbe", "livenessProbe")
        if kind in container
    }
    shell.run("export DATABASE_URL=postgresql://tidemill@db.example.com/tidemill; tidemill migrate")
    shell.start_server("tidemill serve")
    shell.start_server(f"TIDEMILL_METRICS_PORT={shell.metrics_port} tidemill worker")
    urls = {
        name: f"http://127.0.0.1:{shell.http_port if name[0] == 'api' else shell.metrics_port}{path}"
        for name, path in probes.items()
    }

    def get_status(name: tuple[str, str]) -> str:
        return shell.run(f"curl -s -o /dev/null -w '%{{http_code}}' {urls[name]}")[1].strip()

    assert {get_status(name) for name in urls} == {"200"}
    with psycopg.connect(server._admin, autocommit=True) as admin:
        admin.execute("DROP DATABASE tidemill WITH (FORCE)")
    assert get_status(("api", "readinessProbe")) == "503"
    assert get_status(("api", "livenessProbe")) == "200"
    assert get_status(("worker", "livenessProbe")) == "200"
    shell.run("kill -KILL $(jobs -p)")  # without a database, they would try to finish their work


def test_distribute_to_s3_timer_and_cron_line_are_valid(tmp_path: Path) -> None:
    """Neither systemctl nor cron runs here: systemd-analyze checks the units, and the shell the line."""
    blocks = read_blocks(PAGES / "distribute-to-s3.md")
    (line,) = [block.text for block in blocks if block.language == "crontab"]
    *times, command = line.split(maxsplit=5)
    assert [re.fullmatch(r"\*|\d+", time) is not None for time in times] == [True] * 5
    subprocess.run(["sh", "-n", "-c", command], check=True)
    assert "/srv/tidemill/distribute.sh" in command
    units = {block.text.splitlines()[0].rpartition("/")[2]: block.text for block in blocks if block.language == "ini"}
    assert set(units) == {"tidemill-distribute.service", "tidemill-distribute.timer"}
    assert re.findall(r"^ExecStart=(.+)$", units["tidemill-distribute.service"], re.MULTILINE) == [command.split()[-1]]
    if shutil.which("systemd-analyze") is None:
        return
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace(command.split()[-1], str(tmp_path / "run")))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in units)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [text for text in checked.stderr.splitlines() if "tidemill-distribute" in text] == []


ROLES = ("tidemill_worker", "tidemill_api")
PRIVILEGE_BITS = {1: "INSERT", 2: "SELECT", 4: "UPDATE", 8: "DELETE"}
# Statements that only the owner runs: migrations and purges.
OWNER_QUERIES = re.compile(r"store/queries/(migration/(?!list|exists|owner)|partition/(drop|mark|lock))|sample/purge")
# COPY and functions in PL/pgSQL have no plan of their own.
PRIVILEGES_WITHOUT_PLAN = {
    ("item", "INSERT"),
    ("outcome", "INSERT"),
    ("repeat", "INSERT"),
    ("limiter_hold", "INSERT"),
    ("limiter_hold", "UPDATE"),
    ("undo_log", "INSERT"),
    ("undo_exception", "INSERT"),
}
ROLE_APP = """
from tidemill import Fail, Item, Mill, Retry

mill = Mill()


@mill.handler("work", limit="shop", max_attempts=2, backoff=0.01)
async def work(item: Item) -> object:
    match item.input.get("as"):
        case "fail":
            raise Fail("it is bad")
        case "retry":
            raise Retry("later", after=600)
    return {"ok": True}
"""
ROLE_CONFIG = """
[limiters.shop]
rate = "1000/s"
concurrency = 50

[resources.people]
table = "public.people"
read = ["admin"]
write = ["admin"]

[datasets.names]
query = "SELECT name FROM public.people WHERE name = %(name)s"
fields = { name = "text" }

[watches.inbox]
source = "inbox"
import = { resource = "people", mode = "upsert" }
every = "manual"
stable_for = "0s"
"""


def prepare_roles(shell: Shell, server: ThrowawayServer) -> None:
    """Create the roles and grants of the page."""
    with psycopg.connect(server._admin, autocommit=True) as admin:
        admin.execute("DROP DATABASE tidemill")
        admin.execute("DROP ROLE tidemill")
    for block in read_blocks(PAGES / "use-your-own-postgresql.md"):
        write_file(block, shell)
    ok, output = shell.run("""
        psql -q -v ON_ERROR_STOP=1 postgresql://postgres@db.example.com/postgres -f roles.sql
        export DATABASE_URL=postgresql://tidemill_owner@db.example.com/tidemill
        tidemill migrate > /dev/null
        psql -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -f grants.sql
        psql -q -v ON_ERROR_STOP=1 postgresql://postgres@db.example.com/tidemill -f tables.sql
    """)
    assert ok, output


def find_required_privileges(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], set[str]]:
    """Return the privileges on tables that statements need, as PostgreSQL plans them, each with its statements."""
    notices: list[str] = []
    conn.add_notice_handler(lambda notice: notices.append(f"{notice.message_primary} {notice.message_detail}"))
    conn.execute("SET client_min_messages = log")
    conn.execute("SET debug_print_plan = on")
    conn.execute("SET debug_pretty_print = off")
    catalog = (
        "SELECT oid, relname FROM pg_class WHERE relnamespace = 'tidemill'::regnamespace AND relkind IN ('r', 'p')"
    )
    tables = dict(conn.execute(catalog).fetchall())
    needed: dict[tuple[str, str], set[str]] = {}
    for file in sorted(SOURCE.rglob("queries/**/*.sql")):
        name = file.relative_to(SOURCE).as_posix()
        if OWNER_QUERIES.search(name) or name.startswith(("testing/", "torture/")):  # these run as the owner
            continue
        text = file.read_text()
        for number, parameter in enumerate(dict.fromkeys(re.findall(r"%\((\w+)\)[sbt]", text)), 1):
            text = re.sub(rf"%\({parameter}\)[sbt]", f"${number}", text)
        notices.clear()
        try:
            conn.execute(f"EXPLAIN (GENERIC_PLAN) {_remove_comments(text)}".replace("%%", "%").encode(), prepare=False)
        except psycopg.Error:
            continue  # a template, or a COPY
        for oid, bits in re.findall(
            r":relid (\d+) :inh \w+ :requiredPerms (\d+)", re.sub(r"\s+", " ", " ".join(notices))
        ):
            for bit, privilege in PRIVILEGE_BITS.items():
                if int(oid) in tables and int(bits) & bit:
                    needed.setdefault((tables[int(oid)], privilege), set()).add(name)
    return needed


def _remove_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def read_granted_privileges(conn: psycopg.Connection[Any], role: str) -> set[tuple[str, str]]:
    """Return the privileges of a role on tables. Partitions are excluded: queries use the parent."""
    query = (
        "SELECT c.relname, p.privilege FROM pg_class c,"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(privilege)"
        " WHERE c.relnamespace = 'tidemill'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        " AND has_table_privilege(%s, c.oid, p.privilege)"
    )
    return set(conn.execute(query, [role]).fetchall())


def test_grants_of_roles_are_the_privileges_that_statements_need(shell: Shell, server: ThrowawayServer) -> None:
    prepare_roles(shell, server)
    with psycopg.connect(server.get_database_url("tidemill"), autocommit=True) as conn:
        granted = set().union(*(read_granted_privileges(conn, role) for role in ROLES))
        needed = find_required_privileges(conn)
    assert len(needed) > 80
    assert {one: statements for one, statements in needed.items() if one not in granted} == {}
    unused = {one for one in granted if one not in needed and one not in PRIVILEGES_WITHOUT_PLAN}
    assert {one for one in unused if one[1] != "SELECT"} == set()


def test_worker_role_cannot_read_credentials_and_roles_cannot_change_tables(
    shell: Shell, server: ThrowawayServer
) -> None:
    prepare_roles(shell, server)
    with psycopg.connect(server.get_database_url("tidemill"), autocommit=True) as conn:
        worker = read_granted_privileges(conn, "tidemill_worker")
        assert not worker & {(name, "SELECT") for name in ("api_key", "session", "sign_in_link")}
        assert not worker & {(name, "UPDATE") for name in ("api_key", "session", "sign_in_link", "app_user")}
        assert not read_granted_privileges(conn, "tidemill_api") & {("worker", "INSERT"), ("duty", "UPDATE")}
        for role in ROLES:
            for statement in ("CREATE TABLE tidemill.mine ()", "DROP TABLE tidemill.job", "TRUNCATE tidemill.job"):
                conn.execute(f"SET ROLE {role}")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement)
            next_year = "SELECT tidemill.ensure_partition(now() + interval '1 year')"
            assert conn.execute(next_year).fetchone() == (role == ROLES[0],)
            conn.execute("RESET ROLE")


def test_worker_and_api_do_all_work_with_their_own_roles(shell: Shell, server: ThrowawayServer, tmp_path: Path) -> None:
    """PostgreSQL denies no statement of either role."""
    prepare_roles(shell, server)
    log = server.server.log
    old_lines = len(log.read_text().splitlines())  # lines of other tests
    (shell.folder / "app.py").write_text(ROLE_APP)
    (shell.folder / "tidemill.toml").write_text(ROLE_CONFIG)
    inbox = shell.folder / "inbox"
    inbox.mkdir()
    (inbox / "people.csv").write_text("email,name\nwatch@example.com,Watch\n")
    need("redis")
    folder = folder_for("redis", tmp_path)
    try:
        with make_broker("redis", folder) as broker:
            shell.run(f'export TIDEMILL_SOURCES=\'{{"inbox": "{inbox}"}}\' TIDEMILL_LOG_LEVEL=info')
            shell.run("export TIDEMILL_FINALIZER_INTERVAL_MS=100 TIDEMILL_FLUSH_INTERVAL_MS=100")
            shell.run("export DATABASE_URL=postgresql://tidemill_worker@db.example.com/tidemill")
            shell.start_server(f"TIDEMILL_BROKER={broker.url} tidemill worker app:mill")
            shell.run("export DATABASE_URL=postgresql://tidemill_api@db.example.com/tidemill")
            shell.start_server("tidemill serve")
            (key,) = re.findall(r"tm_\S+", shell.run("tidemill users add root --admin")[1])
            with httpx2.Client(
                base_url=f"http://127.0.0.1:{shell.http_port}/v1",
                headers={"Authorization": f"Bearer {key}"},
                timeout=60,
            ) as client:
                use_every_feature(ApiUser(client))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert [line for line in log.read_text().splitlines()[old_lines:] if "permission denied" in line] == []


@dataclass
class ApiUser:
    client: httpx2.Client

    def call(self, method: str, path: str, **options: Any) -> Any:
        response = self.client.request(method, path, **options)
        assert response.status_code < 400, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def wait_until_closed(self, job: str) -> Any:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := self.call("GET", f"/jobs/{job}"))["status"] in ("pending", "running", "ingesting"):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def submit(self, *inputs: dict[str, str]) -> str:
        return str(self.call("POST", "/jobs", json={"kind": "work", "inputs": list(inputs)})["id"])


def read_job_id(response: dict[str, Any]) -> str:
    return str(response.get("job_id") or response.get("import_id") or response.get("export_id") or response["id"])


def use_every_feature(api: ApiUser) -> None:
    """Call the routes that write, and wait for the workers."""
    job = api.submit({"as": "fail"}, {"as": "done"}, {"as": "fail"})
    assert api.wait_until_closed(job)["status"] == "completed_with_errors"
    api.call("PATCH", f"/jobs/{job}/items/0", json={"input": {"as": "done"}})
    api.call("POST", f"/jobs/{job}/reprocess", json={})
    api.wait_until_closed(job)
    api.call("POST", "/dead-letters/redrive", json={"all_matching": True, "filter": {"kind": "work"}, "except": []})
    api.wait_until_closed(job)
    export = api.call("POST", f"/jobs/{job}/export", params={"format": "csv"}, json={})
    api.wait_until_closed(read_job_id(export))
    waiting = api.submit({"as": "retry"}, {"as": "retry"}, {"as": "retry"}, {"as": "done"})
    api.call("POST", f"/jobs/{waiting}/pause")
    api.call("POST", f"/jobs/{waiting}/selection/cancel", json={"ranges": [[0, 0]]})
    api.call("POST", f"/jobs/{waiting}/resume")
    api.call("POST", "/pending/run-now", json={"item_ids": [f"{waiting}:1"]})
    api.call("POST", f"/jobs/{waiting}/cancel")
    api.call("DELETE", f"/jobs/{waiting}")
    for options in ({"validate_only": "true"}, {}):
        people = b"email,name\nada@example.com,Ada\nbad,Bad\n"
        form = {"resource": "people", "mode": "upsert"} | options
        done = api.call("POST", "/imports", data=form, files={"file": ("people.csv", people, "text/csv")})
        api.wait_until_closed(read_job_id(done))
        if options:
            api.wait_until_closed(read_job_id(api.call("POST", f"/imports/{read_job_id(done)}/promote")))
    done = api.call("POST", "/exports", json={"resource": "people", "format": "csv"})
    api.wait_until_closed(read_job_id(done))
    done = api.call("POST", "/distributions", json={"dataset": "names", "inputs": [{"name": "Ada"}]})
    api.wait_until_closed(read_job_id(done))
    for _ in range(2):
        api.call("POST", "/ingestion/scan", json={})
    api.call("PATCH", "/limiters/shop", json={"rate": "500/s"})
    api.call("POST", "/limiters/shop/unblock")
    api.call("DELETE", "/quarantine")
    use_accounts(api)
    for path in (
        "/pending",
        "/flow",
        "/sources",
        "/workers",
        "/operations",
        "/users",
        "/keys",
        "/sessions",
        "/limiters",
    ):
        api.call("GET", path)


def use_accounts(api: ApiUser) -> None:
    api.call("POST", "/users", json={"name": "ada", "role": "user"})
    api.call("PATCH", "/users/ada", json={"role": "admin"})
    link = api.call("POST", "/users/ada/link")["path"].rpartition("/")[2]
    with httpx2.Client(base_url=api.client.base_url) as browser:
        signed_in = browser.post("/session", json={"link": link})
        assert signed_in.status_code < 400, signed_in.text
        assert browser.get("/me").status_code == 200
        ended = browser.delete("/session", headers={"X-CSRF-Token": signed_in.json()["csrf_token"]})
        assert ended.status_code < 400, ended.text
    api.call("DELETE", f"/keys/{api.call('POST', '/keys', json={'name': 'other'})['prefix']}")
    api.call("DELETE", "/users/ada")
