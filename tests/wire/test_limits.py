# SPDX-License-Identifier: Apache-2.0
"""Limits and faults over HTTP: too large, too deep, too slow, half closed, reset, too many; the server goes on."""
import concurrent.futures
import json
import pathlib
import random
import resource
import shutil
import socket
import struct
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
from wire import REPOSITORY, executions, raw_request, read_answer, wait_until

INFER = "/v2/models/identity_fp32/infer"
BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}).encode()
SLOW = "/v2/models/identity_slow/infer"


@pytest.fixture(autouse=True)
def still_well(server):
    yield
    assert server.alive(), server.log_text()[-6000:]
    assert requests.post(server.url(INFER), data=BODY, timeout=60).json()["outputs"][0]["data"] == [1.0, 2.0]


def exchange(server, data, seconds=20):
    with server.connect(seconds) as sock:
        sock.sendall(data)
        return read_answer(sock)


# ---- too much ----


def test_head_too_large(server):
    status, _, body = exchange(server, raw_request(INFER, BODY, ["X: " + "x" * (70 << 10)]))
    assert status == 431 and "error" in json.loads(body)
    assert exchange(server, raw_request(INFER, BODY, [f"X-{i}: y" for i in range(200)]))[0] == 431
    assert exchange(server, raw_request("/v2/" + "x" * (70 << 10), method="GET"))[0] in (414, 431)


def test_body_too_large(start):
    small = start("--http-max-input-size", "1000")
    status, headers, body = exchange(small, raw_request(INFER, b"x" * 1001))
    assert status == 413 and headers["connection"] == "close" and "error" in json.loads(body)
    assert exchange(small, raw_request(INFER, BODY))[0] == 200
    for size in ("99999999999", "99999999999999999999999"):  # said, not sent
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
        assert exchange(small, head)[0] in (400, 413)


def chunked(chunks):
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


def test_chunks(server):
    status, _, body = exchange(server, chunked([BODY[:10], BODY[10:11], BODY[11:]]))
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == [1.0, 2.0]
    assert exchange(server, chunked([b" "] * 70000 + [BODY]), 60)[0] == 400


def test_json_depth(server):
    def ask(depth):
        data = b"[" * depth + b"1,2" + b"]" * depth
        body = BODY.replace(b"[1, 2]}", data + b"}", 1) if b"[1, 2]}" in BODY else BODY
        return requests.post(server.url(INFER), data=body, timeout=60)

    assert BODY.count(b"[1, 2]}") == 1
    assert ask(99).json()["outputs"][0]["data"] == [1.0, 2.0]
    answer = ask(100)
    assert (answer.status_code, answer.json()["error"]) == (
        400, "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)")
    answer = requests.post(server.url(INFER), data=b'{"x":' + b"[" * 100000, timeout=60)
    assert answer.status_code == 400


def test_a_short_text_takes_no_large_tensor(server):
    before = server.resident_bytes()
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 16_000_000], "datatype": "FP32", "data": [1]}]}
    for _ in range(10):
        assert requests.post(server.url(INFER), json=body, timeout=60).status_code == 500
    assert server.resident_bytes() - before < 32 << 20


# ---- malformed ----


@pytest.mark.parametrize("data", [b"\x00" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"G\x01T / HTTP/1.1\r\n\r\n",
                                  b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\nx",
                                  b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
                                  b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
                                  b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET / HTTP/1.1\r\nA B: c\r\n\r\n",
                                  b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n"])
def test_malformed(server, data):
    status, headers, _ = exchange(server, data)
    assert 400 <= status < 600 and headers["connection"] == "close"


# ---- pipelining, keep-alive ----


def test_pipelined(server):
    with server.connect() as sock:
        sock.sendall(raw_request(INFER, BODY) * 30 + raw_request("/v2", method="GET"))
        stream = sock.makefile("rb")
        for _ in range(31):
            line = stream.readline()
            assert line.startswith(b"HTTP/1.1 200")
            length = 0
            while (header := stream.readline().strip()):
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            stream.read(length)


def test_byte_by_byte(server):
    with server.connect() as sock:
        for byte in raw_request(INFER, BODY):
            sock.sendall(bytes([byte]))
        assert read_answer(sock)[0] == 200


# ---- slow and gone ----


def answer_or_end(sock):
    """The first bytes; none where the server closed. Whether that is an end or a reset is up to what the kernel had received."""
    try:
        return sock.recv(65536)
    except ConnectionResetError:
        return b""


def test_half_closed(server):
    """A client that shuts its sending side after a whole request counts as gone, or is answered; it does no harm."""
    for path in (INFER, SLOW):
        with server.connect() as sock:
            sock.sendall(raw_request(path, BODY))
            sock.shutdown(socket.SHUT_WR)
            answer = answer_or_end(sock)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 200 ")
    with server.connect() as sock:  # in the middle of a body
        sock.sendall(raw_request(INFER, BODY)[:-10])
        sock.shutdown(socket.SHUT_WR)
        assert answer_or_end(sock) == b""


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_reset_at_every_byte(server):
    data = raw_request(INFER, BODY)
    for cut in range(0, len(data), 7):
        sock = server.connect()
        sock.sendall(data[:cut])
        reset(sock)
    for _ in range(20):
        sock = server.connect()
        sock.sendall(data * 3)
        reset(sock)


def test_reset_together_with_bytes(start):
    """A reset that comes in the same moment as what was sent before it is not lost, whatever state it meets."""
    own = start()
    stream = raw_request("/v2/models/repeat_int32/generate_stream",
                         json.dumps({"IN": [1] * 100, "DELAY": [50] * 100, "WAIT": 0}).encode())
    for data in (raw_request(INFER, BODY), raw_request(SLOW, BODY), stream):
        for cut in (10, 100, len(data) - 5, len(data)):
            for _ in range(10):
                sock = own.connect()
                sock.sendall(data[:cut])
                reset(sock)
    wait_until(lambda: open_connections(own) == 0)
    wait_until(lambda: "proa_requests_in_flight 0" in metrics_text(own))


def test_clients_that_behave_badly(start):
    """Three seconds of pieces of requests, several at once, shut, reset and left at random; nothing is left of them."""
    own, chance = start(), random.Random(1)
    stream = json.dumps({"IN": [1] * 5, "DELAY": [3] * 5, "WAIT": 0}).encode()
    asked = [raw_request(INFER, BODY), raw_request(SLOW, BODY), raw_request("/v2", method="GET"),
             raw_request("/v2/models/repeat_int32/generate_stream", stream)]
    end = time.monotonic() + 3
    while time.monotonic() < end:
        socks = [own.connect() for _ in range(chance.randint(1, 8))]
        data = chance.choice(asked)
        for sock in socks:
            sock.sendall((data * chance.randint(1, 4))[:chance.choice([10, 100, len(data) - 5, len(data), 10**6])])
        for sock in socks:
            how = chance.randrange(4)
            if how == 0:
                sock.shutdown(socket.SHUT_WR)
            elif how == 1:
                reset(sock)
            elif how == 2:
                time.sleep(chance.random() * 0.01)
            sock.close()
    assert own.alive(), own.log_text()[-6000:]
    wait_until(lambda: open_connections(own) == 0 and "proa_requests_in_flight 0" in metrics_text(own))


def metrics_text(server):
    return requests.get(f"http://{server.metrics}/metrics", timeout=60).text


def test_a_client_that_leaves_is_noticed_at_once(start):
    """Ten requests wait 200 ms each for one instance; nine leave, and the last is answered as if they had not been."""
    own = start()
    socks = [own.connect() for _ in range(20)]
    for sock in socks:
        sock.sendall(raw_request(SLOW, BODY))
    time.sleep(0.1)
    for sock in socks[:-1]:
        reset(sock)
    assert read_answer(socks[-1])[0] == 200
    assert executions(own, "identity_slow") <= 10
    socks[-1].close()
    wait_until(lambda: "proa_requests_in_flight 0" in metrics_text(own))


def test_streams_that_are_left(start):
    own = start()
    body = json.dumps({"IN": [1] * 1000, "DELAY": [50] * 1000, "WAIT": 0}).encode()  # 50 s
    for _ in range(8):
        sock = own.connect()
        sock.sendall(raw_request("/v2/models/repeat_int32/generate_stream", body))
        text = b""
        while b"data:" not in text:  # the head and the first event come in as many segments as the kernel likes
            text += sock.recv(4096)
            assert text
        sock.close()
    wait_until(lambda: "proa_requests_in_flight 0" in metrics_text(own))


def test_slow_reader(server):
    """Who does not read does not make the server hold more than what it has to say, and others go on."""
    count = 1 << 21
    body = np.zeros((1, count), np.float32).tobytes()
    head = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, count], "datatype": "FP32", "parameters": {"binary_data_size": 4 * count}}],
                       "parameters": {"binary_data_output": True}}).encode()
    request = raw_request(INFER, head + body, [f"Inference-Header-Content-Length: {len(head)}"])
    socks = [server.connect() for _ in range(4)]
    for sock in socks:
        sock.sendall(request)
    assert requests.post(server.url(INFER), data=BODY, timeout=20).status_code == 200
    for sock in socks:
        status, _, answer = read_answer(sock)
        assert status == 200 and len(answer) > 4 * count
        sock.close()


def test_slow_sender(server):
    """A head that does not come to its end is given up; the time for it is 10 s."""
    with server.connect(60) as sock:
        begin = time.monotonic()
        sock.sendall(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: ")
        answer = sock.recv(4096)
        assert (b" 408 " in answer or answer == b"") and 5 < time.monotonic() - begin < 50


# ---- many ----


def test_many_idle_connections(server):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5000
    if limit[1] < wanted + 200:
        pytest.skip(f"at most {limit[1]} open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 200, limit[1]))
    try:
        before = server.resident_bytes()
        socks = [server.connect() for _ in range(wanted)]
        wait_until(lambda: open_connections(server) >= wanted)
        begin = time.monotonic()
        for _ in range(50):
            assert requests.post(server.url(INFER), data=BODY, timeout=20).status_code == 200
        assert time.monotonic() - begin < 30
        assert server.resident_bytes() - before < 60 << 20
        for sock in socks[::100]:  # they work, each of them
            sock.sendall(raw_request("/v2/health/live", method="GET"))
            assert read_answer(sock)[0] == 200
        for sock in socks:
            sock.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    wait_until(lambda: open_connections(server) < 100)


@pytest.mark.parametrize("busy", [False, True])
def test_health_and_metrics_without_descriptors(start, busy):
    """Connections use up all descriptors: idle ones make room; beside busy ones health and metrics use a reserve."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, before[1]))
    try:
        running = start("--http-thread-count", "2")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    line = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{" if busy else b""
    socks = []
    for _ in range(160):
        socks.append(running.connect())
        socks[-1].sendall(line)
    descriptors = pathlib.Path(f"/proc/{running.process.pid}/fd")
    wait_until(lambda: len(list(descriptors.iterdir())) >= 140)
    for _ in range(10):
        with running.connect() as sock:
            sock.sendall(raw_request("/v2/health/live", method="GET"))
            assert read_answer(sock)[0] == 200
        answer = requests.get(f"http://{running.metrics}/metrics", timeout=20)
        assert answer.status_code == 200 and "proa_connections" in answer.text
        if busy:
            answer = requests.post(running.url("/v2/repository/index"), timeout=20)
            assert (answer.status_code, answer.json()["error"]) == (503, "too many connections: the server has no more file descriptors")
    with triton_grpc.InferenceServerClient(running.grpc) as client:
        assert client.is_server_live(client_timeout=20)
    for sock in socks:
        sock.close()
    wait_until(lambda: len(list(descriptors.iterdir())) < 100)
    assert requests.post(running.url(INFER), data=BODY, timeout=20).status_code == 200


def open_connections(server):
    line = next(line for line in metrics_text(server).splitlines() if line.startswith('proa_connections{face="http"}'))
    return int(line.split()[1])


def test_overload(start, tmp_path):
    """One instance, a queue of 4: of 40 requests at once some are refused with 429 and Retry-After, the others are answered."""
    shutil.copytree(REPOSITORY / "identity_slow", tmp_path / "identity_slow")
    config = tmp_path / "identity_slow/config.pbtxt"
    config.write_text(config.read_text() + "dynamic_batching { default_queue_policy { max_queue_size: 4 } preferred_batch_size: [ 1 ] }\n")
    for options, refusal in (((), 429), (("--strict-triton=true",), 503)):
        own = start(*options, repositories=[tmp_path])
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda _: requests.post(own.url(SLOW), data=BODY, timeout=60), range(40)))
        refused = [a for a in answers if a.status_code == refusal]
        assert refused and len(refused) + sum(a.status_code == 200 for a in answers) == 40
        assert all("Exceeds maximum queue size" in a.json()["error"] for a in refused)
        if refusal == 429:
            assert all(int(a.headers["Retry-After"]) >= 1 for a in refused)
        assert requests.post(own.url(SLOW), data=BODY, timeout=60).status_code == 200
