# SPDX-License-Identifier: Apache-2.0
"""How tools/test spreads the Python tests over processes (pytest-xdist): the tests of a file run in one, after each other."""
import pathlib

import pytest

# They make regions of shared memory, or see that nobody has left any: all of these in one process.
SHARED_MEMORY = ("test_copies", "test_gpu", "test_protocols", "test_python", "test_python_contract", "test_shm")
# They make the wheel in build/wheel.
WHEEL = ("test_tutorials", "test_wheel")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling  # only there when the plug-in is

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid):
            path = super()._split_scope(nodeid)
            stem = pathlib.PurePath(path).stem
            return "shared memory" if stem in SHARED_MEMORY else "wheel" if stem in WHEEL else path

    return Files(config, log)
