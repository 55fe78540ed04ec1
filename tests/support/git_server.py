"""A git server on loopback that speaks https and asks for a password: `git http-backend` behind Python's server."""

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

USER, PASSWORD = "worker", "a-password-of-the-worker"


@dataclass
class GitServer:
    """Serves the bare repositories below a folder."""

    root: Path
    certificate: Path
    port: int = 0
    refused: list[str] = field(default_factory=list)
    """The requests that came without the password."""

    def url(self, name: str) -> str:
        return f"https://127.0.0.1:{self.port}/{name}"

    def let_in(self, home: Path, *, password: str = PASSWORD) -> None:
        """Give whoever has this home folder the certificate, and git's own credential helper the password."""
        stored = home / ".git-credentials"
        stored.write_text(f"https://{USER}:{password}@127.0.0.1:{self.port}\n")
        settings = f"[http]\n\tsslCAInfo = {self.certificate}\n[credential]\n\thelper = store --file {stored}\n"
        (home / ".gitconfig").write_text(settings)


@contextmanager
def serving_git(root: Path, folder: Path) -> Iterator[GitServer]:
    """Serve the bare repositories below `root`; `folder` is for the certificate."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(_make_certificate()[0])
    key.write_bytes(_make_certificate()[1])
    server = GitServer(root, certificate)

    class Handler(_Handler):
        git_server = server

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = False  # so that closing it waits for them
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
    server.port = listener.server_address[1]
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


class _Handler(BaseHTTPRequestHandler):
    git_server: GitServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {expected}":
            self.git_server.refused.append(self.path)
            self._send(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            return
        parts = urlsplit(self.path)
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.git_server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": USER,
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._send(int(fields.pop("Status", "200").split()[0]), fields, content)

    def _send(self, status: int, fields: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        # TLS that ends with the connection and no word of it is an error to some: the length says where it ends.
        for name, value in {**fields, "Content-Length": str(len(content)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@cache
def _make_certificate() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), private
