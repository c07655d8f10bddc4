# SPDX-License-Identifier: Apache-2.0
"""The channel between a model's process and the server: packets on a socket, payloads in shared memory.

The same in C, with the layout: src/process/channel.h. A thread that waits for something reads the socket itself, one
thread at a time (Channel.wait); there is no thread for reading.
"""
import bisect
import collections
import json
import mmap
import os
import select
import socket
import struct
import threading
import time
import traceback

import numpy as np

import proa_gpu
import proa_tensor

OPEN, EXECUTE, REQUEST, ANSWER, REPLY, READY, CLOSE = range(1, 8)
STARTED, OPENED, RESPONSE, DONE, CALL, POST, INFER, INFER_CANCEL, READINESS = range(64, 73)
FINAL, RESCHEDULE = 1, 2

RING = 8192
DATA_BEGIN = RING * 8
ALIGN = 64
PAGE = mmap.PAGESIZE
KEEP = 32 << 20  # free memory that stays ours
PREFETCH_BYTES = 64 << 20  # memory on GPUs that waits for the outputs of the next execution
PACKET_BYTES = 40 * 4104

MESSAGE = struct.Struct("<IIQQQQ")
PAYLOAD = struct.Struct("<IIII")
TENSOR = struct.Struct("<QQQIIII16q")
DEVICE = struct.Struct("<QQII64s")
OWN, PEER, ON_DEVICE, LEASED, INPUT = 0, 1, 3, 4, 5

TYPES = ("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
         "BYTES", "BF16")
TYPE_OF = {name: number for number, name in enumerate(TYPES)}
ZEROS = tuple((0, ) * count for count in range(17))


class Block(np.ndarray):
    """A block of the server's as bytes. When the last array over it is gone, the server has it back."""

    _peer = None  # views of a block are no blocks
    _gpus = ()  # those that have tensors of it

    def __del__(self):
        if self._peer is not None:
            self._peer.give_back(self._at, self._gpus)


class Peer:
    """The server's arena: read here, and its inputs may be changed here by the model."""

    def __init__(self, fd):
        self.bytes = os.fstat(fd).st_size
        self.map = mmap.mmap(fd, self.bytes)
        self.words = memoryview(self.map)[:DATA_BEGIN].cast("Q")
        self.flags = memoryview(self.map).cast("I")
        self.base = np.frombuffer(self.map, np.uint8, 1).__array_interface__["data"][0]
        self.next, self.waiting, self.lock, self.pid = 0, collections.deque(), threading.Lock(), os.getpid()
        self.unused = collections.deque()  # blocks with tensors on GPUs, which may still have work that reads them
        self.idle = False  # the process waits for something to do

    def block(self, at, size):
        block = np.frombuffer(self.map, np.uint8, size, at).view(Block)
        block._peer, block._at = self, at
        return block

    def give_back(self, at, gpus=()):
        """May be called by the garbage collector, anywhere: so it never waits, unless there is nothing else to do."""
        if gpus:
            self.unused.append((at, gpus))
            if self.idle:
                self.settle()
            return
        self.waiting.append(at)
        self.flush()

    def settle(self):
        """Gives back the blocks with tensors on GPUs, after the work that reads them."""
        if not self.unused or self.pid != os.getpid():
            return
        blocks, gpus = [], set()
        while self.unused:
            at, its = self.unused.popleft()
            blocks.append(at)
            gpus.update(its)
        for gpu in gpus:
            try:
                proa_gpu.synchronize(gpu)
            except proa_tensor.TritonModelException:
                pass  # the GPU of this process does no more work
        self.waiting.extend(blocks)
        self.flush()

    def flush(self):
        if not self.waiting or not self.lock.acquire(False):
            return
        try:
            words, waiting = self.words, self.waiting
            while waiting and not words[self.next] and self.pid == os.getpid():
                words[self.next] = waiting.popleft()
                self.next = (self.next + 1) % RING
        finally:
            self.lock.release()


class Placed:
    """Where the bytes of a tensor are on a GPU, as the server knows it."""

    __slots__ = ("place", "at", "size", "channel")

    def __init__(self, place, at, size, channel=None):
        self.place, self.at, self.size, self.channel = place, at, size, channel

    def __len__(self):
        return self.size

    def __del__(self):
        if self.channel is None:
            return
        try:  # it was leased for a response that was not sent
            self.channel.post("device_unused", {"memory": [self.at]})
        except Exception:
            pass  # the server has gone, or the interpreter is ending


class Leases:
    """Memory leased from the server for outputs on GPUs. What the last execution used is requested again after its end, so
    that the next one does not wait for the server."""

    def __init__(self, channel):
        self.channel, self.lock = channel, threading.Lock()
        self.ready = []  # (gpu, size, number, memory)
        self.asked = []  # (number of the call, gpu, sizes)
        self.used = []  # (gpu, size) since the last prefetch

    def _collect(self):
        """Takes the answers that have come."""
        answers = self.channel.answers
        for one in [one for one in self.asked if one[0] in answers]:
            self.asked.remove(one)
            head, tensors = answers.pop(one[0])
            if "error" not in head:
                self.ready += [(one[1], size, number, tensor[3]) for size, number, tensor in zip(one[2], head["memory"], tensors)]

    def take(self, gpu, sizes):
        """(number, memory) for each size; TritonModelException if the server has none."""
        taken = []
        with self.lock:
            self._collect()
            self.used += [(gpu, size) for size in sizes]
            for size in sizes:
                place = next((i for i, one in enumerate(self.ready) if one[:2] == (gpu, size)), None)
                taken.append(None if place is None else self.ready.pop(place)[2:])
        missing = [size for size, one in zip(sizes, taken) if one is None]
        if missing:
            head, tensors = self.channel.call("device_memory", {"gpu": gpu, "sizes": missing})
            new = iter(zip(head["memory"], (tensor[3] for tensor in tensors)))
            taken = [one or next(new) for one in taken]
        return taken

    def prefetch(self):
        with self.lock:
            if not self.used and not self.ready:
                return
            self._collect()
            wanted, self.used, unused, left = self.used, [], [], PREFETCH_BYTES
            for one in self.ready:
                if one[:2] in wanted:
                    wanted.remove(one[:2])
                    left -= one[1]
                else:
                    unused.append(one)
            self.ready = [one for one in self.ready if one not in unused]
            wanted = [] if self.asked else [one for one in wanted if one[1] <= left // len(wanted)]
            for gpu in {gpu for gpu, _ in wanted}:
                sizes = [size for its, size in wanted if its == gpu]
                number = self.channel.ask("device_memory", {"gpu": gpu, "sizes": sizes})
                self.asked.append((number, gpu, sizes))
        if unused:
            self.channel.post("device_unused", {"memory": [one[2] for one in unused]})


class Arena:
    """Ours: blocks by first fit. Called under the channel's lock."""

    def __init__(self, fd):
        self.bytes = os.fstat(fd).st_size
        self.map = mmap.mmap(fd, self.bytes)
        self.view = memoryview(self.map)
        self.words = self.view[:DATA_BEGIN].cast("Q")
        self.next, self.live, self.free, self.top = 0, {}, [[DATA_BEGIN, self.bytes]], DATA_BEGIN

    def alloc(self, size):
        self.collect()
        size = (size + ALIGN - 1) & -ALIGN
        for i, gap in enumerate(self.free):
            at = gap[0]
            if gap[1] - at >= size:
                gap[0] = at + size
                if gap[0] == gap[1]:
                    del self.free[i]
                self.live[at] = size
                self.top = max(self.top, at + size)
                return at
        raise MemoryError(f"no room for {size} bytes in the memory that is shared with the server")

    def unsent(self, at):
        """Nobody will give this block back."""
        self._release(at, at + self.live.pop(at))

    def collect(self):
        words = self.words
        while at := words[self.next]:
            words[self.next] = 0
            self.next = (self.next + 1) % RING
            size = self.live.pop(at, 0)
            if size:
                self._release(at, at + size)

    def _release(self, begin, end):
        free = self.free
        i = bisect.bisect(free, [begin, end])
        if i < len(free) and free[i][0] == end:
            end = free.pop(i)[1]
        if i and free[i - 1][1] == begin:
            begin = free[i - 1][0]
            i -= 1
            free[i][1] = end
        else:
            free.insert(i, [begin, end])
        keep = (begin + KEEP + PAGE - 1) & -PAGE
        if end >= self.top > keep + PAGE:
            top = self.top & -PAGE
            self.map.madvise(mmap.MADV_REMOVE, keep, top - keep)
            self.top = keep


class Channel:

    def __init__(self, socket_fd, arena_fd, peer_fd):
        self.peer, self.arena, self.opened = Peer(peer_fd), Arena(arena_fd), proa_gpu.Opened()
        self.socket, self.leases = socket.socket(fileno=socket_fd), Leases(self)
        self.tasks = collections.deque()  # packets for the loop
        self.requests = {}  # number: (at, bytes, inputs) of requests that have not ended
        self.answers, self.infers, self.names, self.number = {}, {}, {}, 0
        self.moved, self.reading = threading.Condition(), False
        self.lock, self.holder, self.later = threading.Lock(), 0, collections.deque()
        self.buffer = bytearray(PACKET_BYTES)
        self.pid = os.getpid()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        """A child of the model's has no part in this: the server must see when the model's process ends."""
        self.socket.close()

    def fileno(self):
        return self.socket.fileno()

    # ---- in ----

    def wait(self, done, timeout=None):
        """Looks at the socket until done(); False if timeout seconds passed first; EOFError when the server has gone."""
        end = None if timeout is None else time.monotonic() + timeout
        with self.moved:
            while not done():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if self.reading:
                    self.moved.wait(left)
                else:
                    self._read(left)
        return True

    def pump(self):
        """Handles what has come; never blocks."""
        with self.moved:
            while not self.reading and self._read(0):
                pass

    def _read(self, timeout):
        """One packet, read without the lock that this is called with. False: there was none."""
        self.reading = True
        self.moved.release()
        count = None
        try:
            count = self._receive(timeout)
        finally:
            self.moved.acquire()
            self.reading = False
            self.moved.notify_all()
        if count:
            self._dispatch(memoryview(self.buffer)[:count])
            self.moved.notify_all()
        return bool(count)

    def _receive(self, timeout):
        if timeout is not None:
            if not select.select([self.socket], [], [], timeout)[0]:
                return None
        count = self.socket.recv_into(self.buffer)
        if not count:
            raise EOFError("the server has gone")
        return count

    def _dispatch(self, packet):
        messages = list(MESSAGE.iter_unpack(packet))
        kind, flags, number, at, size, _ = messages[0]
        if kind == ANSWER:
            self.answers[number] = self.read(at, size)[:2]
        elif kind == REPLY:
            on_reply = self.infers.pop(number, None) if flags & FINAL else self.infers.get(number)
            head, tensors = self.read(at, size)[:2] if size else (None, ())
            if on_reply:
                self._hand_over(on_reply, head, tensors, bool(flags & FINAL))
        else:
            self.tasks.append(messages)

    @staticmethod
    def _hand_over(on_reply, *reply):
        try:
            on_reply(*reply)
        except Exception:  # of another thread's call (its event loop may have closed): no concern of who reads here
            traceback.print_exc()

    def read(self, at, size):
        """(head, tensors) of a payload; the block goes back when the last of its tensors is let go."""
        block = self.peer.block(at, size)
        data = memoryview(block)
        head_bytes, count, _, _ = PAYLOAD.unpack_from(data)
        tensors, place, names = [], 16, self.names
        for _ in range(count):
            fields = TENSOR.unpack_from(data, place)
            place += 168
            begin, length, rank = fields[1] - at, fields[2], fields[4]
            name = bytes(data[fields[5]:fields[5] + fields[6]])
            text = names.get(name)
            if text is None:
                text = name.decode("utf-8", "replace")
                if len(names) < 4096:
                    names[name] = text
            content = self._shared(block, data, begin, length) if fields[0] == ON_DEVICE else data[begin:begin + length]
            tensors.append((text, TYPES[fields[3]], fields[7:7 + rank], content))
        head = json.loads(bytes(data[place:place + head_bytes])) if head_bytes else {}
        return head, tensors

    def _shared(self, block, data, begin, length):
        """The bytes of a tensor on a GPU."""
        number, offset, gpu, _, handle = DEVICE.unpack_from(data, begin)
        block._gpus = {gpu, *block._gpus}
        return self.opened.share(number, gpu, handle, offset, length, block)

    def take_request(self, message):
        """(number, head, tensors) of a REQUEST, which is under way from now on."""
        _, _, number, at, size, _ = message
        head, tensors = self.read(at, size)
        on_gpu = any(isinstance(tensor[3], proa_gpu.Memory) for tensor in tensors)
        self.requests[number] = (at, size, [tensor[3] for tensor in tensors] if on_gpu else ())
        return number, head, tensors

    def cancelled(self, number):
        place = self.requests.get(number)
        return place is not None and self.peer.flags[(place[0] + 8) >> 2] != 0

    # ---- out ----

    def _locked(self, work, *args):
        """Runs work under the lock. The garbage collector may call in from inside work: that comes after it."""
        me = threading.get_ident()
        if self.holder == me:
            self.later.append((work, args))
            return None
        with self.lock:
            self.holder = me
            try:
                result = work(*args)
                while self.later:
                    more, its = self.later.popleft()
                    more(*its)
            finally:
                self.holder = 0
        return result

    def send(self, *messages):
        if self.pid != os.getpid():
            raise RuntimeError("a child of the model's process cannot talk to the server")
        self.peer.settle()
        self.peer.flush()
        self.socket.sendall(b"".join([MESSAGE.pack(*one) for one in messages]))

    def _write(self, head, tensors, inputs=None):
        """A payload in a block of its own: (at, bytes). inputs: place of the request that this answers."""
        text = json.dumps(head).encode() if head else b""
        entries, place = [], 16 + 168 * len(tensors) + len(text)
        for name, datatype, shape, data in tensors:
            raw = name.encode()
            if not isinstance(data, (np.ndarray, list, Placed)):
                data = np.frombuffer(data, np.uint8) if len(data) else ()
            entries.append((raw, place, TYPE_OF[datatype], shape, data, *self._find(data, inputs)))
            place += len(raw)
        size = place
        for i, entry in enumerate(entries):
            if entry[5] == OWN and entry[6]:
                size = (size + ALIGN - 1) & -ALIGN
                entries[i] = (*entry[:7], size)
                size += entry[6]
        at = self.arena.alloc(size)
        try:
            self._fill(at, text, entries)
        except BaseException:
            self.arena.unsent(at)
            raise
        return at, size

    def _fill(self, at, text, entries):
        view = self.arena.view
        PAYLOAD.pack_into(view, at, len(text), len(entries), 0, 0)
        row = at + 16
        for raw, name_at, number, shape, data, where, length, begin in entries:
            TENSOR.pack_into(view, row, where, at + begin if where == OWN else begin, length, number, len(shape), name_at,
                             len(raw), *shape, *ZEROS[16 - len(shape)])
            view[at + name_at:at + name_at + len(raw)] = raw
            row += 168
            if where == OWN and length:
                self._copy(at + begin, data)
            elif where == LEASED:
                data.channel = None  # it is the server's again
        view[row:row + len(text)] = text

    def _find(self, data, inputs):
        """(place, bytes, begin): where the data of a tensor are, if they are part of the request's own inputs."""
        if isinstance(data, np.ndarray):
            if inputs is not None and data.nbytes and data.flags.c_contiguous:
                begin = data.__array_interface__["data"][0] - self.peer.base
                if inputs[0] <= begin and begin + data.nbytes <= inputs[0] + inputs[1]:
                    return PEER, data.nbytes, begin
            return OWN, data.nbytes, 0
        if isinstance(data, Placed):
            return data.place, data.size, data.at
        return OWN, sum(map(len, data)), 0

    def _copy(self, at, data):
        if isinstance(data, np.ndarray):
            np.frombuffer(self.arena.map, data.dtype, data.size, at).reshape(data.shape)[...] = data
            return
        view = self.arena.view
        for chunk in data:
            view[at:at + len(chunk)] = chunk
            at += len(chunk)

    def _say(self, kind, number, head, tensors, flags, inputs):
        at, size = self._write(head, tensors, inputs) if head is not None or tensors else (0, 0)
        self.send((kind, flags, number, at, size, 0))

    def say(self, kind, number=0, head=None, tensors=(), flags=0):
        self._locked(self._say, kind, number, head, tensors, flags, None)

    # ---- tensors on GPUs, on their way out ----

    def place(self, tensors, number=None):
        """The tensors of one message, with those on GPUs in memory of the server: inputs of the answered request are there,
        and others are copied."""
        if not any(isinstance(tensor[3], proa_gpu.Memory) for tensor in tensors):
            return tensors
        tensors = [(*tensor[:3], self._as_input(tensor[3], number)) for tensor in tensors]
        for gpu in {tensor[3].gpu for tensor in tensors if isinstance(tensor[3], proa_gpu.Memory)}:
            own = [i for i, tensor in enumerate(tensors) if isinstance(tensor[3], proa_gpu.Memory) and tensor[3].gpu == gpu]
            for i, data in zip(own, self._copies([tensors[i][3] for i in own], gpu)):
                tensors[i] = (*tensors[i][:3], data)
        return tensors

    def _as_input(self, data, number):
        if not isinstance(data, proa_gpu.Memory):
            return data
        for index, own in enumerate(self.requests.get(number, ((), (), ()))[2]):
            if isinstance(own, proa_gpu.Memory) and own.size == data.size and own.gpu == data.gpu:
                if own is data or own.address() == data.address():
                    proa_gpu.synchronize(data.gpu)  # the model may have given it work that writes there
                    return Placed(INPUT, index, data.size)
        return data

    def _copies(self, memories, gpu):
        """Copies in memory leased from the server; in host memory if it has none there."""
        try:
            leases = self.leases.take(gpu, [one.size for one in memories])
        except proa_tensor.TritonModelException:
            return [proa_gpu.to_host(one) for one in memories]
        placed = [Placed(LEASED, number, one.size, self) for (number, _), one in zip(leases, memories)]
        proa_gpu.copy([(to.address(), one) for (_, to), one in zip(leases, memories)], gpu)
        return placed

    def rest(self):
        """After an execution: prepares the next one's outputs on GPUs, and closes memory that was not used for long."""
        self.leases.prefetch()
        closed = self.opened.close_unused()
        if closed:
            self.post("device_closed", {"memory": closed})

    def _new_number(self):
        self.number += 1
        return self.number

    def ask(self, kind, head, tensors=()):
        """A call whose answer comes later, under the number that is returned."""
        number = self._locked(self._new_number)
        self.say(CALL, number, {"kind": kind, **head}, tensors)
        return number

    def call(self, kind, head, tensors=()):
        """Asks the server and waits for its answer, (head, tensors)."""
        number = self.ask(kind, head, tensors)
        self.wait(lambda: number in self.answers)
        answer, its_tensors = self.answers.pop(number)
        if "error" in answer:
            raise proa_tensor.TritonModelException(answer["error"])
        return answer, its_tensors

    def post(self, kind, head):
        self.say(POST, 0, {"kind": kind, **head})

    def infer(self, head, tensors, on_reply):
        """Calls another model; on_reply(head, tensors, final) is called by whichever thread looks at the socket."""
        number = self._locked(self._new_number)
        tensors = self.place(tensors)
        self.infers[number] = on_reply
        try:
            self.say(INFER, number, head, tensors)
        except BaseException:
            del self.infers[number]
            raise
        return number

    def infer_cancel(self, number):
        self.say(INFER_CANCEL, number)

    def _respond(self, number, head, tensors, final):
        inputs = self.requests.get(number)
        if inputs is None:
            return  # it has ended already
        self._say(RESPONSE, number, head, tensors, FINAL if final else 0, inputs)
        if final:
            self.requests.pop(number, None)

    def respond(self, number, head, tensors, final):
        """A response to a request, or only that there will be no more (head None)."""
        self._locked(self._respond, number, head, self.place(tensors, number), final)

    def _write_or_fail(self, head, tensors, inputs):
        """What cannot be written is the error of this one response."""
        try:
            return self._write(head, tensors, inputs)
        except Exception as error:
            return self._write({"error": f"cannot send the response: {type(error).__name__}: {error}", "code": 13}, ())

    def _placed(self, number, head, tensors, flags):
        try:
            return number, head, self.place(tensors, number), flags
        except Exception as error:
            return number, {"error": f"cannot send the response: {type(error).__name__}: {error}", "code": 13}, (), flags

    def _finish(self, replies, error):
        messages = []
        for number, head, tensors, flags in replies:
            inputs = self.requests.pop(number, None)
            if inputs is None:
                continue  # a sender has answered it
            at, size = self._write_or_fail(head, tensors, inputs) if head is not None or tensors else (0, 0)
            messages.append((RESPONSE, flags, number, at, size, 0))
        at, size = self._write(error, ()) if error else (0, 0)
        messages.append((DONE, 0, 0, at, size, 0))
        self.send(*messages)

    def finish(self, replies, error=None):
        """The end of an execution, with all its responses in one packet."""
        self._locked(self._finish, [self._placed(*reply) for reply in replies], error)
