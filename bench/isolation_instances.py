# SPDX-License-Identifier: Apache-2.0
"""What several instances of a model of torch cost on one GPU: in a process of their own and in the server's. Answers, memory
of the GPU, requests a second; ENABLE_WEIGHT_SHARING is on.

    python3 bench/isolation_instances.py BACKENDS NAME=PROA...

BACKENDS has libproa_torch.so. NAME=PROA: programs, run isolated; the first one runs in the server's process too. Prints rows of
bench/results/isolation_instances.csv."""
import http.client
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import isolation_gpu as gpu
import numpy as np

INSTANCES, WIDTH, SECONDS = 4, 4096, 1.5
gpu.WIDTH = WIDTH
IO = ('max_batch_size: 1024 input { name: "%s" data_type: TYPE_FP32 dims: [ 4096 ] }\n'
      'output { name: "%s" data_type: TYPE_FP32 dims: [ 4096 ] }\n')
TORCH = ('backend: "pytorch" platform: "pytorch_libtorch"\n' + IO % ("IN__0", "OUT__0") +
         "instance_group { kind: KIND_GPU gpus: [ 0 ] count: %d }\n" % INSTANCES +
         'parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }\n')
SCALE = gpu.SCALE.replace("1024", str(WIDTH)).replace("16384", "1024")
TRACE = gpu.TRACE.replace("1024", str(WIDTH)).replace("range(4)", "range(8)")  # 0.5 GB
STEPS = (("scale", "x", "y"), ("mlp", "IN__0", "OUT__0"), ("scale", "x", "y"))


def write(folder):
    """The models; the answer to rows."""

    def model(name, config):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)

    model("scale", SCALE)
    model("mlp", TORCH)
    text, value = 'platform: "ensemble" ' + IO % ("x", "s") + "ensemble_scheduling {\n", "x"
    for number, (step, first, second) in enumerate(STEPS):
        to = "s" if number + 1 == len(STEPS) else f"v{number}"
        text += gpu.STEP % (step, first, value, second, to)
        value = to
    model("chain", text + "}")
    rows = np.random.default_rng(1).standard_normal((16, WIDTH)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    subprocess.run([sys.executable, "-W", "ignore", "-c", TRACE, folder / "mlp/1/model.pt", folder / "rows.npy", folder / "torch.npy"],
                   check=True)
    return rows, np.load(folder / "torch.npy")


def used_mb():
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return int(subprocess.check_output(["nvidia-smi", "-i", card, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]))


class Client(gpu.Side):
    """One more connection to a server."""

    def __init__(self, side):
        self.http = http.client.HTTPConnection("127.0.0.1", side.http.port, timeout=60)


def measure(side, clients, rows, wanted):
    """Requests a second, the median in ms, and whether all answers were right."""
    times, wrong = [], []
    end = time.perf_counter() + SECONDS

    def run():
        client = Client(side)
        while time.perf_counter() < end:
            begin = time.perf_counter()
            got = client.infer("chain", rows)
            times.append(1e3 * (time.perf_counter() - begin))
            if not np.allclose(got, wanted, 1e-4, 1e-5):
                wrong.append(got)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return len(times) / SECONDS, sorted(times)[len(times) // 2], not wrong


def run_side(name, proa, backends, folder, options, answers):
    rows, wanted = answers
    before = used_mb()
    side = gpu.Side(name, os.path.abspath(proa), backends, folder, options)
    loaded = used_mb() - before
    for count in (1, 16):
        for clients in (1, 8):
            rate, median, right = measure(side, clients, rows[:count], wanted[:count])
            gpu.check(f"{name}: right answers of {count} rows to {clients}", right)
            print(f"{name},{INSTANCES},{count},{clients},{rate:.0f},{median:.2f},{side.start_ms:.0f},{loaded},{used_mb() - before},"
                  f"{len(side.children())}", flush=True)
    if side.children():
        gpu.check_kill(side, "chain")
    side.http.close()
    gpu.check(f"{name}: the server ends", side.stop() == 0)


def main():
    backends = pathlib.Path(sys.argv[1]).absolute()
    programs = dict(one.split("=", 1) for one in sys.argv[2:])
    with tempfile.TemporaryDirectory(prefix="proa-instances-") as name:
        folder = pathlib.Path(name)
        answers = write(folder)
        print("side,instances,rows,clients,requests_per_s,p50_ms,start_ms,loaded_mb,used_mb,processes")
        for side, proa in programs.items():
            run_side(side, proa, backends, folder, [], answers)
        run_side("in-process", next(iter(programs.values())), backends, folder, ["--in-process", "all"], answers)


if __name__ == "__main__":
    main()
