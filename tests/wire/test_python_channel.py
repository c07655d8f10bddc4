# SPDX-License-Identifier: Apache-2.0
"""The stub's side of the channel without a server: its arena, what it gives back, responses that cannot be written."""
import gc
import json
import mmap
import os
import pathlib
import random
import socket
import struct
import sys
import threading

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src/python/stub"))
import proa_channel as stub  # noqa: E402

BYTES = 128 << 20


class Rig:
    """A channel, and the server's end of it."""

    def __init__(self):
        ours, theirs = os.memfd_create("ours"), os.memfd_create("theirs")
        for fd in (ours, theirs):
            os.ftruncate(fd, BYTES)
        near, self.socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = stub.Channel(near.detach(), ours, theirs)
        self.read, self.write = mmap.mmap(ours, BYTES), mmap.mmap(theirs, BYTES)
        self.given_back = memoryview(self.write)[:stub.DATA_BEGIN].cast("Q")
        self.ring = memoryview(self.read)[:stub.DATA_BEGIN].cast("Q")
        os.close(ours), os.close(theirs)

    def request(self, at, values, number=1):
        """A REQUEST with the tensor IN (INT32) in a block at `at`, as a message."""
        data = np.asarray(values, np.int32).tobytes()
        row = stub.TENSOR.pack(0, at + 256, len(data), 8, 1, 184, 2, len(values), *[0] * 15)
        payload = stub.PAYLOAD.pack(0, 1, 0, 0) + row + b"IN"
        self.write[at:at + len(payload)] = payload
        self.write[at + 256:at + 256 + len(data)] = data
        return stub.REQUEST, 0, number, at, 256 + len(data), 0

    def packet(self):
        return list(stub.MESSAGE.iter_unpack(self.socket.recv(1 << 18)))

    def head(self, message):
        at = message[3]
        length, tensors = struct.unpack_from("<II", self.read, at)
        begin = at + 16 + 168 * tensors
        return json.loads(self.read[begin:begin + length]) if length else {}


@pytest.fixture
def rig():
    one = Rig()
    yield one
    one.channel.socket.close()
    one.socket.close()


def test_block_goes_back_with_the_last_array_over_it(rig):
    number, _, tensors = rig.channel.take_request(rig.request(stub.DATA_BEGIN, [1, 2, 3]))
    assert number == 1 and tensors[0][:3] == ("IN", "INT32", (3, ))
    array = np.frombuffer(tensors[0][3], np.int32)
    part = array[1:]
    del tensors, array
    gc.collect()
    assert part.tolist() == [2, 3] and rig.given_back[0] == 0
    del part
    assert rig.given_back[0] == stub.DATA_BEGIN


def test_what_does_not_fit_the_ring_waits(rig):
    for i in range(stub.RING):
        rig.given_back[i] = 1  # the server has not looked yet
    rig.channel.take_request(rig.request(stub.DATA_BEGIN, [1]))
    assert list(rig.channel.peer.waiting) == [stub.DATA_BEGIN]
    rig.given_back[0] = 0
    rig.channel.peer.flush()
    assert rig.given_back[0] == stub.DATA_BEGIN and not rig.channel.peer.waiting


def test_child_of_the_process_gives_nothing_back(rig):
    tensors = rig.channel.take_request(rig.request(stub.DATA_BEGIN, [1]))[2]
    child = os.fork()
    if child == 0:
        del tensors
        gc.collect()
        try:
            rig.channel.send((stub.POST, 0, 0, 0, 0, 0))
        except RuntimeError:
            os._exit(0 if rig.channel.socket.fileno() == -1 else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rig.given_back[0] == 0


def test_arena_against_a_model(rig):
    """Random allocations and returns: blocks never overlap, and in the end all is one gap again."""
    arena, random_, live, next_ = rig.channel.arena, random.Random(1), {}, 0
    for _ in range(3000):
        if live and random_.random() < 0.5:
            at = random_.choice(list(live))
            del live[at]
            rig.ring[next_] = at
            next_ = (next_ + 1) % stub.RING
        else:
            size = random_.choice((1, 64, 100, 5000, 1 << 20))
            at = arena.alloc(size)
            assert at % 64 == 0 and all(at + size <= b or b + s <= at for b, s in live.items())
            live[at] = size
    for at in live:
        rig.ring[next_] = at
        next_ = (next_ + 1) % stub.RING
    rig.ring[next_] = 12345  # what is no block changes nothing
    arena.collect()
    assert arena.free == [[stub.DATA_BEGIN, BYTES]] and not arena.live


def test_memory_goes_back_to_the_system(rig):
    arena = rig.channel.arena
    at = arena.alloc(100 << 20)
    arena.map[at:at + (100 << 20)] = b"\1" * (100 << 20)
    rig.ring[0] = at
    arena.collect()
    assert arena.top <= stub.DATA_BEGIN + stub.KEEP + mmap.PAGESIZE
    assert arena.map[at + (90 << 20)] == 0


def test_response_that_cannot_be_written_is_an_error_of_its_own(rig):
    small, large = np.arange(3, dtype=np.int32), np.broadcast_to(np.int32(1), (BYTES, ))
    for number in (1, 2, 3):
        rig.channel.take_request(rig.request(stub.DATA_BEGIN + 4096 * number, [1], number))
    rig.channel.finish([(1, {}, [("OUT", "INT32", large.shape, large)], stub.FINAL), (2, {}, [("OUT", "INT32", (3, ), small)], stub.FINAL),
                        (3, {}, [("OUT", "INT32", ("three", ), small)], stub.FINAL)])
    packet = rig.packet()
    assert [one[0] for one in packet] == [stub.RESPONSE] * 3 + [stub.DONE]
    assert "MemoryError: no room for" in rig.head(packet[0])["error"]
    assert rig.head(packet[1]) == {}
    assert "cannot send the response" in rig.head(packet[2])["error"]
    assert len(rig.channel.arena.live) == 3  # of what failed nothing is left


def test_input_is_passed_on_by_its_place(rig):
    at = stub.DATA_BEGIN + 4096
    tensors = rig.channel.take_request(rig.request(at, range(100)))[2]
    array = np.frombuffer(tensors[0][3], np.int32)
    rig.channel.respond(1, {}, [("A", "INT32", (50, ), array[50:]), ("B", "INT32", (50, ), array[::2])], True)
    message = rig.packet()[0]
    rows = [stub.TENSOR.unpack_from(rig.read, message[3] + 16 + 168 * i) for i in range(2)]
    assert rows[0][:3] == (stub.PEER, at + 256 + 200, 200)
    assert rows[1][0] == stub.OWN and np.frombuffer(rig.read, np.int32, 50, rows[1][1]).tolist() == list(range(0, 100, 2))


def test_threads_wait_side_by_side(rig):
    """Each of many threads calls and gets its own answer, whoever read it from the socket."""
    results = []

    def ask(k):
        results.append(rig.channel.call("echo", {"k": k})[0]["k"] == k)

    threads = [threading.Thread(target=ask, args=(k, )) for k in range(16)]
    for one in threads:
        one.start()
    place = stub.DATA_BEGIN
    for _ in threads:
        message = rig.packet()[0]
        text = json.dumps(rig.head(message)).encode()
        rig.write[place:place + 16 + len(text)] = stub.PAYLOAD.pack(len(text), 0, 0, 0) + text
        rig.socket.send(stub.MESSAGE.pack(stub.ANSWER, 0, message[2], place, 16 + len(text), 0))
        place += 4096
    for one in threads:
        one.join(20)
    assert results == [True] * 16


def test_reader_survives_what_somebody_else_does_with_a_reply(rig):
    def closed(head, tensors, final):
        raise RuntimeError("Event loop is closed")

    heard = []
    numbers = [rig.channel.infer({"model": "m"}, (), one) for one in (closed, lambda *reply: heard.append(reply))]
    for number in numbers:
        rig.socket.send(stub.MESSAGE.pack(stub.REPLY, stub.FINAL, number, 0, 0, 0))
    assert rig.channel.wait(lambda: heard, 20)
    assert heard == [(None, (), True)] and not rig.channel.infers


def test_server_that_goes_ends_a_wait(rig):
    rig.socket.close()
    with pytest.raises((EOFError, OSError)):
        rig.channel.wait(lambda: False)
