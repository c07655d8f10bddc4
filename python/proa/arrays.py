# SPDX-License-Identifier: Apache-2.0
"""Arrays of callers: numpy's, torch's, or of anything that speaks DLPack; the same kind comes back.

Memory of the host is used in place (to_numpy, like), and so is memory of the engine's GPU (GpuArray).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt

from ._lib import InvalidArgumentError

Array = npt.NDArray[Any]


def first_of(value: Any) -> Any:
    """An array itself, or the first one of nested lists; None: there is none."""
    while isinstance(value, (list, tuple)):
        if not value:
            return None
        value = value[0]
    return value


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch, or a list that has one. torch is not imported for this."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(first_of(value), torch.Tensor)


def to_numpy(value: Any) -> Array:
    """As a numpy array, without a copy where the memory is the host's."""
    if isinstance(value, np.ndarray):
        return value
    if is_torch(value) and not isinstance(value, (list, tuple)):
        tensor = value.detach()
        if tensor.device.type != "cpu":
            tensor = tensor.cpu()
        if tensor.dtype == sys.modules["torch"].bfloat16:
            tensor = tensor.float()
        return np.from_dlpack(tensor)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def like(sample: Any, array: Array) -> Any:
    """The array as the kind of the sample: a tensor of torch on its device, or itself."""
    if not is_torch(sample):
        return array
    torch = sys.modules["torch"]
    tensor, device = torch.from_dlpack(array), first_of(sample).device
    return tensor.to(device) if device.type != "cpu" else tensor


# ---- memory of a GPU ----

_CUDA, _CUDA_MANAGED, _FLOAT = 2, 13, 2  # DLDeviceType, DLDataTypeCode


class _DLTensor(ctypes.Structure):
    """DLPack's tensor, as a capsule named dltensor begins with it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def gpu_of(value: Any) -> int:
    """The number of the GPU whose memory an array has; -1: it is none, or the host's."""
    value = first_of(value)
    if is_torch(value):
        return int(value.device.index) if value.device.type == "cuda" else -1
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return -1
    kind, number = value.__dlpack_device__()
    return int(number) if int(kind) in (_CUDA, _CUDA_MANAGED) else -1


def is_floating(value: Any) -> bool:
    """Whether an array on a GPU has floating numbers."""
    if is_torch(value):
        return bool(value.dtype.is_floating_point)
    return np.issubdtype(np.dtype(str(value.dtype)), np.floating)


class GpuArray:
    """An array without gaps on a GPU, of f32 or of torch's int32, as the library takes it: address, shape, and the
    stream of its owner's work. `owner` keeps the memory alive."""

    __slots__ = ("owner", "address", "shape", "stream")

    def __init__(self, value: Any) -> None:
        if is_torch(value):
            torch = sys.modules["torch"]
            if value.dtype != torch.int32:
                value = value.detach().to(torch.float32)
            value = value.contiguous()
            self.owner: Any = value
            self.address, self.shape = int(value.data_ptr()), tuple(value.shape)
            self.stream = int(torch.cuda.current_stream(value.device).cuda_stream)
            return
        # 1: its work is ordered before the default stream, which the library is given
        self.owner = value.__dlpack__(stream=1)
        raw = _DLTensor.from_address(_capsule_pointer(self.owner, b"dltensor"))
        self.shape = tuple(raw.shape[i] for i in range(raw.ndim))
        if (raw.code, raw.bits, raw.lanes) != (_FLOAT, 32, 1) or not _is_dense(raw, self.shape):
            raise InvalidArgumentError("an array on a GPU must be float32 without gaps")
        self.address, self.stream = (raw.data or 0) + raw.byte_offset, 0


def _is_dense(raw: _DLTensor, shape: Sequence[int]) -> bool:
    expected = 1
    for axis in reversed(range(raw.ndim)):
        if raw.strides and shape[axis] > 1 and raw.strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True


def joined_ids(rows: Any) -> tuple[Any, list[int]]:
    """Token ids as torch's int32, those of all rows one after the other, and how many each row has. A row is an element
    of a list, or of the first axis of a tensor."""
    torch = sys.modules["torch"]
    if isinstance(rows, (list, tuple)):
        return torch.cat([row.reshape(-1) for row in rows]).to(torch.int32), [row.numel() for row in rows]
    return rows.reshape(-1).to(torch.int32), [rows.numel() // max(1, len(rows))] * len(rows)


def empty_like(sample: Any, shape: Sequence[int]) -> Any:
    """An f32 array of the same kind on the same GPU, with undefined numbers."""
    sample = first_of(sample)
    if is_torch(sample):
        torch = sys.modules["torch"]
        return torch.empty(tuple(shape), dtype=torch.float32, device=sample.device)
    own = getattr(sample, "__array_namespace__", None)  # of the array API standard; CuPy's arrays have none
    space = own() if own else sys.modules[type(sample).__module__.partition(".")[0]]
    return space.empty(tuple(shape), dtype=space.float32)
