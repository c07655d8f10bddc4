# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs in a model's process, by the driver's own library (libcuda.so.1): no package is needed for it.

All memory that the server passes on is the server's: it is opened here by its handle (CUDA IPC) when a model first uses a
tensor in it, and stays open, since the server uses the same memory for many tensors. Work goes to the primary context of
each GPU, which is that of torch, cupy and all others that use CUDA's runtime.
"""
import ctypes
import sys
import threading

from proa_error import TritonModelException

KEPT = 64  # opened memory that no tensor uses; more is closed

_Pointer = ctypes.c_uint64  # CUdeviceptr


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def _load():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise TritonModelException(f"memory of a GPU cannot be used without the driver's library: {error}") from None
    for name, types in (("cuInit", [ctypes.c_uint]),
                        ("cuDeviceGet", [ctypes.c_void_p, ctypes.c_int]),
                        ("cuDevicePrimaryCtxRetain", [ctypes.c_void_p, ctypes.c_int]),
                        ("cuCtxPushCurrent_v2", [ctypes.c_void_p]),
                        ("cuCtxPopCurrent_v2", [ctypes.c_void_p]),
                        ("cuCtxSynchronize", []),
                        ("cuIpcOpenMemHandle_v2", [ctypes.c_void_p, _Handle, ctypes.c_uint]),
                        ("cuIpcCloseMemHandle", [_Pointer]),
                        ("cuMemcpyDtoD_v2", [_Pointer, _Pointer, ctypes.c_size_t]),
                        ("cuMemcpyDtoH_v2", [ctypes.c_void_p, _Pointer, ctypes.c_size_t]),
                        ("cuGetErrorName", [ctypes.c_int, ctypes.c_void_p])):
        getattr(driver, name).argtypes = types
    return driver


class _Driver:

    def __init__(self):
        self.library, self.contexts, self.lock = None, {}, threading.Lock()

    def check(self, status, what):
        if not status:
            return
        name = ctypes.c_char_p()
        self.library.cuGetErrorName(status, ctypes.byref(name))
        raise TritonModelException(f"{what}: {(name.value or b'error %d' % status).decode()}")

    def context(self, gpu):
        """The primary context of a GPU. It is never released: libraries use it until the process ends."""
        with self.lock:
            if self.library is None:
                library = _load()
                self.library = library
                self.check(library.cuInit(0), "the driver of the GPU does not start")
            if gpu not in self.contexts:
                device, context = ctypes.c_int(), ctypes.c_void_p()
                self.check(self.library.cuDeviceGet(ctypes.byref(device), gpu), f"there is no GPU {gpu}")
                self.check(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), f"GPU {gpu} cannot be used")
                self.contexts[gpu] = context
            return self.contexts[gpu]


_driver = _Driver()


class _On:
    """with _On(gpu) as library: what follows goes to that GPU."""

    def __init__(self, gpu):
        self.gpu = gpu

    def __enter__(self):
        context = _driver.context(self.gpu)
        _driver.check(_driver.library.cuCtxPushCurrent_v2(context), f"GPU {self.gpu} cannot be used")
        return _driver.library

    def __exit__(self, *_):
        _driver.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def synchronize(gpu):
    """Waits for all that this process has given the GPU to do, in whichever stream."""
    with _On(gpu) as library:
        _driver.check(library.cuCtxSynchronize(), f"the work of GPU {gpu} has failed")


def copy(pairs, gpu):
    """Copies (address, Memory) pairs, to the address, within a GPU, or from another one; the bytes have arrived when it returns."""
    for other in {gpu, *(source.gpu for _, source in pairs)}:
        synchronize(other)  # the model may have given them work that writes what is copied
    with _On(gpu) as library:
        for to, source in pairs:
            _driver.check(library.cuMemcpyDtoD_v2(to, source.address(), source.size), f"a copy on GPU {gpu} has failed")
    synchronize(gpu)


def to_host(memory):
    """The bytes of a Memory as a bytearray."""
    synchronize(memory.gpu)
    data = bytearray(memory.size)
    with _On(memory.gpu) as library:
        place = (ctypes.c_char * memory.size).from_buffer(data)
        _driver.check(library.cuMemcpyDtoH_v2(place, memory.address(), memory.size), f"a copy from GPU {memory.gpu} has failed")
    return data


class Memory:
    """Bytes on a GPU that belong to `owner`."""

    __slots__ = ("gpu", "size", "owner", "_address", "__weakref__")

    def __init__(self, gpu, address, size, owner):
        self.gpu, self.size, self.owner, self._address = gpu, size, owner, address

    def __len__(self):
        return self.size

    def address(self):
        return self._address


class Shared(Memory):
    """Bytes in memory of the server. It is opened when the address is first asked for, so also by other threads."""

    __slots__ = ("_opened", "_offset", "_use")

    def __init__(self, opened, offset, size, owner):
        super().__init__(opened.gpu, None, size, owner)
        self._opened, self._offset, self._use = opened, offset, opened.use

    def address(self):
        if self._address is None:
            self._address = self._opened.open() + self._offset
        return self._address


class _Opened:
    """Memory of the server, by its handle."""

    __slots__ = ("number", "gpu", "handle", "seen", "use", "base", "lock")

    def __init__(self, number, gpu, handle):
        self.number, self.gpu, self.handle, self.base, self.lock = number, gpu, handle, None, threading.Lock()
        self.seen = 0  # places that the server has sent
        self.use = object()  # each tensor in this memory has a reference to it

    def used(self):
        return sys.getrefcount(self.use) > 2  # ours, and that of the call

    def open(self):
        with self.lock:
            if self.base is None:
                base = _Pointer()
                with _On(self.gpu) as library:
                    _driver.check(library.cuIpcOpenMemHandle_v2(ctypes.byref(base), self.handle, 1),
                                  f"memory of the server on GPU {self.gpu} cannot be opened")
                self.base = base.value
            return self.base

    def close(self):
        if self.base is not None:
            synchronize(self.gpu)
            with _On(self.gpu) as library:
                library.cuIpcCloseMemHandle(self.base)


class Opened:
    """All memory of the server that this process knows, the longest unused first."""

    def __init__(self):
        self.all, self.lock = {}, threading.Lock()  # number: _Opened

    def share(self, number, gpu, handle, offset, size, owner):
        """The bytes of a tensor that the server has sent."""
        with self.lock:
            one = self.all.pop(number, None) or _Opened(number, gpu, _Handle.from_buffer_copy(handle))
            self.all[number] = one
            one.seen += 1
            return Shared(one, offset, size, owner)

    def close_unused(self):
        """Closes what is too much: [number, seen, number, seen, ...], which the server is to know."""
        if len(self.all) <= KEPT:
            return []
        closed = []
        with self.lock:
            for one in [one for one in self.all.values() if not one.used()][:len(self.all) - KEPT]:
                del self.all[one.number]
                one.close()
                closed += [one.number, one.seen]
        return closed
