# SPDX-License-Identifier: Apache-2.0
"""A real tritonserver (of the wheel nvidia-pytriton) and ours, as processes with the same options."""
import glob
import http.client
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROA = os.environ.get("PROA", str(ROOT / "build/release/proa"))
START_SECONDS = 90


class CannotRun(Exception):
    """This machine has no Triton that could be compared with."""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Process:
    """What both have: ports, a log, a start that waits until the server answers, an end."""

    name = ""

    def __init__(self, options, folder):
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        self.options = [f"--http-port={self.http_port}", f"--grpc-port={self.grpc_port}", f"--metrics-port={self.metrics_port}", *options]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=folder))
        self.log = self.folder / "log"
        self.process = None

    def command(self):
        raise NotImplementedError

    def start(self, wait="/v2/health/live"):
        command, env = self.command()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + START_SECONDS
        while not self.answers(wait):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise CannotRun(f"{self.name} did not start; the end of its log:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        return self

    def answers(self, path):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Its exit status; None if it had to be killed. What it started goes with it."""
        if self.process is None:
            return None
        status = None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(15)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def python_backend(folder):
    """A backend directory with the wheel's Python backend and its stub for this Python, and the environment that they need."""
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    home = site / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise CannotRun(f"the wheel nvidia-pytriton is not installed, or has no stub for Python {version}")
    backends = folder / "backends" / "python"
    if not backends.exists():
        backends.mkdir(parents=True)
        for file in [*(home / "backends" / "python").glob("*.*"), stub]:
            shutil.copy(file, backends / file.name)  # of a link Triton says that it "escapes"
    libraries = [str(site / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR") or "/usr/lib"]
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "OPENBLAS_NUM_THREADS": "1",
           "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}  # yapf: disable
    missing = [line.strip() for line in subprocess.run(["ldd", str(stub)], env=env, capture_output=True, text=True).stdout.splitlines()
               if "not found" in line]
    if missing:
        raise CannotRun(f"the stub of Triton's Python backend misses libraries: {', '.join(missing)}")
    return backends.parent, home, env


def remove_regions(prefix):
    """Shared memory that the Python backend leaves behind when it has to be killed; how many there were."""
    left = glob.glob(f"/dev/shm/{prefix}*")
    for one in left:
        os.unlink(one)
    return len(left)


class Proa(Process):
    name = "proa"
    stub_stays = False  # that of a model which has read a decoupled model's responses: it ends for neither server, but is
    #                     killed with the process of its instance, if that is one

    def __init__(self, options, folder, library=False):
        """library: it has Triton's Python backend, for the models whose configuration names it as their runtime."""
        super().__init__(options, folder)
        self.prefix = f"proa-compare-{os.getpid()}-{self.http_port}" if library else None

    def command(self):
        if not self.prefix:
            return [PROA, "serve", *self.options], {**os.environ, "PROA_PYTHON": sys.executable, "OPENBLAS_NUM_THREADS": "1"}
        backends, _, env = python_backend(self.folder)
        return [PROA, "serve", f"--backend-directory={backends}", f"--backend-config=python,shm-region-prefix-name={self.prefix}",
                f"--exit-timeout-secs={2 if self.hangs() else 10}", *self.options], env

    def hangs(self):
        return self.stub_stays and "--in-process=all" in self.options

    def stop(self):
        status = super().stop()
        left = remove_regions(self.prefix) if self.prefix else 0
        if self.stub_stays and status != self.hangs():
            raise RuntimeError(f"Proa was to end {'at its time-out' if self.hangs() else 'well'}, its status is {status}")
        if left and not self.hangs():
            raise RuntimeError(f"Proa left {left} regions of Triton's Python backend behind, its status is {status}:\n"
                               f"{self.log.read_text(errors='replace')[-3000:]}")
        return status


class Triton(Process):
    name = "triton"

    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.prefix = f"triton-compare-{os.getpid()}-{self.http_port}"

    def command(self):
        backends, home, env = python_backend(self.folder)
        return [str(home / "bin" / "tritonserver"), f"--backend-directory={backends}", f"--cache-directory={home / 'caches'}",
                f"--backend-config=python,shm-region-prefix-name={self.prefix}", "--exit-timeout-secs=2", *self.options], env

    def stop(self):
        status = super().stop()
        remove_regions(self.prefix)
        return status


class Pair:
    """Both, over the same repositories."""

    def __init__(self, folder, repositories, options=(), triton_options=(), proa_options=(), library=False):
        common = [f"--model-repository={path}" for path in repositories] + list(options)
        self.triton = Triton([*common, *triton_options], folder)
        self.proa = Proa([*common, *proa_options], folder, library)

    def __enter__(self):
        try:
            self.triton.start()
            self.proa.start()
        except CannotRun:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.triton.stop()
        self.proa.stop()

    def both(self):
        return self.triton, self.proa
