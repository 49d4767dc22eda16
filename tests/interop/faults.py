"""What stands between a client and its catalog and goes wrong: each fault hits the next commit and no other."""

import functools
import http.client
import http.server
import threading
import time
import urllib.parse


class Faults:
    """A reverse proxy before `upstream` with one armed fault at a time.

    after:STATUS      the commit is applied, and answered with the status
    drop              the commit is applied, and the connection closed
    replay            the commit is sent twice, and the second answer told
    late:SECONDS      504 is told at once, and the commit applied later
    slow:SECONDS      the commit is applied, and answered later
    """

    def __init__(self, upstream):
        self.netloc = urllib.parse.urlsplit(upstream).netloc
        self.fault = None
        self.seen = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, status, headers, body):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                if status not in (204, 304):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.seen.append((self.command, self.path, dict(self.headers)))
                # a late call must send this request, whatever the connection has carried since
                call = functools.partial(outer.call, self.command, self.path, self.headers, body)
                kind, _, detail = (outer.take(self.command, body) or "none").partition(":")
                if kind == "late":
                    threading.Timer(float(detail), call).start()
                    return self.send(504, [], b"late")
                status, headers, answer = call()
                if kind == "replay":
                    status, headers, answer = call()
                elif kind == "after" and status < 300:
                    status, headers, answer = int(detail), [("Content-Type", "application/json")], b'{"error":{"message":"injected","type":"Injected","code":%s}}' % detail.encode()
                elif kind == "slow":
                    time.sleep(float(detail))
                elif kind == "drop":
                    self.close_connection = True
                    return None
                self.send(status, headers, answer)

            do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, method, body):
        """The armed fault, when this request adds a snapshot."""
        if method != "POST" or b'"add-snapshot"' not in body:
            return None
        fault, self.fault = self.fault, None
        return fault

    def call(self, method, path, headers, body):
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        try:
            connection.request(method, path, body or None, {k: v for k, v in headers.items() if k.lower() not in ("host", "content-length")})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
