# SPDX-License-Identifier: Apache-2.0
"""Tensors as a model sees them: Triton's datatypes beside numpy's, texts, DLPack.

A tensor that came from the server is a view of memory that the server wrote; numpy arrays are made over it without a
copy, and it lives as long as the last of them.
"""
import ctypes
import struct
import weakref

import numpy as np

import proa_gpu
from proa_error import TritonModelException


# Triton's names; their numbers are their places in this list.
NAMES = ("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32",
         "FP64", "BYTES", "BF16")
NUMBER_OF = {name: number for number, name in enumerate(NAMES)}
NUMPY_OF = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # yapf: disable
NAME_OF = {np.dtype(kind): name for name, kind in NUMPY_OF.items()}  # of a dtype in the machine's byte order
DTYPE_OF = {name: np.dtype(kind) for name, kind in NUMPY_OF.items()}


def _name_of_type(data_type):
    """Triton's name of a type given as "TYPE_FP32", "FP32" or its number."""
    if isinstance(data_type, str):
        name = data_type[5:] if data_type.startswith("TYPE_") else data_type
        name = "BYTES" if name == "STRING" else name
    else:
        name = NAMES[data_type] if 0 <= data_type < len(NAMES) else ""
    if name not in NUMPY_OF:
        raise KeyError(data_type)
    return name


def triton_to_numpy_type(data_type):
    """numpy's type of a Triton type: its number, "TYPE_FP32" or "FP32"."""
    return NUMPY_OF[_name_of_type(data_type)]


def triton_string_to_numpy(triton_type_string):
    """numpy's type of a configuration's data_type, "TYPE_FP32"."""
    return NUMPY_OF[_name_of_type(triton_type_string)]


def name_of_dtype(dtype):
    """Triton's name of a numpy dtype; None if it has none."""
    name = NAME_OF.get(dtype)
    if name is None and dtype.kind in "SU":
        return "BYTES"
    if name is None and dtype.name == "bfloat16":  # of the ml_dtypes package
        return "BF16"
    return name or NAME_OF.get(dtype.newbyteorder("="))


def numpy_to_triton_type(data_type):
    """The number of Triton's type for a numpy type or dtype."""
    name = name_of_dtype(np.dtype(data_type))
    if name is None:
        raise KeyError(data_type)
    return NUMBER_OF[name]


# ---- texts ----


def _bytes_of(item):
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, (bytearray, memoryview, np.bytes_)):
        return bytes(item)
    return str(item).encode()


def serialize_byte_tensor(input_tensor):
    """The elements of an array of texts, each behind its length in 4 bytes; None for an array of something else."""
    if input_tensor.dtype.kind not in "OSU":
        return None
    parts = []
    for item in input_tensor.reshape(-1).tolist():
        if type(item) is not bytes:
            item = _bytes_of(item)
        parts.append(len(item).to_bytes(4, "little"))
        parts.append(item)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor):
    """A one-dimensional object array of bytes out of what serialize_byte_tensor made."""
    whole = bytes(encoded_tensor)
    items, at, end = [], 0, len(whole)
    length_at = struct.Struct("<I").unpack_from
    while at < end:
        if at + 4 > end:
            raise TritonModelException("unexpected end of a BYTES tensor within a length")
        stop = at + 4 + length_at(whole, at)[0]
        if stop > end:
            raise TritonModelException("unexpected end of a BYTES tensor within an element")
        items.append(whole[at + 4:stop])
        at = stop
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array


# ---- DLPack: structures of its header, by ctypes, so that no build for a version of Python is needed ----

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_DL_OF = {
    "INT8": (0, 8), "INT16": (0, 16), "INT32": (0, 32), "INT64": (0, 64), "UINT8": (1, 8), "UINT16": (1, 16),
    "UINT32": (1, 32), "UINT64": (1, 64), "FP16": (2, 16), "FP32": (2, 32), "FP64": (2, 64), "BF16": (4, 16),
    "BOOL": (6, 8),
}  # yapf: disable
_OF_DL = {code: name for name, code in _DL_OF.items()}


class _DLDevice(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _DLDevice), ("ndim", ctypes.c_int32), ("dtype", _DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]  # yapf: disable


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(("PyCapsule_New", _api))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_capsule_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
# The destructor sees an object without references left: as an address, never as an object.
_dying_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_dying_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
# A capsule keeps the address of its name, not the name.
_FRESH, _USED = b"dltensor", b"used_dltensor"

_lent = {}  # address of a managed tensor: what must live until its consumer calls the deleter


@_Deleter
def _take_back(address):
    _lent.pop(address, None)


@_Destructor
def _capsule_dies(capsule):
    if _dying_valid(capsule, _FRESH):  # it was not consumed
        _take_back(_dying_pointer(capsule, _FRESH))


def _lend(datatype, shape, address, owner, device=(_CPU, 0)):
    """A capsule with a tensor of C order at `address` of a device, which lives as long as `owner`."""
    rank = len(shape)
    sizes = (ctypes.c_int64 * max(rank, 1))(*shape)
    steps, step = (ctypes.c_int64 * max(rank, 1))(), 1
    for axis in range(rank - 1, -1, -1):
        steps[axis] = step
        step *= shape[axis]
    code, bits = _DL_OF[datatype]
    managed = _DLManagedTensor(_DLTensor(address, _DLDevice(*device), rank, _DLDataType(code, bits, 1), sizes, steps, 0),
                               None, _take_back)
    key = ctypes.addressof(managed)
    _lent[key] = (managed, sizes, steps, owner)
    return _capsule_new(key, _FRESH, _capsule_dies)



def _is_c_order(tensor):
    if not tensor.strides:
        return True
    step = 1
    for axis in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[axis] != 1 and tensor.strides[axis] != step:
            return False
        step *= tensor.shape[axis]
    return True


def _borrow(capsule):
    """(datatype, shape, buffer) of a capsule's tensor, which is released when the buffer is no longer used."""
    if not _capsule_valid(capsule, _FRESH):
        raise TritonModelException("the DLPack capsule is used up, or of a version that is not known")
    address = _capsule_pointer(capsule, _FRESH)
    managed = _DLManagedTensor.from_address(address)
    tensor = managed.tensor
    if tensor.device.kind not in (_CPU, _CUDA, _CUDA_HOST):
        raise TritonModelException(f"DLDevice type {tensor.device.kind} is not support by Python backend.")
    datatype = _OF_DL.get((tensor.dtype.code, tensor.dtype.bits))
    if datatype is None or tensor.dtype.lanes != 1:
        raise TritonModelException("DLPack data type is not supported.")
    shape = tuple(tensor.shape[:tensor.ndim])
    count = 1
    for size in shape:
        count *= size
    if count > 0 and not _is_c_order(tensor):
        raise TritonModelException("DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order "
                                   "are supported.")
    length = count * tensor.dtype.bits // 8
    if tensor.device.kind == _CUDA:
        proa_gpu.synchronize(tensor.device.number)  # the tensor is complete from now on, whichever stream makes it
    _capsule_rename(capsule, _USED)
    release = managed.deleter if managed.deleter else lambda _: None
    if length == 0:
        release(address)
        return datatype, shape, b""
    if tensor.device.kind == _CUDA:
        memory = proa_gpu.Memory(tensor.device.number, tensor.data + tensor.byte_offset, length, None)
    else:
        memory = type("_Borrowed", (ctypes.c_char * length, ), {}).from_address(tensor.data + tensor.byte_offset)
    weakref.finalize(memory, release, address).atexit = False
    return datatype, shape, memory if tensor.device.kind == _CUDA else memoryview(memory).cast("B")


# ---- the tensor ----


class Tensor:
    """A named array. Made by a model of a numpy array or over memory that has DLPack, or by the server of memory it shares.
    _raw is the memory of one that was not made of an array: a buffer, or proa_gpu.Memory."""

    __slots__ = ("_name", "_type", "_shape", "_array", "_raw")

    def __init__(self, name, numpy_array):
        if not isinstance(numpy_array, np.ndarray):
            numpy_array = np.asarray(numpy_array)
        datatype = name_of_dtype(numpy_array.dtype)
        if datatype is None:
            raise TritonModelException(f"tensor '{name}' has numpy's type '{numpy_array.dtype}', for which there is no datatype")
        if numpy_array.dtype.byteorder == ">" and datatype != "BYTES":
            numpy_array = numpy_array.astype(numpy_array.dtype.newbyteorder("="))
        self._name, self._type, self._shape, self._array, self._raw = str(name), datatype, numpy_array.shape, numpy_array, None

    @classmethod
    def _from_wire(cls, name, datatype, shape, buffer):
        """A tensor over bytes as they travel; they stay untouched until they are asked for. shape is a tuple."""
        self = cls.__new__(cls)
        self._name, self._type, self._shape, self._array, self._raw = name, datatype, shape, None, buffer
        return self

    def name(self):
        return self._name

    def shape(self):
        return list(self._shape)

    def triton_dtype(self):
        """The number of Triton's datatype: that of numpy_to_triton_type."""
        return NUMBER_OF[self._type]

    def is_cpu(self):
        return not isinstance(self._raw, proa_gpu.Memory)

    def as_numpy(self):
        """The array; of a tensor of the server a view, without a copy. Texts are an object array of bytes."""
        if self._array is None:
            if not self.is_cpu():
                raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
            if self._type == "BYTES":
                array = deserialize_bytes_tensor(self._raw)
            elif self._type in DTYPE_OF:
                array = np.frombuffer(self._raw, DTYPE_OF[self._type])
                if len(self._shape) == 1 and self._shape[0] == array.size:
                    self._array = array
                    return array
            else:
                raise TritonModelException(f"tensor '{self._name}' has datatype {self._type}, which numpy does not have; "
                                           "use to_dlpack()")
            try:
                self._array = array.reshape(self._shape)
            except ValueError:
                raise TritonModelException(f"tensor '{self._name}' has {array.size} elements, which do not make the shape "
                                           f"{list(self._shape)}") from None
        return self._array

    def _wire(self):
        """(name, datatype, shape, bytes in C order), no copy where they are in C order. Numbers come as an array, which shows
        the channel that they lie in shared memory already, or as memory of a GPU."""
        array = self._array
        if not self.is_cpu():
            return self._name, self._type, self._shape, self._raw
        if self._type == "BYTES" and array is not None:
            return self._name, self._type, self._shape, serialize_byte_tensor(array)
        if array is None:
            return self._name, self._type, self._shape, np.frombuffer(self._raw, np.uint8)
        if not array.flags.c_contiguous:
            array = array.copy("C")
        if self._type == "BF16":  # no buffer of Python's knows it
            array = array.view(np.uint16)
        return self._name, self._type, self._shape, array

    # DLPack. https://dmlc.github.io/dlpack/latest/python_spec.html says what a consumer may pass.

    def to_dlpack(self):
        """A capsule that shares this tensor's memory."""
        if self._type == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        array = self._wire()[3]
        if not self.is_cpu():
            return _lend(self._type, self._shape, array.address(), self, (_CUDA, array.gpu))
        return _lend(self._type, self._shape, array.ctypes.data if array.size else None, (array, self))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is in the memory of {'the CPU' if self.is_cpu() else f'GPU {self._raw.gpu}'}")
        return self.to_dlpack()

    def __dlpack_device__(self):
        return (_CPU, 0) if self.is_cpu() else (_CUDA, self._raw.gpu)

    @staticmethod
    def from_dlpack(name, tensor):
        """A tensor over the memory of a capsule or of an object that has __dlpack__, on the CPU or a GPU; no copy."""
        if hasattr(tensor, "__dlpack__"):
            on_gpu = hasattr(tensor, "__dlpack_device__") and tensor.__dlpack_device__()[0] == _CUDA
            tensor = tensor.__dlpack__(stream=1) if on_gpu else tensor.__dlpack__()  # 1: the legacy default stream
        elif type(tensor).__name__ != "PyCapsule":
            raise TritonModelException("Provided tensor is not supported. Tensor must be a DLPack capsule or have "
                                       "`__dlpack__` attribute")
        datatype, shape, buffer = _borrow(tensor)
        return Tensor._from_wire(str(name), datatype, shape, buffer)
