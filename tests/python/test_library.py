# SPDX-License-Identifier: Apache-2.0
"""The shared library has every function that the public headers declare: a program that links to it may call them all."""
import pathlib
import re

import pytest
from proa._lib import lib

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include/proa"


@pytest.mark.parametrize("header", ["proa.h", "hub.h", "status.h"])
def test_declared_functions_are_exported(header):
    text = re.sub(r"/\*.*?\*/", "", (HEADERS / header).read_text(), flags=re.S)
    names = re.findall(r"^(?!typedef)(?:PROA_EXPORT )?\w[\w \*]*?\b(proa_\w+)\(", text, re.M)
    assert len(names) >= 2
    assert [name for name in names if not hasattr(lib, name)] == []


def test_status_text():
    from proa._lib import ffi

    assert ffi.string(lib.proa_status_text(lib.PROA_NOT_FOUND)) == b"not found"
    assert lib.proa_status_http(lib.PROA_INVALID) == 400
    assert lib.proa_status_grpc(lib.PROA_INTERNAL) == 13
