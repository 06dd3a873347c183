"""A server of files over HTTP on this host, in place of the hosts that publish weights."""

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer(ThreadingHTTPServer):
    """Serves `files`, contents by name, with ranges; `cut` bytes of the next answers end the connection after them.

    `redirects` are addresses by name; with `slow`, "headers" or "body", these come byte by byte; what is `refused` is
    answered by 403; ranges begin `shift` bytes later; `mark` is the header that changes with a file, None for none.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.requests, self.cut, self.ranges = {}, [], [], True
        self.redirects, self.slow = {}, None
        self.refused, self.shift, self.mark = set(), 0, "ETag"
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request, client_address):
        """Ignore clients that leave."""


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None or self.path.lstrip("/") in self.server.refused:
            return self.send_error(404 if content is None else 403)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_mark(content)
        self.end_headers()

    def send_mark(self, content):
        if self.server.mark:
            self.send_header(self.server.mark, str(hash(content)))

    def do_GET(self):
        server, content = self.server, self.server.files.get(self.path.lstrip("/"))
        first, _, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        first, end = (int(first), int(end) + 1 if end else None) if server.ranges else (0, None)
        server.requests.append((self.path.lstrip("/"), first))
        if self.path.lstrip("/") in server.redirects:
            self.send_response(302)
            self.send_header("Location", server.redirects[self.path.lstrip("/")])
            return self.end_headers()
        if server.slow:
            return self.drip(b"HTTP/1.0 200 OK\r\n" + (b"\r\n" if server.slow == "body" else b"X: "))
        if self.path.partition("?")[0].lstrip("/") in server.refused:
            return self.send_error(403)
        if content is None:
            return self.send_error(404)
        if first or end:
            first, end = first + server.shift, end and end + server.shift
        if first and first >= len(content):
            return self.send_error(416)
        self.send_response(206 if first or end else 200)
        self.send_header("Content-Length", str(len(content[first:end])))
        if first or end:
            self.send_header("Content-Range", f"bytes {first}-{first + len(content[first:end]) - 1}/{len(content)}")
        self.send_mark(content)
        self.end_headers()
        last = first + server.cut.pop(0) if server.cut else end
        self.wfile.write(content[first:last])

    def drip(self, beginning):
        """Send a beginning, then a byte every 20 ms for five seconds."""
        self.wfile.write(beginning)
        for _ in range(250):
            self.wfile.write(b"x")
            time.sleep(0.02)

    def log_message(self, *words):
        pass


@contextmanager
def serving():
    """Give a FileServer that runs."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
