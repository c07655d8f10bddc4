# SPDX-License-Identifier: Apache-2.0
"""Tensors of Python models on a GPU: between the steps of a pipeline, to and from models that a model calls, and what is
left after a process that was killed. The GPUs are tests/fake_gpu, in the server and (its libcuda.so.1) in the processes."""
import textwrap

import numpy as np
import pytest
import requests
import tritonclient.http as http
from test_python import HEAD, PYTHON
from wire import PROA, Server, metric

FAKE_GPU = PROA.parent / "tests/libfake_gpu.so"
FAKE_CUDA = PROA.parent / "tests/fake_cuda"

# In place of torch: arrays on the fake GPU, with DLPack in both directions.
ARRAYS = '''
import ctypes
import numpy as np
import proa_tensor

cuda = ctypes.CDLL("libcuda.so.1")
U64, SIZE = ctypes.c_uint64, ctypes.c_size_t
cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, U64, SIZE]
cuda.cuMemcpyHtoD_v2.argtypes = [U64, ctypes.c_void_p, SIZE]
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, SIZE]
cuda.cuMemFree_v2.argtypes = [U64]

class Array:
    """FP32 on GPU 0."""

    def __init__(self, shape, address, owner):
        self.shape, self.address, self.owner = tuple(shape), address, owner

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        assert stream == 1
        return proa_tensor._lend("FP32", self.shape, self.address, self, (2, 0))

    def numpy(self):
        array = np.empty(self.shape, np.float32)
        assert cuda.cuMemcpyDtoH_v2(array.ctypes.data, self.address, array.nbytes) == 0
        return array

    def write(self, array):
        array = np.ascontiguousarray(array, np.float32)
        assert cuda.cuMemcpyHtoD_v2(self.address, array.ctypes.data, array.nbytes) == 0
        return self

class Owned:
    def __init__(self, size):
        self.address = U64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.address), size) == 0
    def __del__(self):
        cuda.cuMemFree_v2(self.address)

def put(array):
    owned = Owned(array.nbytes)
    return Array(array.shape, owned.address.value, owned).write(array)

def get(tensor):
    assert tensor.__dlpack_device__() == (2, 0)
    capsule = tensor.to_dlpack()
    managed = proa_tensor._DLManagedTensor.from_address(proa_tensor._capsule_pointer(capsule, b"dltensor"))
    assert managed.tensor.device.kind == 2
    return Array(tensor.shape(), managed.tensor.data, capsule)
'''
IO = """input { name: "IN" data_type: TYPE_FP32 dims: [ 6 ] } output { name: "OUT" data_type: TYPE_FP32 dims: [ 6 ] } max_batch_size: 64
"""
ON_GPU = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'
SCALE = """backend: "transform" max_batch_size: 64 input { name: "x" data_type: TYPE_FP32 dims: [ 6 ] }
parameters { key: "steps" value { string_value: "y = linear(x, scale=2)" } } instance_group { kind: KIND_GPU gpus: [ 0 ] }"""

# Each model is one line for a request.
MODELS = {
    "add": 'tensor = pb_utils.Tensor.from_dlpack("OUT", put(get(given).numpy() + 1))',
    "same": 'tensor = pb_utils.Tensor.from_dlpack("OUT", get(given))',
    "in_place": 'get(given).write(get(given).numpy() * 10); tensor = pb_utils.Tensor.from_dlpack("OUT", given)',
    "where": 'tensor = pb_utils.Tensor("OUT", np.full(given.shape(), given.is_cpu(), np.float32))',
    "numpy": 'tensor = pb_utils.Tensor("OUT", given.as_numpy())',
    "kept": 'self.kept.append(given); tensor = pb_utils.Tensor.from_dlpack("OUT", put(self.kept[0].is_cpu() * 0 + '
            'get(self.kept[0]).numpy()))',
    "die": 'os.kill(os.getpid(), 9) if get(given).numpy()[0, 0] == 26 else None; '
           'tensor = pb_utils.Tensor.from_dlpack("OUT", put(get(given).numpy()))',
    "opened": 'get(given); tensor = pb_utils.Tensor("OUT", np.full(given.shape(), cuda.fake_opened(), np.float32))',
}  # yapf: disable
CALL = ('call = pb_utils.InferenceRequest(model_name="scale", requested_output_names=["y"], '
        'inputs=[pb_utils.Tensor.from_dlpack("x", given)]%s).exec(); '
        'tensor = pb_utils.get_output_tensor_by_name(call, "y"); ')
CALLS = {
    "call": (CALL % "") + 'tensor = pb_utils.Tensor.from_dlpack("OUT", put(get(tensor).numpy() + 1))',
    "call_cpu": CALL % ", preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)"
                + 'tensor = pb_utils.Tensor("OUT", tensor.as_numpy() + 1)',
    "call_gpu": 'given = pb_utils.Tensor("x", given.as_numpy()); ' + CALL
                % ", preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)"
                + 'tensor = pb_utils.Tensor.from_dlpack("OUT", put(get(tensor).numpy() + 1))',
}  # yapf: disable
STEP = 'step { model_name: "%s" model_version: -1 input_map { key: "%s" value: "%s" } output_map { key: "%s" value: "%s" } }\n'


def write_python(folder, name, line, force=ON_GPU):
    code = HEAD + ARRAYS + textwrap.dedent("""
        class TritonPythonModel:
            kept = []
            def execute(self, requests):
                responses = []
                for request in requests:
                    given = pb_utils.get_input_tensor_by_name(request, "IN")
                    %s
                    responses.append(pb_utils.InferenceResponse([tensor]))
                return responses
        """) % line
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1/model.py").write_text(code)
    (folder / name / "config.pbtxt").write_text('backend: "python"\n' + IO + force)


def write_chain(folder, name, *steps):
    """scale, the steps, scale: x to s."""
    text, value = 'platform: "ensemble" max_batch_size: 64\ninput { name: "x" data_type: TYPE_FP32 dims: [ 6 ] }\n', "x"
    text += 'output { name: "s" data_type: TYPE_FP32 dims: [ 6 ] }\nensemble_scheduling {\n'
    for number, step in enumerate(("scale", *steps)):
        to = "s" if number == len(steps) else f"v{number}"
        names = ("x", "y") if step == "scale" else ("IN", "OUT")
        text += STEP % (step, names[0], value, names[1], to)
        value = to
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(text + "}")


CHAINS = {
    "twice": ("add", "scale", "add", "scale"), "passed": ("same", "scale"), "to_client": ("add", ), "input_to_client": ("same", ),
    "forced": ("cpu_only", ), "seen": ("where", ), "no_numpy": ("numpy", ), "written": ("in_place", "scale"), "killed": ("die", "scale"),
    "kept_all": ("kept", "scale"), "open_count": ("opened", ), "called": ("call", "scale"), "called_cpu": ("call_cpu", ),
    "called_gpu": ("call_gpu", ),
}  # yapf: disable


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not FAKE_GPU.exists() or not FAKE_CUDA.exists():
        pytest.skip("tests/libfake_gpu.so and tests/fake_cuda are not built")
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "scale/1").mkdir(parents=True)
    (folder / "scale/config.pbtxt").write_text(SCALE)
    for name, line in {**MODELS, **CALLS}.items():
        write_python(folder, name, line, "" if name == "call_gpu" else ON_GPU)
    write_python(folder, "cpu_only", MODELS["where"], "")
    for name, steps in CHAINS.items():
        write_chain(folder, name, *steps)
    env = {**PYTHON, "PROA_CUDA_PLUGIN": str(FAKE_GPU), "LD_LIBRARY_PATH": str(FAKE_CUDA)}
    with Server(repositories=[folder], env=env) as running:
        yield running


ROWS = np.arange(12, dtype=np.float32).reshape(2, 6)


def ask(server, model, rows=ROWS):
    with http.InferenceServerClient(server.http, network_timeout=60, connection_timeout=60) as client:
        one = http.InferInput("x", list(rows.shape), "FP32")
        one.set_data_from_numpy(rows)
        return client.infer(model, [one]).as_numpy("s")


def copies(server):
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    return [int(metric(text, name)) for name in ("proa_host_copies_total", "proa_device_copies_total")]


def copied(server, model, rows=ROWS):
    """The answer, and copies to the host and to the GPU."""
    before = copies(server)
    answer = ask(server, model, rows)
    return answer, [b - a for a, b in zip(before, copies(server))]


@pytest.mark.parametrize("model, expected", [("twice", ((ROWS * 2 + 1) * 2 + 1) * 2), ("passed", ROWS * 4), ("to_client", ROWS * 2 + 1),
                                             ("input_to_client", ROWS * 2), ("written", ROWS * 40), ("called", (ROWS * 4 + 1) * 2)])
def test_one_copy_in_and_one_out(server, model, expected):
    answer, have = copied(server, model)
    np.testing.assert_array_equal(answer, expected)
    assert have == [1, 1]
    for rows in (ROWS[:1], np.tile(ROWS, (20, 1))):  # the memory is used again
        np.testing.assert_array_equal(ask(server, model, rows)[:1], expected[:1])


def test_inputs_come_in_host_memory_by_default(server):
    answer, have = copied(server, "forced")
    assert (answer == 1).all() and have == [1, 1]
    answer, have = copied(server, "seen")
    assert (answer == 0).all() and have == [0, 1]


def test_numpy_has_no_tensors_of_a_gpu(server):
    with pytest.raises(http.InferenceServerException, match="Tensor is stored in GPU and cannot be converted to NumPy."):
        ask(server, "no_numpy")


@pytest.mark.parametrize("model, count", [("called_cpu", [1, 1]), ("called_gpu", [2, 2])])
def test_preferred_memory_of_a_call(server, model, count):
    answer, have = copied(server, model)
    np.testing.assert_array_equal(answer, ROWS * 4 + 1)
    assert have == count


def test_a_tensor_that_is_kept_stays_as_it_is(server):
    for factor in range(1, 5):
        np.testing.assert_array_equal(ask(server, "kept_all", ROWS * factor), ROWS * 4)


def test_a_killed_process_is_started_again(server):
    np.testing.assert_array_equal(ask(server, "killed"), ROWS * 4)
    for _ in range(2):
        with pytest.raises(http.InferenceServerException, match="is not healthy"):
            ask(server, "killed", ROWS + 13)
        np.testing.assert_array_equal(ask(server, "killed"), ROWS * 4)


def files_of_gpu(pid):
    """How much memory of the fake GPU a process has."""
    return sum("fake-gpu" in line for line in open(f"/proc/{pid}/maps"))


def test_memory_is_used_again(server):
    """A process gives memory back when it has nothing else to do, which is after its response. The next request can be sooner
    on a busy machine, and has other memory then. So some blocks more are right; one lost by each request would be 200."""
    before = files_of_gpu(server.process.pid)
    for _ in range(200):
        ask(server, "twice")
        ask(server, "open_count")
    assert files_of_gpu(server.process.pid) < before + 20
    assert ask(server, "open_count").max() < 20
