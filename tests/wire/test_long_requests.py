# SPDX-License-Identifier: Apache-2.0
"""Requests that take long to read or to answer: a server with one event loop answers others meanwhile, in every order."""
import gzip
import json
import shutil
import socket
import threading

import grpc
import hpack
import numpy as np
import pytest
import requests
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from wire import PROA, REPOSITORY, ROOT, Server, raw_request, read_answer, wait_until

LIVE = raw_request("/v2/health/live", method="GET")
INFER = "/v2/models/identity_fp32/infer"


def numbers(mib):
    return b",".join([b"0.12345678"] * (mib * 95325))


def infer_json(mib):
    n = mib * 95325
    return b'{"inputs":[{"name":"INPUT0","shape":[1,%d],"datatype":"FP32","data":[%s]}]}' % (n, numbers(mib))


def members(count, value=b"1"):
    return b'{"model":"classics-10m",' + b",".join(b'"k%d":%s' % (i, value) for i in range(count)) + b"}"


LONG = {
    "infer": (INFER, lambda: infer_json(24), [], 200),
    "infer, packed": (INFER, lambda: gzip.compress(infer_json(24), 1), ["Content-Encoding: gzip"], 200),
    "infer, packed bomb": (INFER, lambda: gzip.compress(bytes(400 << 20)), ["Content-Encoding: gzip"], 413),
    "generate": ("/v2/models/identity_fp32/generate", lambda: b'{"INPUT0":[%s]}' % numbers(24), [], 200),
    "ids": ("/v1/completions", lambda: json.dumps({"model": "classics-10m", "prompt": [1] * 2000000}).encode(), [], 400),
    "members": ("/v1/completions", lambda: members(900000), [], 400),
    "objects": ("/v1/completions", lambda: members(190000, b"{}"), [], 400),
    "load": ("/v2/repository/models/none/load", lambda: b'{"parameters":{"config":"%s"}}' % (b"\\u0061" * 8000000),
             ["Content-Type: application/json"], 500),
}


@pytest.fixture(scope="module")
def one_loop():
    with Server("--http-thread-count=1", "--model-control-mode=explicit", "--load-model=*",
                repositories=(REPOSITORY, ROOT / "models")) as running:
        yield running


def answers_meanwhile(server, data):
    """Sends data; returns its answer, and how many health checks of another connection were answered before it."""
    live = 0
    with server.connect(120) as sock, server.connect(120) as other:
        sock.sendall(data)
        sock.setblocking(False)
        while True:
            try:
                if sock.recv(1, socket.MSG_PEEK):
                    break
            except BlockingIOError:
                pass
            other.sendall(LIVE)
            assert read_answer(other)[0] == 200
            live += 1
        sock.settimeout(120)
        return read_answer(sock), live


@pytest.mark.parametrize("name", LONG)
def test_others_are_answered(one_loop, name):
    path, body, headers, want = LONG[name]
    (status, _, text), live = answers_meanwhile(one_loop, raw_request(path, body(), headers).replace(b"Host: x", b"Host: localhost", 1))
    assert status == want, text[:300]
    assert live >= 3


SLOW_TEMPLATE = "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x|length }}{% set y = x|upper %}{% endfor %}"
LINES_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content|trim }}\n{% endfor %}"


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """Two models whose folders bring chat templates: one that takes for ever, one that is like any other."""
    folder = tmp_path_factory.mktemp("chats")
    for name, template in (("slow", SLOW_TEMPLATE), ("lines", LINES_TEMPLATE)):
        shutil.copytree(ROOT / "models/classics-10m", folder / name)
        (folder / name / "chat_template.jinja").write_text(template)
    with Server("--http-thread-count=1", str(folder / "slow"), str(folder / "lines"), repositories=()) as running:
        yield running


def chat(model, count):
    return json.dumps({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "a"}] * count}).encode()


def test_a_template_that_takes_for_ever(chats):
    (status, _, body), live = answers_meanwhile(chats, raw_request("/v1/chat/completions", chat("slow", 1)))
    assert status == 400 and b"the template takes more than" in body
    assert live >= 3


def test_a_chat_of_many_messages(chats):
    """Memory that a large request took goes back to the system; a larger one is refused."""
    before = chats.resident_bytes()
    (status, _, body), live = answers_meanwhile(chats, raw_request("/v1/chat/completions", chat("lines", 100000)))
    assert status == 400 and b"tokens" in body
    assert live >= 3
    if "asan" not in str(PROA) and "tsan" not in str(PROA):  # sanitizers keep what is freed
        wait_until(lambda: chats.resident_bytes() - before < 80 << 20)
    (status, _, body), _ = answers_meanwhile(chats, raw_request("/v1/chat/completions", chat("lines", 300000)))
    assert status == 400 and b"at most 2097152 values are read" in body


def test_too_many_values(one_loop):
    """Four million members of which nobody asks are not read: their tree would take 400 MB."""
    with one_loop.connect(60) as sock:
        sock.sendall(raw_request("/v1/completions", members(1200000)))
        status, _, body = read_answer(sock)
    assert status == 400 and b"at most 2097152 values are read" in body


def test_answers_keep_their_order(one_loop):
    """What is sent behind a long request on its connection is answered behind it."""
    small = raw_request("/v2/models/identity_fp32", method="GET")
    with one_loop.connect(60) as sock:
        sock.sendall(LIVE + raw_request(INFER, infer_json(2)) + small + raw_request(INFER, infer_json(1)) + LIVE)
        stream = sock.makefile("rb")
        answers = [read_answer(Answers(stream)) for _ in range(5)]
    assert [a[0] for a in answers] == [200] * 5
    assert [len(a[2]) > 100000 for a in answers] == [False, True, False, True, False]
    assert json.loads(answers[2][2])["name"] == "identity_fp32"


class Answers:
    """A socket of which several answers are read."""

    def __init__(self, stream):
        self.stream = stream

    def makefile(self, _):
        return self.stream


@pytest.mark.parametrize("wait", [0, 0.02, 0.2])
def test_clients_that_leave(one_loop, wait):
    """A client that goes while a worker reads its request, or writes its answer, costs nothing but that."""
    before = threading.active_count()
    for path, body in ((INFER, infer_json(4)), ("/v2/models/identity_fp32/generate", b'{"INPUT0":[%s]}' % numbers(4)),
                       ("/v1/completions", json.dumps({"model": "classics-10m", "prompt": "a" * 200000}).encode())):
        sock = one_loop.connect(60)
        sock.sendall(raw_request(path, body))
        if wait:
            threading.Event().wait(wait)
        sock.close()
    assert threading.active_count() == before
    with one_loop.connect(60) as sock:
        sock.sendall(raw_request(INFER, infer_json(1)))
        assert read_answer(sock)[0] == 200


def test_end_while_requests_are_read(start):
    """SIGTERM lets the workers end what they have; connections that are gone are not answered."""
    server = start("--http-thread-count=1")
    socks = [server.connect(60) for _ in range(6)]
    for sock in socks:
        sock.sendall(raw_request(INFER, infer_json(4)))
    socks[0].close()
    server.process.terminate()
    for sock in socks[1:]:
        answer = sock.recv(12)
        assert answer in (b"HTTP/1.1 200", b""), answer
        sock.close()
    assert server.process.wait(60) == 0


# ---- gRPC ----


def typed(count, model="identity_int32", name="1"):
    """A request whose numbers are varints, read one by one."""
    asked = pb.ModelInferRequest(model_name=model, id=name)
    asked.inputs.add(name="INPUT0", datatype="INT32").shape.extend([1, count])
    asked.inputs[0].contents.int_contents.extend([1] * count)
    return asked


@pytest.fixture
def stub(one_loop):
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(one_loop.grpc, options) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def call_at_once(body):
    """A call whose message is gzip, in fewer bytes than the server's windows: all of it is sent before it is looked at."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/inference.GRPCInferenceService/ModelInfer"), (":authority", "x"),
              ("te", "trailers"), ("content-type", "application/grpc"), ("grpc-encoding", "gzip")]
    packed = gzip.compress(body)
    data = b"\1" + len(packed).to_bytes(4, "big") + packed
    pieces = [data[i:i + 16000] for i in range(0, len(data), 16000)]
    return frame(1, 4, 1, hpack.Encoder().encode(fields)) + b"".join(frame(0, piece is pieces[-1], 1, piece) for piece in pieces)


def greet(sock):
    """Takes the server's settings, whose windows hold from then on; returns what came."""
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
    came = b""
    while len(came) < 9 or len(came) < 9 + int.from_bytes(came[:3], "big"):
        came += sock.recv(65536)
    assert came[3:5] == bytes([4, 0])
    sock.sendall(frame(4, 1, 0))
    return came


@pytest.mark.parametrize("body, answered", [(typed(20000000).SerializeToString(), True), (bytes(400 << 20), False)], ids=["numbers", "bomb"])
def test_others_are_answered_beside_grpc(one_loop, body, answered):
    host, port = one_loop.grpc.split(":")
    live = 0
    with socket.create_connection((host, int(port)), timeout=120) as sock, one_loop.connect(120) as other:
        came = greet(sock)
        sock.sendall(call_at_once(body))
        sock.setblocking(False)
        while not (head := next_head(came)):
            try:
                piece = sock.recv(65536)
                assert piece, "the server closed the connection"
                came += piece
            except BlockingIOError:
                other.sendall(LIVE)
                assert read_answer(other)[0] == 200
                live += 1
    assert (("grpc-status", "8") not in head) == answered
    assert live >= 3


def next_head(came):
    """The fields of the first HEADERS frame, if it is there."""
    while len(came) >= 9 + (length := int.from_bytes(came[:3], "big")):
        if came[3] == 1:
            return hpack.Decoder().decode(came[9:9 + length])
        came = came[9 + length:]
    return None


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_large_messages(stub, packing):
    assert stub.ModelInfer(typed(2000000), compression=packing).outputs[0].shape == [1, 2000000]


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_streams_keep_their_order(stub, packing):
    """Small and large messages of a stream are answered as they came; one that is refused in its place."""
    counts = [1, 200000, 2, 300000, 400000, 3]
    asked = [typed(n, name=str(i)) for i, n in enumerate(counts)]
    asked.insert(3, typed(250000, model="none", name="bad"))
    answers = list(stub.ModelStreamInfer(iter(asked), compression=packing))
    texts = [a.error_message or list(a.infer_response.outputs[0].shape) for a in answers]
    assert "unknown model" in texts.pop(3)
    assert texts == [[1, n] for n in counts]


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("wait", [0, 0.02, 0.2])
def test_calls_that_are_cancelled(one_loop, stub, wait, packing):
    """Calls, streams and connections that end while a worker has their message."""
    body = typed(2000000)
    for stream in (False, True):
        call = stub.ModelStreamInfer(iter([body] * 3), compression=packing) if stream else \
            stub.ModelInfer.future(body, compression=packing)
        threading.Event().wait(wait)
        call.cancel()
    with grpc.insecure_channel(one_loop.grpc) as channel:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer.future(body, compression=packing)
        threading.Event().wait(wait)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(body, compression=packing, timeout=0.01 + wait)
        raise grpc.RpcError  # it was answered in time, which is as well
    assert not isinstance(caught.value, grpc.Call) or caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert stub.ModelInfer(typed(300000)).outputs[0].shape == [1, 300000]


def test_long_events(one_loop):
    """An event that a worker writes is the answer of generate."""
    body = b'{"INPUT0":[%s]}' % numbers(8)
    once, stream = (requests.post(one_loop.url(f"/v2/models/identity_fp32/{route}"), data=body, timeout=60)
                    for route in ("generate", "generate_stream"))
    assert once.status_code == stream.status_code == 200
    assert stream.content == b"data: " + once.content + b"\n\n"


@pytest.mark.parametrize("streamed", [False, True])
def test_classes_of_long_outputs(one_loop, streamed):
    """Over gRPC a worker finds the classes of a long output; answers of a stream keep their order."""
    values = np.random.default_rng(5).permutation(900_000).astype(np.float32)[None]

    def request(array, name):
        message = pb.ModelInferRequest(model_name="identity_fp32", id=name)
        message.inputs.add(name="INPUT0", datatype="FP32", shape=array.shape)
        message.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 2
        message.raw_input_contents.append(array.tobytes())
        return message

    messages = [request(values, "long"), request(values[:, :4], "short")]
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(one_loop.grpc, options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        if streamed:
            answers = [one.infer_response for one in stub.ModelStreamInfer(iter(messages), timeout=60)]
        else:
            answers = [stub.ModelInfer(one, timeout=60) for one in messages]
    assert [one.id for one in answers] == ["long", "short"]
    for answer, array in zip(answers, (values, values[:, :4])):
        best = np.argsort(array[0])[::-1][:2]
        want = b"".join(len(text).to_bytes(4, "little") + text for text in (b"%f:%d" % (array[0, i], i) for i in best))
        assert answer.raw_output_contents[0] == want


def test_long_answers_are_compressed_in_order():
    """Workers compress what is long; answers behind it wait, and a client that leaves meanwhile costs nothing."""
    random = np.random.default_rng(7)
    arrays = [random.integers(0, 4, (1, size)).astype(np.float32) for size in (500_000, 3, 20_000, 1, 300_000, 100)]
    arrays.append(random.random((1, 50_000), dtype=np.float32).view(np.uint32).astype(np.float32))  # gzip hardly helps

    def request(array, name):
        message = pb.ModelInferRequest(model_name="identity_fp32", id=name)
        message.inputs.add(name="INPUT0", datatype="FP32", shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
        return message

    messages = [request(array, str(i)) for i, array in enumerate(arrays)]
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with Server("--http-thread-count=1", "--grpc-infer-response-compression-level=medium") as server, \
            grpc.insecure_channel(server.grpc, options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(3):
            leaving = stub.ModelStreamInfer(iter(messages))
            next(leaving)
            leaving.cancel()
        answers = [one.infer_response for one in stub.ModelStreamInfer(iter(messages), timeout=60)]
        assert [one.id for one in answers] == [str(i) for i in range(len(arrays))]
        answers += [stub.ModelInfer(one, timeout=60) for one in messages]
        for answer, array in zip(answers, arrays * 2):
            assert answer.raw_output_contents[0] == array.tobytes()
