# SPDX-License-Identifier: Apache-2.0
"""Python models in a pipeline on a GPU: equal results, copies between host and GPU, memory after a crash, and the time of
a request, with tensors on the GPU (torch, cupy) and through host memory (numpy).

    python3 bench/python_models_gpu.py PROA ENCODER_FOLDER

The interpreter has torch, cupy and numpy; PROA_CUDA_PLUGIN names the plug-in. Prints a line for each check and a table."""
import base64
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy as np

HEAD = "import os\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
BODY = '''
class TritonPythonModel:
    def initialize(self, args):
        %s
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.run(pb_utils.get_input_tensor_by_name(one, "IN"))]) for one in requests]
    def run(self, given):
%s
'''
TORCH = """
        import torch
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            x = torch.from_dlpack(given)
            assert x.is_cuda and not given.is_cpu()
            y = x * 3 + 1
        return pb_utils.Tensor.from_dlpack("OUT", y)"""
CUPY = """
        import cupy
        with cupy.cuda.Stream(non_blocking=True):
            y = cupy.from_dlpack(given) * np.float32(3) + np.float32(1)
        return pb_utils.Tensor.from_dlpack("OUT", y)"""
IN_PLACE = """
        import torch
        torch.from_dlpack(given).mul_(3).add_(1)
        return pb_utils.Tensor.from_dlpack("OUT", given)"""
NUMPY = """
        return pb_utils.Tensor("OUT", given.as_numpy() * np.float32(3) + np.float32(1))"""
CALL = """
        import torch
        reply = pb_utils.InferenceRequest(model_name="scale", requested_output_names=["y"],
                                          inputs=[pb_utils.Tensor.from_dlpack("x", torch.from_dlpack(given) + 0)]).exec()
        y = torch.from_dlpack(pb_utils.get_output_tensor_by_name(reply, "y"))
        return pb_utils.Tensor.from_dlpack("OUT", y / 2 * 3 + 1)"""
DLPACK = """
        import torch, cupy
        for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
                     torch.uint8, torch.bool):
            there = torch.ones([100], dtype=kind, device="cuda")
            for source in (there, torch.utils.dlpack.to_dlpack(there)):
                tensor = pb_utils.Tensor.from_dlpack("t", source)
                assert not tensor.is_cpu() and tensor.__dlpack_device__() == (2, 0)
                for back in (torch.from_dlpack(tensor), torch.from_dlpack(tensor.to_dlpack())):
                    assert back.dtype == kind and torch.equal(back, there)
            try:
                tensor.as_numpy()
                assert False
            except Exception as error:
                assert str(error) == "Tensor is stored in GPU and cannot be converted to NumPy.", error
        big = torch.randn(3000, 3000, device="cuda")
        late = torch.zeros(4, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                big = big @ big
            late += 2
        assert torch.from_dlpack(pb_utils.Tensor.from_dlpack("t", torch.utils.dlpack.to_dlpack(late))).tolist() == [2] * 4
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            other = cupy.random.rand(3000, 3000)
            for _ in range(50):
                other = other @ other
            late = cupy.zeros(4) + 2
        tensor = pb_utils.Tensor.from_dlpack("t", late)
        assert stream.done and cupy.from_dlpack(tensor).tolist() == [2] * 4
        return pb_utils.Tensor.from_dlpack("OUT", given)"""
IO = """input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } max_batch_size: 1024
instance_group { kind: KIND_GPU gpus: [ 0 ] }
"""
ON_GPU = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'
SCALE = """backend: "transform" max_batch_size: 1024 input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
parameters { key: "steps" value { string_value: "y = linear(x, scale=2)" } } instance_group { kind: KIND_GPU gpus: [ 0 ] }"""
STEP = 'step { model_name: "%s" model_version: -1 input_map { key: "%s" value: "%s" } output_map { key: "%s" value: "%s" } }\n'
PYTHON = {"torch": (TORCH, ON_GPU), "cupy": (CUPY, ON_GPU), "in_place": (IN_PLACE, ON_GPU), "numpy": (NUMPY, ""), "call": (CALL, ON_GPU),
          "dlpack": (DLPACK, ON_GPU)}  # yapf: disable
CHAINS = {"all_torch": ("torch", "scale", "torch", "scale"), "all_cupy": ("cupy", "scale", "cupy", "scale"),
          "all_numpy": ("numpy", "scale", "numpy", "scale"), "all_in_place": ("in_place", "scale", "in_place", "scale"),
          "to_client": ("torch", ), "all_call": ("call", "scale"), "all_dlpack": ("dlpack", )}  # yapf: disable
ENCODER = """backend: "engine" max_batch_size: 8 instance_group { kind: KIND_GPU gpus: [ 0 ] }
input { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] } input { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "embedding" data_type: TYPE_FP32 dims: [ -1 ] } parameters { key: "model_path" value { string_value: "%s" } }"""
EMBED = """platform: "ensemble" max_batch_size: 8 input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }
input { name: "lengths" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "s" data_type: TYPE_FP32 dims: [ -1 ] } ensemble_scheduling {
step { model_name: "encoder" model_version: -1 input_map { key: "input_ids" value: "ids" } input_map { key: "input_lengths" value: "lengths" }
  output_map { key: "embedding" value: "e" } }
"""


def write(folder, encoder):
    def model(name, config):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)

    model("scale", SCALE)
    for name, (code, force) in PYTHON.items():
        model(name, 'backend: "python"\n' + IO + force)
        (folder / name / "1/model.py").write_text(HEAD + BODY % ("import torch, cupy" if force else "pass", code))
    for name, steps in CHAINS.items():
        text = 'platform: "ensemble" max_batch_size: 1024\ninput { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        text += 'output { name: "s" data_type: TYPE_FP32 dims: [ -1 ] }\nensemble_scheduling {\n'
        value = "x"
        for number, step in enumerate(("scale", *steps)):
            to = "s" if number == len(steps) else f"v{number}"
            names = ("x", "y") if step == "scale" else ("IN", "OUT")
            text += STEP % (step, names[0], value, names[1], to)
            value = to
        model(name, text + "}")
    model("encoder", ENCODER % encoder)
    for name in ("torch", "numpy"):
        model("embed_" + name, EMBED + STEP % (name, "IN", "e", "OUT", "h") + STEP % ("scale", "x", "h", "y", "s") + "}")


@contextlib.contextmanager
def serving(proa, folder):
    command = [proa, "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--model-repository", str(folder),
               "--allow-client-shm=true", "--allow-external-paths=true"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PROA_PYTHON": sys.executable})
    line = process.stdout.readline()
    if not line:
        sys.exit("the server does not start")
    ready = json.loads(line)
    yield process, f"http://127.0.0.1:{ready['http_port']}", f"http://127.0.0.1:{ready['metrics_port']}/metrics"
    process.send_signal(signal.SIGTERM)
    print("server ended with", process.wait(60))


def post(url, body, headers=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=60) as answer:
            return answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from None


def infer(base, model, inputs):
    rows = [{"name": name, "shape": list(array.shape), "datatype": {"f": "FP32", "i": "INT32"}[array.dtype.kind],
             "parameters": {"binary_data_size": array.nbytes}} for name, array in inputs.items()]  # yapf: disable
    head = json.dumps({"inputs": rows, "parameters": {"binary_data_output": True}}).encode()
    body = head + b"".join(array.tobytes() for array in inputs.values())
    data, headers = post(f"{base}/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": str(len(head))})
    size = int(headers["Inference-Header-Content-Length"])
    return np.frombuffer(data[size:], np.float32).reshape(json.loads(data[:size])["outputs"][0]["shape"])


def copies(metrics):
    text = urllib.request.urlopen(metrics, timeout=60).read().decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(("proa_host_copies", "proa_device_copies")))
    return [int(float(values[name])) for name in ("proa_host_copies_total", "proa_device_copies_total")]


def used_mib():
    """Of the GPU that CUDA calls 0, by all processes."""
    import cupy
    free, total = cupy.cuda.runtime.memGetInfo()
    return (total - free) >> 20


def check(label, good, more=""):
    print(f"{'ok  ' if good else 'FAIL'} {label} {more}", flush=True)


def check_chain(base, metrics, model, inputs, expected, counts):
    try:
        infer(base, model, inputs)
        before = copies(metrics)
        have = infer(base, model, inputs)
    except RuntimeError as error:
        return check(model, False, error)
    now = [b - a for a, b in zip(before, copies(metrics))]
    check(model, np.array_equal(have, expected) and now == counts, f"copies to host, to GPU {now}, expected {counts}")


def python_of(server, name):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if f"\nPPid:\t{server.pid}\n" in pathlib.Path(f"/proc/{pid}/status").read_text() and f"{name}_0" in " ".join(words):
                return int(pid)
    return 0


def check_crash(server, base, x, expected):
    start = used_mib()
    for _ in range(3):
        pid = python_of(server, "torch")
        os.kill(pid, signal.SIGKILL)
        for _ in range(100):
            with contextlib.suppress(Exception):
                have = infer(base, "all_torch", {"x": x})
                break
            time.sleep(0.2)
        check("restart after kill -9", np.array_equal(have, expected), f"process {pid}")
    check("memory after three crashes", abs(used_mib() - start) < 64, f"{start} MiB before, {used_mib()} MiB after")
    for _ in range(300):
        infer(base, "all_torch", {"x": x})
    check("memory after 300 requests more", abs(used_mib() - start) < 64, f"{used_mib()} MiB")


def check_client_memory(base, metrics):
    """Input and output in CUDA shared memory of this process."""
    import cupy
    x, y = cupy.arange(4096, dtype=cupy.float32), cupy.zeros(4096, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    for name, array in (("in", x), ("out", y)):
        handle = base64.b64encode(cupy.cuda.runtime.ipcGetMemHandle(array.data.mem.ptr)).decode()
        post(f"{base}/v2/cudasharedmemory/region/{name}/register",
             json.dumps({"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": 16384}).encode())
    region = lambda name: {"shared_memory_region": name, "shared_memory_byte_size": 16384}  # noqa: E731
    body = {"inputs": [{"name": "IN", "shape": [1, 4096], "datatype": "FP32", "parameters": region("in")}],
            "outputs": [{"name": "OUT", "parameters": region("out")}]}  # yapf: disable
    before = copies(metrics)
    for model in ("in_place", "torch"):
        post(f"{base}/v2/models/{model}/infer", json.dumps(body).encode())
        check(f"CUDA shared memory of the client through {model}", bool((y == x * 3 + 1).all() and (x == cupy.arange(4096)).all()),
              f"copies {[b - a for a, b in zip(before, copies(metrics))]}, expected [0, 0]")
    post(f"{base}/v2/cudasharedmemory/unregister", b"")


def time_chain(base, model, x, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        infer(base, model, {"x": x})
        times.append(time.perf_counter() - begin)
    return sorted(times)[count // 2] * 1e3


def show_steps(base, model, x, count):
    """Microseconds of each model of a pipeline in a request, by the server's statistics."""

    def read():
        text = urllib.request.urlopen(f"{base}/v2/models/stats", timeout=60).read()
        return {one["name"]: {key: value["ns"] for key, value in one["inference_stats"].items()} for one in json.loads(text)["model_stats"]}

    before = read()
    time_chain(base, model, x, count)
    for name, now in read().items():
        spent = {key: (now[key] - before[name][key]) / count / 1e3 for key in ("queue", "compute_input", "compute_infer", "compute_output")}
        if any(spent.values()):
            print(" ", model, name, *(f"{key} {value:.0f}" for key, value in spent.items()), flush=True)


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    write(folder, sys.argv[2])
    import cupy
    cupy.zeros(1)  # this process has a context of its own
    start = used_mib()
    with serving(sys.argv[1], folder) as (server, base, metrics):
        x = np.arange(64, dtype=np.float32).reshape(4, 16)
        full, once = ((x * 2 * 3 + 1) * 2 * 3 + 1) * 2, x * 2 * 3 + 1
        for model in ("all_torch", "all_cupy", "all_in_place"):
            check_chain(base, metrics, model, {"x": x}, full, [1, 1])
        check_chain(base, metrics, "all_numpy", {"x": x}, full, [3, 3])
        check_chain(base, metrics, "to_client", {"x": x}, once, [1, 1])
        check_chain(base, metrics, "all_call", {"x": x}, once * 2, [1, 1])
        check_chain(base, metrics, "all_dlpack", {"x": x}, x * 2, [1, 1])
        check_client_memory(base, metrics)
        ids = {"ids": np.arange(4, 36, dtype=np.int32).reshape(4, 8), "lengths": np.full((4, 1), 8, np.int32)}
        check_chain(base, metrics, "embed_torch", ids, infer(base, "embed_numpy", ids), [1, 0])
        check_crash(server, base, x, full)
        print("rows of 4096 floats | torch ms | cupy ms | in place ms | numpy ms (median of a request over HTTP)")
        for rows, count in ((1, 200), (64, 100), (512, 30)):
            x = np.random.default_rng(0).random((rows, 4096), np.float32)
            row = [time_chain(base, model, x, count) for model in ("all_torch", "all_cupy", "all_in_place", "all_numpy")]
            print(rows, *(f"{one:.3f}" for one in row), sep=" | ", flush=True)
            if rows == 1:
                for model in ("all_torch", "all_in_place", "all_numpy"):
                    show_steps(base, model, x, count)
    check("memory after the server's end", abs(used_mib() - start) < 64, f"{start} MiB before, {used_mib()} MiB after")


if __name__ == "__main__":
    main()
