# SPDX-License-Identifier: Apache-2.0
"""Two hosts for tests of ranks: network namespaces with a cable between them, and IPC namespaces. Needs root."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import time

import pytest

HOSTS = ("proa-a", "proa-b")
NETWORK = "10.99.7"  # the hosts are .1 and .2


def ip(*args, check=True):
    return subprocess.run(["ip", *args], capture_output=True, text=True, check=check)


def on_host(i):
    """The command before one that runs on host i."""
    return ["ip", "netns", "exec", HOSTS[i], "unshare", "--ipc"]


def processes_of(i):
    """(pid, name) of the processes that run on host i."""
    found = []
    for pid in ip("netns", "pids", HOSTS[i]).stdout.split():
        with contextlib.suppress(OSError):
            found.append((int(pid), pathlib.Path(f"/proc/{pid}/comm").read_text().strip()))
    return found


def programs_of(i):
    return [name for _, name in processes_of(i)]


def set_cable(state):
    ip("-n", HOSTS[0], "link", "set", "v0", state)


@contextlib.contextmanager
def two_hosts():
    """Ends the processes of both hosts behind it. Skips the test where namespaces are not permitted."""
    if not (shutil.which("ip") and shutil.which("unshare")) or os.geteuid() != 0 or ip("netns", "add", HOSTS[0], check=False).returncode != 0:
        pytest.skip("network namespaces are not permitted here")
    ip("netns", "add", HOSTS[1])
    ip("link", "add", "v0", "netns", HOSTS[0], "type", "veth", "peer", "name", "v1", "netns", HOSTS[1])
    for i, host in enumerate(HOSTS):
        ip("-n", host, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", f"v{i}")
        ip("-n", host, "link", "set", f"v{i}", "up")
        ip("-n", host, "link", "set", "lo", "up")
    try:
        yield
    finally:
        for host in HOSTS:
            for pid in ip("netns", "pids", host).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            ip("netns", "delete", host)


def wait_for(happens, seconds, what):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def is_ready(before, port):
    """Whether the server at 127.0.0.1 is ready. `before`: the command before that of the request, as on_host(0)."""
    request = f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET /v2/health/ready HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3"
    done = subprocess.run([*before, "timeout", "3", "bash", "-c", request], capture_output=True, text=True)
    return " 200 " in done.stdout
