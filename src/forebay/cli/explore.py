"""`forebay explore`: a page of this computer alone, on which plans follow sliders."""

import hmac
import json
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import typer

LOOPBACK = "127.0.0.1"


def explore(
    port: Annotated[int, typer.Option(help="Port of this computer; 0 takes a free one.")] = 0,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Show a page with sliders for loop, budgets and links, which the real planner follows; Ctrl-C ends it."""
    server = Server(port)
    typer.echo(json.dumps({"address": server.address}) if as_json else f"open {server.address}; Ctrl-C ends it")
    if opens:
        import webbrowser

        webbrowser.open(server.address)
    with server:
        server.serve_forever()


class Server(ThreadingHTTPServer):
    """Answers this computer, and there whoever knows its token."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.token = secrets.token_urlsafe(24)

    @property
    def host(self) -> str:
        """What a browser calls it; pages of others that lead to it by another name are not answered."""
        return f"{LOOPBACK}:{self.server_port}"

    @property
    def address(self) -> str:
        """Of the page, with the token."""
        return f"http://{self.host}/?token={self.token}"


class Handler(BaseHTTPRequestHandler):
    """Sends the page, or a plan."""

    server: Server

    def do_GET(self) -> None:
        """Answer one request."""
        asked = urlsplit(self.path)
        given = dict(parse_qsl(asked.query))
        known = hmac.compare_digest(given.pop("token", "").encode(), self.server.token.encode())
        if not known or self.headers.get("Host") != self.server.host:
            self._send(403, "text/plain", "open the address that `forebay explore` printed")
        elif asked.path == "/":
            from forebay.report.explorer import page

            self._send(200, "text/html", page())
        elif asked.path == "/plan":
            from forebay.report.explorer import answer

            self._send(200, "application/json", json.dumps(answer(given)))
        else:
            self._send(404, "text/plain", "there is no such page")

    def _send(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
            "frame-ancestors 'none'",
        )
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002 - as the library has it
        """Say nothing: the token is part of each request."""
