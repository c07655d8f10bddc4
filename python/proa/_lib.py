# SPDX-License-Identifier: Apache-2.0
"""The shared library, opened by cffi in ABI mode: what crosses the border between Python and C, and errors.

cffi releases the GIL during each call into the library.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import pathlib
import subprocess
from typing import Any, Union

import cffi


def _declarations() -> str:
    """Those of the wheel; in a source tree those of its header, so that they are never older than it."""
    if importlib.util.find_spec("proa._cdef") is not None:
        return str(importlib.import_module("proa._cdef").CDEF)
    script = pathlib.Path(__file__).parents[2] / "tools/python-cdef"
    module: dict[str, str] = {}
    exec(subprocess.run([script], check=True, capture_output=True, text=True).stdout, module)
    return module["CDEF"]


ffi: Any = cffi.FFI()
ffi.cdef(_declarations())


def _find_library() -> str:
    """PROA_LIBRARY, or the library of this package, or the one that the system's loader finds."""
    named = os.environ.get("PROA_LIBRARY")
    if named:
        return named
    bundled = pathlib.Path(__file__).with_name("libproa.so")
    return str(bundled) if bundled.exists() else "libproa.so.0.1"


def find_plugin() -> None:
    """Before a GPU is opened: the package proa-cuda brings the kernels, which the library opens where PROA_CUDA_PLUGIN
    names them; nvidia-cublas brings cublasLt, which they need."""
    spec = importlib.util.find_spec("proa_cuda")
    if spec is None or spec.origin is None:
        return
    plugin = pathlib.Path(spec.origin).with_name("libproa_cuda.so")
    if not plugin.exists() or "PROA_CUDA_PLUGIN" in os.environ:
        return
    for cublas in sorted(plugin.parent.parent.glob("nvidia/*/lib/libcublasLt.so.13")):
        _held.append(ctypes.CDLL(str(cublas)))  # the plug-in's own need finds it by this name
        break
    os.environ["PROA_CUDA_PLUGIN"] = str(plugin)


_held: list[Any] = []
lib: Any = ffi.dlopen(_find_library())


class ProaError(Exception):
    """An error of the library. `status` is the name of its proa_status, such as "NOT_FOUND"."""

    status = "INTERNAL"


class InvalidArgumentError(ProaError, ValueError):
    """An argument or an option is wrong; the text names it, its value and what is allowed."""

    status = "INVALID"


class NotFoundError(ProaError, LookupError):
    status = "NOT_FOUND"


class AlreadyExistsError(ProaError):
    status = "EXISTS"


class NoMemoryError(ProaError, MemoryError):
    status = "NO_MEMORY"


class LimitError(ProaError, ValueError):
    """A value exceeds a limit, which the text names."""

    status = "LIMIT"


class UnsupportedError(ProaError, NotImplementedError):
    status = "UNSUPPORTED"


class DeadlineError(ProaError, TimeoutError):
    status = "DEADLINE"


class CancelledError(ProaError):
    status = "CANCELLED"


class UnavailableError(ProaError):
    status = "UNAVAILABLE"


class CorruptError(ProaError):
    status = "CORRUPT"


class InputOutputError(ProaError, OSError):
    status = "IO"


_ERRORS = {
    getattr(lib, "PROA_" + kind.status): kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        NoMemoryError,
        LimitError,
        UnsupportedError,
        DeadlineError,
        CancelledError,
        UnavailableError,
        CorruptError,
        InputOutputError,
    )
}


def error_of(err: Any) -> ProaError:
    """The exception for a filled proa_err."""
    kind = _ERRORS.get(err.status, ProaError)
    return kind(ffi.string(err.text).decode("utf-8", "replace"))


def call(function: Any, *arguments: Any) -> None:
    """Calls a function of the library that returns proa_status and takes a proa_err last."""
    err = ffi.new("proa_err *")
    if function(*arguments, err) != lib.PROA_OK:
        raise error_of(err)


def text_of(pointer: Any, length: int = -1) -> str:
    """A C string as str; NULL is ""."""
    if pointer == ffi.NULL:
        return ""
    raw: bytes = ffi.string(pointer) if length < 0 else ffi.buffer(pointer, length)[:]
    return raw.decode("utf-8", "replace")


def find_model(model: Union[str, "os.PathLike[str]"]) -> str:
    """The path of a model: a path that is there, or ORG/NAME[:FILE][@REVISION] of a hub, which is downloaded into the
    cache of huggingface_hub if it is not there yet."""
    path = os.fspath(model)
    if not lib.proa_hub_is_name(path.encode()):
        return path
    result = ffi.new("proa_hub_result *")
    try:
        call(lib.proa_hub_pull, ffi.NULL, path.encode(), ffi.NULL, result)
    except ProaError as error:  # a mistyped folder looks like a name
        error.args = (f"'{path}' is no local path: {error}",)
        raise
    found = text_of(result.path)
    lib.proa_hub_result_release(result)
    return found
