"""Local HTTP server of the page: loopback only, a secret token in every address, and nothing else readable.

A browser sends the name of the host that it thinks it talks to; other names than the loopback's are refused, so that a
page of another site cannot read the answers through a name that it controls (DNS rebinding). Answers may not be framed,
cached, or used by other origins.
"""

from __future__ import annotations

import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.reports.server.contents import Contents, Page, Sent

LOOPBACK = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SECONDS = 30  # of silence, after which a connection is closed


class PageServer(ThreadingHTTPServer):
    """Server of one page.

    Parameters
    ----------
    contents : Contents or Page
        What the server sends.
    port : int
        Port to listen at; 0 for a free one.

    Raises
    ------
    ConfigError
        If the port is in use or not allowed.
    """

    daemon_threads = True

    def __init__(self, contents: Contents | Page, port: int = 0) -> None:
        self.contents = contents
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "not a port number (0 to 65535)"
            raise ConfigError(f"port {port}: {reason}; choose another port, or omit PORT for a free port") from None

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def run(self) -> None:
        """Serve until interrupted."""
        self.contents.start()
        try:
            self.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            pass
        finally:
            self.contents.stop()
            self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that a browser ends early."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "sgsdump", ""
    timeout = SECONDS

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        host = self.headers.get("Host", "")
        if host not in (f"{LOOPBACK}:{self.server.server_port}", f"localhost:{self.server.server_port}"):
            return self._refuse(403, "wrong host")
        empty, _, rest = self.path.partition("/")
        token, slash, path = rest.partition("/")
        is_known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if empty or not slash or not is_known:
            return self._refuse(404, "not found")
        try:
            sent = self.server.contents.answer(path)
        except SgsdumpError as error:
            return self._refuse(409, str(error))
        if sent is None:
            return self._refuse(404, "not found")
        return self._send(200, sent)

    def _refuse(self, status: int, text: str) -> None:
        self._send(status, Sent("text/plain; charset=utf-8", f"{text}\n".encode(), {}))

    def _send(self, status: int, sent: Sent) -> None:
        self.send_response(status)
        self.send_header("Content-Type", sent.kind)
        self.send_header("Content-Length", str(len(sent.data)))
        for name, value in {**_HEADERS, **sent.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent.data)

    def log_message(self, format: str, *values: object) -> None:
        """Write no log: it would hold the token."""
