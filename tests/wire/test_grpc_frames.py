# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand, frame by frame: what no client sends, floods, and the ends of connections."""
import select
import socket
import struct
import time
import zlib

import hpack
import pytest
from hyperframe.frame import (ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame, PushPromiseFrame,
                              RstStreamFrame, SettingsFrame, WindowUpdateFrame)
from tritonclient.grpc import service_pb2 as pb
from wire import executions, wait_until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, CALM = 1, 3, 6, 11


def message(values=4, model="identity_fp32"):
    asked = pb.ModelInferRequest(model_name=model)
    asked.inputs.add(name="INPUT0", datatype="FP32").shape.extend([1, values])
    asked.raw_input_contents.append(bytes(4 * values))
    return framed(asked.SerializeToString())


def framed(body, flag=0):
    return struct.pack(">BI", flag, len(body)) + body


class Client:
    """A connection whose frames the test makes itself."""

    def __init__(self, server, preface=PREFACE, settings=True):
        host, port = server.grpc.split(":")
        self.sock = socket.create_connection((host, int(port)), timeout=20)
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.buffer = b""
        self.send(preface + (SettingsFrame(0).serialize() if settings else b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, *parts):
        self.sock.sendall(b"".join(p if isinstance(p, bytes) else p.serialize() for p in parts))

    def head(self, stream, path=INFER, more=(), end=False):
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"),
                  ("content-type", "application/grpc"), *more]
        frame = HeadersFrame(stream, self.encoder.encode(fields))
        frame.flags = {"END_HEADERS"} | ({"END_STREAM"} if end else set())
        return frame

    def chunks(self, stream, body):
        """Frames of 16 KiB, the stream stays open."""
        return b"".join(self.data(stream, body[i:i + 16384], end=False).serialize() for i in range(0, len(body), 16384))

    def bytes_of(self, stream, most, got=0):
        """Reads until so many bytes of the stream's messages have come in all."""
        while got < most:
            frame = self.read()
            if isinstance(frame, DataFrame) and frame.stream_id == stream:
                got += len(frame.data)
        return got

    def data(self, stream, body, end=True):
        frame = DataFrame(stream, body)
        frame.flags = {"END_STREAM"} if end else set()
        return frame

    def read(self, seconds=20):
        """The next frame; None at the end of the connection."""
        end = time.monotonic() + seconds
        while True:
            if len(self.buffer) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self.buffer[:9]))
                if len(self.buffer) >= 9 + length:
                    frame.parse_body(memoryview(self.buffer[9:9 + length]))
                    self.buffer = self.buffer[9 + length:]
                    return frame
            left = end - time.monotonic()
            assert left > 0, "no frame came"
            if not select.select([self.sock], [], [], left)[0]:
                continue
            try:
                got = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not got:
                return None
            self.buffer += got

    def until(self, kind, stream=None):
        """The next frame of a kind (and stream). None: the connection ended before."""
        while (frame := self.read()) is not None:
            if isinstance(frame, kind) and stream in (None, frame.stream_id):
                return frame
        return None

    def answer(self, stream):
        """Fields of both heads of a call, and its body."""
        fields, body = {}, b""
        while True:
            frame = self.read()
            assert frame is not None, "the connection ended"
            if frame.stream_id != stream:
                continue
            assert not isinstance(frame, RstStreamFrame), frame
            if isinstance(frame, HeadersFrame):
                fields.update(self.decoder.decode(frame.data))
            elif isinstance(frame, DataFrame):
                body += frame.data
            if "END_STREAM" in frame.flags:
                return fields, body

    def goaway(self):
        """Code and text of the GOAWAY that ends the connection."""
        last = None
        while (frame := self.read()) is not None:
            if isinstance(frame, GoAwayFrame):
                last = frame.error_code, frame.additional_data
        return last


def still_well(server):
    with Client(server) as client:
        client.send(client.head(1), client.data(1, message()))
        fields, body = client.answer(1)
        assert fields["grpc-status"] == "0" and len(body) > 16


@pytest.fixture
def client(server):
    with Client(server) as one:
        yield one
    still_well(server)


# ---- well formed, if unusual ----


def test_byte_by_byte(client):
    for byte in client.head(1).serialize() + client.data(1, message()).serialize():
        client.send(bytes([byte]))
    assert client.answer(1)[0]["grpc-status"] == "0"


@pytest.mark.parametrize("path", ["/" + "%" * 30000, "/" + "x" * 60000], ids=["escaped", "plain"])
def test_long_method(client, path):
    """An unknown method is told as such, however long its name: the text is cut so that it fits into trailers."""
    head = client.head(1, path, end=True)
    parts = [head.data[i:i + 16000] for i in range(0, len(head.data), 16000)]
    head.data, head.flags = parts[0], {"END_STREAM"}
    rest = [ContinuationFrame(1, part) for part in parts[1:]]
    ([head] + rest)[-1].flags.add("END_HEADERS")
    client.send(head, *rest)
    fields, _ = client.answer(1)
    assert fields["grpc-status"] == "12" and fields["grpc-message"].startswith("unknown method '/")
    assert len(fields["grpc-message"]) < 8000


def test_padding(client):
    head, data = client.head(1), client.data(1, message())
    head.flags.add("PADDED")
    data.flags.add("PADDED")
    head.pad_length, data.pad_length = 100, 255
    client.send(head, data)
    assert client.answer(1)[0]["grpc-status"] == "0"


def test_continuation_and_priority(client):
    head = client.head(1, more=[("own", "x" * 200)])
    block, head.data = head.data, head.data[:30]
    head.flags = {"PRIORITY"}
    head.depends_on, head.stream_weight, head.exclusive = 0, 9, False
    rest = ContinuationFrame(1, block[30:])
    rest.flags = {"END_HEADERS"}
    client.send(head, rest, PriorityFrame(3, depends_on=1, stream_weight=1), client.data(1, message()))
    assert client.answer(1)[0]["grpc-status"] == "0"


def test_message_over_many_frames(client):
    body = message(1000)
    client.send(client.head(1))
    for i in range(0, len(body), 7):
        client.send(client.data(1, body[i:i + 7], end=i + 7 >= len(body)))
    fields, answer = client.answer(1)
    assert fields["grpc-status"] == "0" and len(answer) > 4000


def test_calls_between_each_other(client):
    body = message()
    for stream in (1, 3, 5, 7):
        client.send(client.head(stream), client.data(stream, body[:11], end=False))
    for stream in (7, 1, 5, 3):
        client.send(client.data(stream, body[11:]))
    wanted = {1, 3, 5, 7}
    while wanted:
        frame = client.read()
        if isinstance(frame, HeadersFrame):
            fields = dict(client.decoder.decode(frame.data))
            if "END_STREAM" in frame.flags:
                assert fields["grpc-status"] == "0"
                wanted.remove(frame.stream_id)


def test_unknown_frames(client):
    unknown = b"\0\0\4\xfa\xff\0\0\0\0abcd"
    client.send(unknown, client.head(1), unknown, client.data(1, message()))
    assert client.answer(1)[0]["grpc-status"] == "0"


def test_small_window(server):
    """The client takes 10 bytes at a time: the answer comes in frames of 10."""
    with Client(server, settings=False) as client:
        client.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 10}), client.head(1), client.data(1, message(50)))
        body = b""
        while True:
            frame = client.read()
            if isinstance(frame, DataFrame) and frame.stream_id == 1:
                assert len(frame.data) <= 10
                body += frame.data
                client.send(WindowUpdateFrame(1, window_increment=10))
            if isinstance(frame, HeadersFrame) and "END_STREAM" in frame.flags:
                break
        assert len(body) > 200


def test_stream_goes_on_after_a_short_queue(server):
    """Answers of 0.8 MB wait for the client, less than what stops a stream, while a long message was read: once they are
    taken the stream goes on."""
    with Client(server, settings=False) as client:
        client.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0}), client.head(1, STREAM))
        for _ in range(2):
            client.send(client.chunks(1, message(100_000)))
            time.sleep(0.5)
        client.send(WindowUpdateFrame(0, window_increment=1 << 24), WindowUpdateFrame(1, window_increment=1 << 24))
        read = client.bytes_of(1, 800_000)
        client.send(client.chunks(1, message(100_000)))
        client.bytes_of(1, 1_200_000, read)


# ---- heads that are not right ----


@pytest.mark.parametrize("fields, status", [
    ([(":method", "GET"), ("content-type", "application/grpc")], "405"),
    ([(":method", "POST"), ("content-type", "application/json")], "415"),
    ([(":method", "POST")], "415"),
])
def test_not_grpc(client, fields, status):
    block = client.encoder.encode([(":scheme", "http"), (":path", INFER), (":authority", "x"), *fields])
    client.send(HeadersFrame(1, block, flags=["END_HEADERS", "END_STREAM"]))
    assert client.answer(1)[0] == {":status": status}


@pytest.mark.parametrize("more, code", [
    ([("grpc-timeout", "soon")], "13"), ([("grpc-timeout", "0m")], "4"), ([("grpc-encoding", "br")], "12"),
    ([("x-bin", "*")], "13"), ([("more", "v" * 8000)] * 9, "8"),
])
def test_odd_heads(client, more, code):
    frame = client.head(1, more=more)
    parts = [frame.data[i:i + 16000] for i in range(0, len(frame.data), 16000)]
    frame.data, frame.flags = parts[0], {"END_HEADERS"} if len(parts) == 1 else set()
    client.send(frame)
    for i, part in enumerate(parts[1:], 2):
        client.send(ContinuationFrame(1, part, flags=["END_HEADERS"] if i == len(parts) else []))
    client.send(client.data(1, message()))
    assert client.answer(1)[0]["grpc-status"] == code
    client.send(client.head(3), client.data(3, message()))  # the connection goes on
    assert client.answer(3)[0]["grpc-status"] == "0"


@pytest.mark.parametrize("body, code, text", [
    (b"\2\0\0\0\1a", "13", "neither 0 nor 1"), (b"\1\0\0\0\1a", "13", "without a grpc-encoding"), (b"\0\0\0\0\5ab", "13", "within a message"),
    (b"", "13", "no message"), (b"\0\xff\xff\xff\xff", "8", "Received message larger than max (4294967295 vs. 2147483647)"),
])
def test_odd_messages(client, body, code, text):
    client.send(client.head(1), client.data(1, body))
    fields, _ = client.answer(1)
    assert fields["grpc-status"] == code and text in fields["grpc-message"]


@pytest.mark.parametrize("at_once", [False, True], ids=["spread", "at_once"])
def test_answers_before_a_failure(client, at_once):
    """A stream that breaks the rules in its last message is answered until there, however its bytes come."""
    client.send(client.head(1, STREAM))
    parts = [client.data(1, message(4, "no_such_model"), end=False).serialize()] * 3 + [client.data(1, b"\2\0\0\0\0").serialize()]
    for part in [b"".join(parts)] if at_once else parts:
        client.send(part)
        time.sleep(0 if at_once else 0.05)
    fields, body = client.answer(1)
    assert fields["grpc-status"] == "13" and body.count(b"unknown model") == 3


@pytest.mark.parametrize("mib, code", [(64, "3"), (65, "8")])
def test_bomb(client, mib, code):
    """64 MiB in 64 KiB of gzip are unpacked (and are no request); what is larger is refused as a body over HTTP is."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(mib)) + packer.flush()
    client.send(client.head(1, more=[("grpc-encoding", "gzip")]))
    body = framed(packed, 1)
    for i in range(0, len(body), 16000):
        client.send(client.data(1, body[i:i + 16000], end=i + 16000 >= len(body)))
    fields, _ = client.answer(1)
    assert fields["grpc-status"] == code
    if code == "8":
        assert fields["grpc-message"] == "Received message larger than max once decompressed (more than 67108864 bytes)"


# ---- frames that break the rules: the connection ends, the server does not ----


def raw(kind, stream, payload, flags=0):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


MALFORMED = {
    "data without a stream": (raw(0, 1, b"x"), None),
    "data on stream 0": (raw(0, 0, b"x"), PROTOCOL_ERROR),
    "headers on stream 0": (raw(1, 0, b"\x82", 4), PROTOCOL_ERROR),
    "headers on an even stream": (raw(1, 2, b"\x82", 4), PROTOCOL_ERROR),
    "hpack out of range": (raw(1, 1, b"\xff\xff\xff\xff\x0f", 4), None),
    "frame larger than allowed": (raw(0, 1, bytes(16385)), FRAME_SIZE_ERROR),
    "settings of 5 bytes": (raw(4, 0, bytes(5)), FRAME_SIZE_ERROR),
    "settings on a stream": (raw(4, 1, b""), PROTOCOL_ERROR),
    "window of 2 GiB": (raw(4, 0, struct.pack(">HI", 4, 1 << 31)), FLOW_CONTROL_ERROR),
    "ping of 7 bytes": (raw(6, 0, bytes(7)), FRAME_SIZE_ERROR),
    "window opened by 0": (raw(8, 0, bytes(4)), PROTOCOL_ERROR),
    "window overflow": (raw(8, 0, struct.pack(">I", 0x7FFFFFFF)) * 2, FLOW_CONTROL_ERROR),
    "reset of an idle stream": (raw(3, 9, bytes(4)), PROTOCOL_ERROR),
    "continuation of nothing": (raw(9, 1, b"\x82", 4), PROTOCOL_ERROR),
    "a push promise": (PushPromiseFrame(1, promised_stream_id=2, flags=["END_HEADERS"]).serialize(), PROTOCOL_ERROR),
    "padding longer than the frame": (raw(0, 1, b"\xff12", 8), PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(client, name):
    data, code = MALFORMED[name]
    client.send(data)
    ended = client.goaway()
    assert ended is not None and (code is None or ended[0] == code), ended


@pytest.mark.parametrize("preface", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" + bytes(60), b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n"])
def test_not_http2(server, preface):
    with Client(server, preface, settings=False) as client:
        while client.sock.recv(4096):
            pass
    still_well(server)


def test_uppercase_name(client):
    block = client.head(1).data + b"\x00\x03Own\x01x"
    client.send(HeadersFrame(1, block, flags=["END_HEADERS"]))
    assert client.until(RstStreamFrame, 1).error_code == PROTOCOL_ERROR


# ---- floods ----


@pytest.mark.parametrize("code", [8, 0], ids=["cancel", "no_error"])
def test_rapid_reset(server, code):
    with Client(server) as client:
        try:
            for stream in range(1, 6001, 2):
                client.send(client.head(stream), RstStreamFrame(stream, error_code=code))
        except OSError:
            pass
        assert client.goaway() == (CALM, b"too_many_resets")
    still_well(server)


def test_rapid_reset_at_once(server):
    with Client(server) as client:
        client.send(*[frame for stream in range(1, 4001, 2) for frame in (client.head(stream), RstStreamFrame(stream, error_code=0))])
        assert client.goaway() == (CALM, b"too_many_resets")
    still_well(server)


def test_ping_flood(server):
    with Client(server) as client:
        for _ in range(10):
            client.send(PingFrame(0, opaque_data=b"12345678"))
        assert client.goaway() == (CALM, b"too_many_pings")
    still_well(server)


CONTROLS = pytest.mark.parametrize("frame", [SettingsFrame(0).serialize(), PriorityFrame(1, depends_on=3, stream_weight=1).serialize()],
                                   ids=["settings", "priority"])


@CONTROLS
def test_control_flood(server, frame):
    with Client(server) as client:
        try:
            for _ in range(20):
                client.send(frame * 100)
        except OSError:
            pass
        assert client.goaway() == (CALM, b"too_many_control_frames")
    still_well(server)


@CONTROLS
def test_control_flood_at_once(server, frame):
    """More frames in one read than nghttp2 keeps answers for."""
    with Client(server, preface=PREFACE + SettingsFrame(0).serialize() + frame * 2000, settings=False) as client:
        assert client.goaway() == (CALM, b"too_many_control_frames")
    still_well(server)


@pytest.mark.parametrize("frame", [raw(0, 1, b""), raw(0, 1, b"\0", 8), raw(0, 1, b"\xff" + bytes(255), 8)],
                         ids=["empty", "padded", "padding"])
@pytest.mark.parametrize("at_once", [False, True], ids=["spread", "at_once"])
def test_empty_data_flood(server, frame, at_once):
    with Client(server) as client:
        client.send(client.head(1, STREAM))
        try:
            for _ in range(1 if at_once else 20):
                client.send(frame * (2000 if at_once else 100))
        except OSError:
            pass
        assert client.goaway() == (CALM, b"too_many_control_frames")
    still_well(server)


@pytest.mark.parametrize("more", [b"", b"\x82"], ids=["empty", "fields"])
def test_continuation_flood(server, more):
    with Client(server) as client:
        head = client.head(1)
        head.flags = set()
        try:
            client.send(head, ContinuationFrame(1, more).serialize() * 5000)
        except OSError:
            pass
        assert client.goaway() == (CALM, b"too_many_continuations")
    still_well(server)


def test_more_calls_than_allowed(server):
    """1,024 are open at once; those beyond are refused, the others live."""
    with Client(server) as client:
        for stream in range(1, 2 * 1040, 2):
            client.send(client.head(stream, STREAM))
        refused = 0
        while refused < 16:
            frame = client.read()
            assert frame is not None
            if isinstance(frame, RstStreamFrame):
                assert frame.error_code == 7  # REFUSED_STREAM
                refused += 1
        client.send(client.data(1, message()))
        assert client.answer(1)[0]["grpc-status"] == "0"
    still_well(server)


# ---- ends ----


def open_connections(server):
    host, port = server.grpc.split(":")
    inode = f":{int(port):04X}"
    lines = open(f"/proc/{server.process.pid}/net/tcp").read().splitlines()[1:]
    return sum(line.split()[1].endswith(inode) and line.split()[3] == "01" for line in lines)


@pytest.mark.parametrize("how", ["reset", "close", "half"])
def test_a_client_that_leaves(server, how):
    before, executed = open_connections(server), executions(server, "identity_slow")
    client = Client(server)
    for stream in range(1, 40, 2):
        client.send(client.head(stream), client.data(stream, message(4, "identity_slow")))
    assert isinstance(client.read(), SettingsFrame)
    if how == "reset":
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        client.sock.shutdown(socket.SHUT_WR)
    else:
        client.sock.close()
    wait_until(lambda: open_connections(server) <= before)
    with Client(server) as other:
        other.send(other.head(1), other.data(1, message(4, "identity_slow")))
        assert other.answer(1)[0]["grpc-status"] == "0"
    assert executions(server, "identity_slow") - executed <= 10  # 20 requests were in the queue
    client.sock.close()


def test_cut_at_every_byte(server):
    with Client(server) as client:
        whole = client.head(1).serialize() + client.data(1, message()).serialize()
    for cut in range(0, len(whole), 3):
        with Client(server) as client:
            client.send(whole[:cut])
    still_well(server)


@pytest.mark.parametrize("answers", [True, False])
def test_drain_of_an_idle_connection(start, answers):
    """It is closed after GOAWAY: the server does not wait until the client closes it."""
    own = start()
    with Client(own) as client:
        client.send(client.head(1), client.data(1, message()))
        assert client.answer(1)[0]["grpc-status"] == "0"
        own.process.terminate()
        ping = client.until(PingFrame)
        if answers:
            client.send(PingFrame(0, opaque_data=ping.opaque_data, flags=["ACK"]))
        assert client.until(GoAwayFrame).last_stream_id == 1
        assert own.process.wait(60) == 0  # while the client's side is open


def test_drain_names_the_last_stream(start):
    own = start()
    with Client(own) as client:
        client.send(client.head(1), client.data(1, message(4, "identity_slow")))
        assert isinstance(client.read(), SettingsFrame)
        own.process.terminate()
        notice = client.until(GoAwayFrame)
        assert (notice.error_code, notice.last_stream_id) == (0, 0x7FFFFFFF)
        ping = client.until(PingFrame)
        client.send(PingFrame(0, opaque_data=ping.opaque_data, flags=["ACK"]))
        named = answered = False
        while (frame := client.read()) is not None:
            named |= isinstance(frame, GoAwayFrame) and frame.last_stream_id == 1
            answered |= isinstance(frame, HeadersFrame) and "END_STREAM" in frame.flags
        assert named and answered
    assert own.process.wait(30) == 0
