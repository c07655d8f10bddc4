# SPDX-License-Identifier: Apache-2.0
"""Where the faces listen: sockets in the file system, one port for all with TLS; signals and traces, by `proa client`."""
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess

import pytest
from wire import PROA, ROOT

TENSOR = ["--input", "INPUT0=INT32[1,2]:4,5"]


def asked(url, *options):
    """The answer of identity_int32 by `proa client`."""
    command = [PROA, "client", "identity_int32", "--url", url, *TENSOR, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def get(connection, path):
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_unix_socket_for_http_and_metrics(start, tmp_path):
    path = str(tmp_path / "door")
    running = start("--http-address", f"unix:{path}", "--allow-grpc=false")
    assert asked(f"unix:{path}").stdout == "OUTPUT0 INT32 [1,2]: 4 5\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        assert "proa_connections" in get(connection, "/metrics")
    assert running.stop() == 0
    assert not os.path.exists(path)


@pytest.mark.parametrize("face", ["http", "grpc", "metrics"])
def test_a_port_in_use_is_said_before_models_are_loaded(face):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = [f"--{other}-port={port if other == face else 0}" for other in ("http", "grpc", "metrics")]
        command = [PROA, "serve", ROOT / "models/classics-10m", *ports]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert ran.stderr == f"proa: cannot listen on 0.0.0.0:{port}: address already in use\n"


def test_places_are_looked_at_before_models_are_loaded(tmp_path):
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    for options, text in [
        (["--http-address", f"unix:{tmp_path}/none/door"], f"cannot listen on unix:{tmp_path}/none/door: No such file or directory"),
        (["--trace-config", f"file={tmp_path}/none/trace"], f"cannot write '{tmp_path}/none/trace': No such file or directory"),
    ]:
        command = [PROA, "serve", ROOT / "models/classics-10m", *ports, *options]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode != 0 and ran.stderr == f"proa: {text}\n", ran.stderr


def test_certificates_are_read_before_models_are_loaded(tmp_path):
    command = [PROA, "serve", ROOT / "models/classics-10m", "--http-cert", tmp_path / "no.pem", "--http-key", tmp_path / "no.key"]
    ran = subprocess.run([*command, "--http-port=0", "--grpc-port=0", "--metrics-port=0"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "no.pem" in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes its certificates with openssl")
def test_one_port_with_tls(start, tmp_path):
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ports = [f"--{face}-port={port}" for face in ("http", "grpc", "metrics")]
    tls = ["--http-cert", cert, "--http-key", key, "--grpc-use-ssl=true", "--grpc-server-cert", cert, "--grpc-server-key", key]
    start(*tls, ports=ports)
    for scheme in ("https", "grpcs"):
        assert asked(f"{scheme}://localhost:{port}", "--ca", cert).stdout == "OUTPUT0 INT32 [1,2]: 4 5\n"
        assert asked(f"{scheme}://localhost:{port}").returncode == 1  # by the system's authorities
    context = ssl.create_default_context(cafile=cert)
    with socket.create_connection(("localhost", port)) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            assert "proa_connections" in get(connection, "/metrics")


def test_one_signal_twice_is_one(start):
    """timeout(1) sends SIGTERM to its child and then to the group: that is no order to drop what runs."""
    running = start()
    running.process.send_signal(signal.SIGTERM)
    assert running.stop() == 0


def test_traces(start, tmp_path):
    file = tmp_path / "trace.json"
    running = start("--trace-config", f"triton,file={file}", "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1")
    assert asked(f"http://{running.http}").returncode == 0
    assert running.stop() == 0
    first, *times = json.loads(file.read_text())
    assert first["model_name"] == "identity_int32" and all(t["id"] == first["id"] for t in times)
    names = [at["name"] for t in times for at in t["timestamps"]]
    assert names[-5:] == ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"]
    for wrong in ("level=TIMESTAMPS", "rate=0", "count=x", "level=ALL", "opentelemetry,none=x", "mode=x", "file"):
        refused = subprocess.run([PROA, "serve", "x", "--trace-config", wrong], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2 and refused.stderr.startswith("proa: --trace-config"), refused.stderr
