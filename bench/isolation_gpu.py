# SPDX-License-Identifier: Apache-2.0
"""What a process of its own costs a backend whose tensors are on a GPU: an ensemble of three steps, of which the middle one
is a library, in the server's process and isolated, in turns. Equal answers, copies between host and GPU, the time of a
request, and a process that is killed.

    python3 bench/isolation_gpu.py BACKENDS NAME=PROA...

BACKENDS has device/libproa_device.so (tests/wire/libraries/backend_device.c), which copies its input within the GPU, and,
if they are to be measured, libproa_torch.so for a module of torch, probe/libtriton_probe.so, a library of Triton
(triton_probe.c beside the first one) that copies too, and onnxruntime/libonnxruntime.so.VERSION with its CUDA provider, for a
graph that the package onnx writes. NAME=PROA: further programs, run isolated only, such as an older one; the first is this
tree's. Prints a line for each check and rows of bench/results/isolation_gpu.csv."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

WIDTH = 1024
ROWS = {"4 KiB": 1, "4 MiB": 1024, "32 MiB": 8192}
SECONDS, TURNS = 0.6, 3
GPU = "instance_group { kind: KIND_GPU gpus: [ 0 ] }\n"
SCALE = ('backend: "transform" max_batch_size: 16384 input { name: "x" data_type: TYPE_FP32 dims: [ 1024 ] }\n'
         'parameters { key: "steps" value { string_value: "y = linear(x, scale=2)" } }\n') + GPU
IO = ('max_batch_size: 16384 input { name: "IN__0" data_type: TYPE_FP32 dims: [ 1024 ] }\n'
      'output { name: "OUT" data_type: TYPE_FP32 dims: [ 1024 ] }\n') + GPU
COPY = 'backend: "device" parameters { key: "do" value { string_value: "copy" } }\n' + IO
PROBE = 'backend: "probe"\n' + IO.replace('"IN__0"', '"INPUT"').replace('"OUT"', '"OUTPUT"')
GRAPH = 'backend: "onnxruntime"\n' + IO.replace('"IN__0"', '"x"').replace('"OUT"', '"y"')
TORCH = 'backend: "pytorch" platform: "pytorch_libtorch"\n' + IO.replace('"OUT"', '"OUT__0"')
STEP = 'step { model_name: "%s" model_version: -1 input_map { key: "%s" value: "%s" } output_map { key: "%s" value: "%s" } }\n'
TRACE = """import torch
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(4))
    def forward(self, x):
        for one in self.layers:
            x = torch.relu(one(x))
        return x
import numpy, sys
torch.manual_seed(0)
with torch.no_grad():
    module = torch.jit.trace(M().eval().cuda(), torch.rand(2, 1024).cuda())
    module.save(sys.argv[1])
    rows = torch.from_numpy(numpy.load(sys.argv[2])).cuda()
    numpy.save(sys.argv[3], (module(rows * 2) * 2).cpu().numpy())
"""
LAYERS = 4
CHECKED = np.random.default_rng(1).standard_normal((64, WIDTH)).astype(np.float32)


def write_graph(path):
    """The four layers of the module above as ONNX, with weights of its own."""
    from onnx import TensorProto, helper, numpy_helper, save

    random = np.random.default_rng(2)
    nodes, weights, value = [], [], "x"
    for layer in range(LAYERS):
        of = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / np.sqrt(WIDTH).astype(np.float32)
        weights += [numpy_helper.from_array(of, f"w{layer}"), numpy_helper.from_array(of[0].copy(), f"b{layer}")]
        to = "y" if layer == LAYERS - 1 else f"r{layer}"
        nodes.append(helper.make_node("Gemm", [value, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        nodes.append(helper.make_node("Relu", [f"g{layer}"], [to]))
        value = to
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy"]
    save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights), ir_version=9,
                           opset_imports=[helper.make_opsetid("", 17)]), path)


def write(folder, torch, probe, onnx):
    def model(name, config):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)

    def chain(name, *steps):
        text, value = 'platform: "ensemble" max_batch_size: 16384\ninput { name: "x" data_type: TYPE_FP32 dims: [ 1024 ] }\n', "x"
        text += 'output { name: "s" data_type: TYPE_FP32 dims: [ 1024 ] }\nensemble_scheduling {\n'
        for number, (step, first, second) in enumerate(steps):
            to = "s" if number + 1 == len(steps) else f"v{number}"
            text += STEP % (step, first, value, second, to)
            value = to
        model(name, text + "}")

    scale, copy, mlp, triton = ("scale", "x", "y"), ("copy", "IN__0", "OUT"), ("mlp", "IN__0", "OUT__0"), ("probe", "INPUT", "OUTPUT")
    model("scale", SCALE)
    model("copy", COPY)
    chain("no step", scale, scale)
    chain("copy step", scale, copy, scale)
    if torch:
        model("mlp", TORCH)
        np.save(folder / "rows.npy", CHECKED)
        subprocess.run([sys.executable, "-W", "ignore", "-c", TRACE, folder / "mlp/1/model.pt", folder / "rows.npy", folder / "torch.npy"],
                       check=True)
        chain("torch step", scale, mlp, scale)
    if probe:
        model("probe", PROBE)
        chain("triton step", scale, triton, scale)
    if onnx:
        model("graph", GRAPH)
        model("graph on the CPU", GRAPH.replace(GPU, "instance_group { kind: KIND_CPU }\n"))
        write_graph(folder / "graph/1/model.onnx")
        shutil.copy(folder / "graph/1/model.onnx", folder / "graph on the CPU/1")
        chain("onnx step", scale, ("graph", "x", "y"), scale)


class Side:

    def __init__(self, name, proa, backends, models, options):
        self.name, self.log = name, tempfile.TemporaryFile("w+")
        command = [proa, "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--backend-directory", str(backends),
                   "--model-repository", str(models), *options]
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        self.start_ms = 1e3 * (time.perf_counter() - begin)
        if not line:
            self.print_log()
            sys.exit(f"{name}: the server does not start")
        ports = json.loads(line)
        self.http = http.client.HTTPConnection("127.0.0.1", ports["http_port"], timeout=60)
        self.metrics = http.client.HTTPConnection("127.0.0.1", ports["metrics_port"], timeout=60)

    def print_log(self, only=""):
        self.log.seek(0)
        for line in self.log:
            if only in line:
                print("   ", self.name, line.rstrip())

    def infer(self, model, rows):
        tensor = {"name": "x", "datatype": "FP32", "shape": list(rows.shape), "parameters": {"binary_data_size": rows.nbytes}}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        path = f"/v2/models/{model.replace(' ', '%20')}/infer"
        self.http.request("POST", path, head + rows.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
        answer = self.http.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(data.decode())
        return np.frombuffer(data[int(answer.getheader("Inference-Header-Content-Length")):], np.float32).reshape(rows.shape)

    def copies(self):
        self.metrics.request("GET", "/metrics")
        text = self.metrics.getresponse().read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(("proa_host_copies", "proa_device_copies")))
        return [int(float(values[name])) for name in ("proa_host_copies_total", "proa_device_copies_total")]

    def children(self):
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if words[1:3] == ["backend-host", str(self.process.pid)]:
                    found[words[4]] = int(pid)
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def check(label, good, more=""):
    print(f"{'ok  ' if good else 'FAIL'} {label} {more}", flush=True)


def check_answers(sides, model, wanted, rtol=1e-5, atol=1e-6):
    answers = {}
    for side in sides:
        side.infer(model, CHECKED)
        before = side.copies()
        answers[side.name] = side.infer(model, CHECKED)
        count = [b - a for a, b in zip(before, side.copies())]
        check(f"{side.name}: {model}: copies to host and to GPU", count == [1, 1], count)
    first = answers[sides[0].name]
    check(f"{model}: equal answers", all(np.array_equal(first, one) for one in answers.values()))
    check(f"{model}: right answers", np.allclose(first, wanted, rtol, atol), np.abs(first - wanted).max())


def check_kill(side, model):
    rows = np.ones((4, WIDTH), np.float32)
    before = side.infer(model, rows)
    for name, pid in side.children().items():
        os.kill(pid, signal.SIGKILL)
    end, again = time.monotonic() + 30, None
    while again is None and time.monotonic() < end:
        with contextlib.suppress(RuntimeError):
            again = side.infer(model, rows)
    check(f"{side.name}: {model} after all its processes were killed", again is not None and np.array_equal(before, again))


def measure(side, model, rows):
    """Latencies in us."""
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        side.infer(model, rows)
        times.append(1e6 * (time.perf_counter() - begin))
    return times


def measure_all(sides, chains):
    for text, count in ROWS.items():
        rows = np.random.default_rng(count).standard_normal((count, WIDTH)).astype(np.float32)
        for model in chains:
            times = {side.name: [] for side in sides}
            for turn in range(TURNS):
                for side in sides:
                    got = measure(side, model, rows)
                    times[side.name] += got if turn else []  # the first turn warms up
            for side in sides:
                all_times = sorted(times[side.name])
                at = [all_times[int(len(all_times) * q)] for q in (.5, .99)]
                print(f"{text},{model},{side.name},{len(all_times)},{at[0]:.0f},{at[1]:.0f},{side.start_ms:.0f}", flush=True)


def main():
    backends = pathlib.Path(sys.argv[1]).absolute()
    programs = dict(one.split("=", 1) for one in sys.argv[2:])
    torch, probe = (backends / "libproa_torch.so").exists(), (backends / "probe").exists()
    onnx = next((backends / "onnxruntime").glob("libonnxruntime.so*"), None)
    with tempfile.TemporaryDirectory(prefix="proa-isolation-") as name:
        models = pathlib.Path(name)
        write(models, torch, probe, onnx)
        first = next(iter(programs.values()))
        library = ["--backend-config", f"onnxruntime,library={onnx}"] if onnx else []
        options = {"in-process": ["--in-process", "all", *library],
                   "isolated": ["--isolate", "onnxruntime", *library] if onnx else []}
        sides = [Side(side, first, backends, models, more) for side, more in options.items()]
        older = library + (["--isolate", "pytorch"] if torch else [])  # was not the default of older programs
        sides += [Side(side, proa, backends, models, older) for side, proa in list(programs.items())[1:]]
        chains = ["no step", "copy step"] + ["torch step"] * torch + ["triton step"] * probe + ["onnx step"] * bool(onnx)
        for model in [name for name in chains if name != "onnx step"]:
            check_answers(sides, model, np.load(models / "torch.npy") if model == "torch step" else CHECKED * 4)
        if onnx:  # its CUDA provider multiplies in TF32
            check_answers(sides, "onnx step", 2 * sides[0].infer("graph on the CPU", 2 * CHECKED), 1e-2, 1e-2)
        print("bytes,ensemble,backend,requests,p50_us,p99_us,start_ms")
        measure_all(sides, chains)
        for model in chains[1:]:
            check_kill(sides[1], model)
        for side in sides:
            side.print_log("host memory")
            check(f"{side.name}: the server ends", side.stop() == 0)


if __name__ == "__main__":
    main()
