# SPDX-License-Identifier: Apache-2.0
"""Arrays of callers: numpy's, torch's, or of anything that speaks DLPack; the same kind comes back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch, or a list that has one. torch is not imported for this."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, torch.Tensor)


def to_numpy(value: Any) -> np.ndarray:
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


def like(sample: Any, array: np.ndarray) -> Any:
    """The array as the kind of the sample: a tensor of torch on its device, or itself."""
    if not is_torch(sample):
        return array
    torch = sys.modules["torch"]
    tensor = torch.from_dlpack(array)
    while isinstance(sample, (list, tuple)):
        sample = sample[0]
    return tensor.to(sample.device) if sample.device.type != "cpu" else tensor
