"""A running `serve`, reached by its own command line."""

import os
import re
import subprocess
import threading

import engines


class Sidecar:
    """Listens on free ports; polls so seldom that only reported commits are heard."""

    def __init__(self, home, extra):
        ports = '[server]\nlisten = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n\n[poll]\nmin = "300s"\nmax = "300s"\n\n'
        config = home.config(ports + extra)
        self.command = engines.Afterwrite(config)
        self.process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", str(config), "serve"], stderr=subprocess.PIPE, text=True)
        listening = {}
        while {"grpc", "http"} - listening.keys():
            line = self.process.stderr.readline()
            assert line, "the sidecar ended before it listened"
            for door, address in re.findall(r"(grpc|http) (?:listens )?on (?:http://)?(127\.0\.0\.1:\d+)", line):
                listening[door] = address
        self.grpc, self.http = listening["grpc"], listening["http"]
        # its log must not fill the pipe
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, *words, ok=(0,)):
        return self.command.run(*words, "--server", f"http://{self.grpc}", ok=ok)

    def report(self, table, ok=(0,)):
        return self.ask("report", f"{self.command.catalog}.{table}", ok=ok)

    def stop(self):
        """Drains it."""
        self.process.terminate()
        assert self.process.wait(60) == 0, "the sidecar did not drain"
