# SPDX-License-Identifier: Apache-2.0
"""A server for the tests of a file or of the whole run; what the tests call is in wire.py."""
import pytest
from wire import Server


@pytest.fixture(scope="session")
def server():
    """Serves tests/repository on free ports, with client shared memory."""
    with Server("--allow-client-shm=true") as running:
        yield running


@pytest.fixture
def start():
    """start(*options, ...) gives a server of the test's own."""
    running = []

    def run(*options, **kwargs):
        running.append(Server(*options, **kwargs))
        return running[-1].__enter__()

    yield run
    for one in running:
        one.__exit__()
