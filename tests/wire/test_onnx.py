# SPDX-License-Identifier: Apache-2.0
"""ONNX models by ONNX Runtime: completed and declared configurations, types, batches, files that are broken. The package
onnx writes the models, onnxruntime brings the library and the expected numbers."""
import json
import pathlib
import threading
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import np_to_triton_dtype
from wire import PROA, ROOT, Server, wait_until

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
import ml_dtypes  # noqa: E402 # onnx needs it
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

LIBRARY = max((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
OPTION = f"--backend-config=onnxruntime,library={LIBRARY}"
TYPES = {"BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32,
         "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16, "INT32": TensorProto.INT32,
         "INT64": TensorProto.INT64, "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
         "BYTES": TensorProto.STRING, "BF16": TensorProto.BFLOAT16}

FLOATS = {"BF16": ml_dtypes.bfloat16, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, TYPES[kind], shape)


def model(nodes, inputs, outputs, initializers=(), **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=initializers, **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def add(folder, name, content, config=None, file="model.onnx"):
    """A model of the repository `folder`: a ModelProto or bytes."""
    path = folder / name / "1" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    if config is not None:
        (folder / name / "config.pbtxt").write_text(config)
    return path


def add_sub(rows="n"):
    nodes = [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"])]
    shape = [rows, 4] if rows else [4]
    return model(nodes, [value("A", "FP32", shape), value("B", "FP32", shape)],
                 [value("SUM", "FP32", shape), value("DIFFERENCE", "FP32", shape)])


def identity(kind, shape):
    return model([helper.make_node("Identity", ["X"], ["Y"])], [value("X", kind, shape)], [value("Y", kind, shape)])


def table_of_rows():
    """Rows of a table of 5: an index outside of it fails."""
    table = helper.make_tensor("T", TensorProto.FLOAT, [5, 2], np.arange(10, dtype=np.float32))
    return model([helper.make_node("Gather", ["T", "I"], ["R"])], [value("I", "INT64", ["n"])], [value("R", "FP32", ["n", 2])],
                 [table])


def with_default():
    """X * F, where F is 3 unless a request brings it."""
    return model([helper.make_node("Mul", ["X", "F"], ["Y"])], [value("X", "FP32", [2]), value("F", "FP32", [1])],
                 [value("Y", "FP32", [2])], [helper.make_tensor("F", TensorProto.FLOAT, [1], [3.0])])


def sequence_output():
    return model([helper.make_node("SequenceConstruct", ["X"], ["Y"])], [value("X", "FP32", [2])],
                 [helper.make_tensor_sequence_value_info("Y", TensorProto.FLOAT, [2])])


def io(kind, name, data_type, dims, more=""):
    return f'{kind} [{{ name: "{name}" data_type: TYPE_{data_type} dims: {list(dims)} {more} }}]\n'


def parameter(key, text):
    return f'parameters [{{ key: "{key}" value: {{ string_value: "{text}" }} }}]\n'


PAIR = io("input", "A", "FP32", [4]) + io("input", "B", "FP32", [4]) + io("output", "SUM", "FP32", [4])
BATCHED = 'backend: "onnxruntime"\nmax_batch_size: 8\n' + PAIR
ACCELERATOR = 'optimization { execution_accelerators { %s [ { name: "%s" parameters { key: "a" value: "1" } } ] } }\n'
TUNED = "".join(parameter(*pair) for pair in (
    ("intra_op_thread_count", "1"), ("inter_op_thread_count", "1"), ("execution_mode", "1"), ("enable_mem_arena", "1"),
    ("enable_mem_pattern", "false"), ("memory.enable_memory_arena_shrinkage", "cpu:0"),
    ("session.use_device_allocator_for_initializers", "1"), ("session.intra_op.allow_spinning", "0")))

ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"

WRONG = {  # name: (model, configuration, what its error says)
    "no-input": (add_sub(), BATCHED.replace('"B"', '"C"'), "the model has no input 'C', its inputs are: A, B"),
    "few-inputs": (add_sub(), BATCHED.replace(io("input", "B", "FP32", [4]), ""), "input 'B' of the model is not in the configuration"),
    "no-output": (add_sub(), BATCHED.replace("SUM", "TOTAL"), "the model has no output 'TOTAL', its outputs are: SUM, DIFFERENCE"),
    "type": (add_sub(), BATCHED.replace("FP32", "INT32", 1), "expects datatype TYPE_INT32 for input 'A', model provides TYPE_FP32"),
    "dims": (add_sub(), BATCHED.replace("[4]", "[5]", 1), "input 'A' has dims [5] in the configuration (after the batch dimension), the model has the shape [-1,4]"),
    "rank": (add_sub(), BATCHED.replace("[4]", "[4, 1]", 1), "input 'A' has dims [4,1]"),
    "open": (add_sub(), BATCHED.replace("[4]", "[-1]", 1), "input 'A' has dims [-1]"),
    "batch": (add_sub(""), BATCHED, "input 'A' has the shape [4] in the model: max_batch_size 8 needs an open first dimension"),
    "fill-batch": (add_sub(""), "max_batch_size: 8", "autofill failed for model 'fill-batch': model does not support batching"),
    "accelerator": (add_sub(), BATCHED + ACCELERATOR % ("gpu_execution_accelerator", "fast"), "unknown Execution Accelerator 'fast' is requested"),
    "cpu-accelerator": (add_sub(), BATCHED + ACCELERATOR % ("cpu_execution_accelerator", "quick"), "unknown Execution Accelerator 'quick' is requested"),
    "openvino": (add_sub(), BATCHED + ACCELERATOR % ("cpu_execution_accelerator", "openvino"), "onnx runtime error"),
    "threads": (add_sub(), BATCHED + parameter("intra_op_thread_count", "many"), "'intra_op_thread_count' of model 'threads' must be a number from 0 to 1024, got 'many'"),
    "mode": (add_sub(), BATCHED + parameter("execution_mode", "2"), "'execution_mode' of model 'mode' must be a number from 0 to 1, got '2'"),
    "arena": (add_sub(), BATCHED + parameter("enable_mem_arena", "maybe"), "'enable_mem_arena' of model 'arena' must be 0 or 1, got 'maybe'"),
    "file-entry": (add_sub(), BATCHED + parameter("session.model_external_initializers_file_folder_path", "/"), "names a file, which is not allowed"),
    "library": (add_sub(), BATCHED + 'model_operations { op_library_filename: "no.so" }', "onnx runtime error"),
    "sequence": (sequence_output(), None, "output 'Y' of the model is a sequence, which requests of inference cannot carry"),
    "complex": (model([helper.make_node("Identity", ["X"], ["Y"])], [helper.make_tensor_value_info("X", TensorProto.FLOAT8E4M3FN, [2])],
                      [helper.make_tensor_value_info("Y", TensorProto.FLOAT8E4M3FN, [2])]), None, "input 'X' of the model has elements of type FLOAT8E4M3FN"),
    "optional": (add_sub(), 'backend: "onnxruntime"\n' + PAIR.replace("dims: [4]", "dims: [-1, 4]").replace("dims: [-1, 4] ", "dims: [-1, 4] optional: true ", 1),
                 "optional input 'A' must have a value of its own in the model"),
    "cut": (add_sub().SerializeToString()[:-20], None, "is no ONNX model, or is damaged"),
    "text": (b"not a model", None, "is no ONNX model, or is damaged"),
    "empty": (b"", None, "is empty"),
    "gpu": (add_sub(), BATCHED + "instance_group [ { kind: KIND_GPU } ]", ""),
}


@pytest.fixture(scope="module", params=[(), ("--isolate", "onnxruntime")], ids=["in-process", "isolated"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    add(folder, "plain", add_sub())
    add(folder, "fixed", add_sub(""))
    add(folder, "declared", add_sub(), BATCHED + "dynamic_batching { max_queue_delay_microseconds: 100000 }\n" + ONE)
    add(folder, "platform", add_sub(), 'platform: "onnxruntime_onnx"\nmax_batch_size: 1\n')
    add(folder, "tuned", add_sub(), BATCHED + TUNED + "optimization { graph { level: -1 } }\n")
    add(folder, "named", add_sub(), 'default_model_filename: "net.onnx"\nbackend: "onnxruntime"\n', "net.onnx")
    add(folder, "folder", add_sub(), None, "model.onnx/model.onnx")
    add(folder, "rows", table_of_rows(), 'max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 100000 }\n' + ONE)
    add(folder, "default", with_default(), 'backend: "onnxruntime"\n' + io("input", "X", "FP32", [2])
        + io("input", "F", "FP32", [1], "optional: true") + io("output", "Y", "FP32", [2]))
    add(folder, "slow", slow(), ONE)
    add(folder, "strings", identity("BYTES", ["n", 2]), "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 100000 }\n" + ONE)
    add(folder, "scalar", model([helper.make_node("Neg", ["X"], ["Y"])], [value("X", "FP32", [])], [value("Y", "FP32", [])]))
    add(folder, "one-output", sequence_with_tensor(), 'backend: "onnxruntime"\n' + io("input", "X", "FP32", [2]) + io("output", "Z", "FP32", [2]))
    add(folder, "transpose", model([helper.make_node("Transpose", ["X"], ["Y"], perm=[1, 0])], [value("X", "FP32", ["a", "b"])],
                                   [value("Y", "FP32", ["b", "a"])]), "dynamic_batching { max_queue_delay_microseconds: 100000 }\n" + ONE)
    for kind in TYPES:
        add(folder, "identity-" + kind.lower(), identity(kind, ["n", "m"]))
    for name, (content, config, _) in WRONG.items():
        add(folder, "wrong-" + name, content, config and config.replace(f"'{name}'", f"'wrong-{name}'"))
    with Server(OPTION, "--exit-on-error=false", *request.param, repositories=[folder]) as one:
        yield one


def sequence_with_tensor():
    made = sequence_output()
    made.graph.node.append(helper.make_node("Neg", ["X"], ["Z"]))
    made.graph.output.append(value("Z", "FP32", [2]))
    return made


def config_of(server, name):
    return requests.get(server.url(f"/v2/models/{name}/config"), timeout=20).json()


def array(kind, shape=(3, 2)):
    random = np.random.default_rng(5)
    count = int(np.prod(shape))
    if kind == "BYTES":
        return np.array([b"", b"a\0b", "\u00fc".encode(), bytes(range(256)), b"x" * 1000, b"z"][:count], object).reshape(shape)
    if kind == "BOOL":
        return random.integers(0, 2, shape).astype(bool)
    if kind in FLOATS:
        return random.standard_normal(shape).astype(FLOATS[kind])
    info = np.iinfo(kind.lower())
    return random.integers(info.min, info.max, shape, dtype=info.dtype, endpoint=True)


def infer(server, name, inputs, protocol=http, outputs=None):
    """{output: array} for {input: array}, in binary form."""
    address = server.http if protocol is http else server.grpc
    with protocol.InferenceServerClient(address) as client:
        tensors = []
        for key, data in inputs.items():
            tensors.append(protocol.InferInput(key, data.shape, np_to_triton_dtype(data.dtype)))
            tensors[-1].set_data_from_numpy(data)
        result = client.infer(name, tensors, outputs=outputs and [protocol.InferRequestedOutput(o) for o in outputs])
        answer = result.get_response()
        names = [o["name"] for o in answer["outputs"]] if protocol is http else [o.name for o in answer.outputs]
        return {key: result.as_numpy(key) for key in names}


PLAIN = {"A": np.arange(8, dtype=np.float32).reshape(2, 4), "B": np.ones((2, 4), np.float32)}


@pytest.mark.parametrize("name", ["plain", "declared", "tuned", "named", "folder"])
def test_a_model_of_floats(server, name):
    got = infer(server, name, PLAIN)
    np.testing.assert_array_equal(got["SUM"], PLAIN["A"] + 1)
    assert ("DIFFERENCE" in got) == (name in ("plain", "named", "folder"))


def test_the_configuration_is_completed(server):
    config = config_of(server, "plain")
    assert (config["backend"], config["platform"], config["default_model_filename"]) == ("onnxruntime", "onnxruntime_onnx", "model.onnx")
    assert config["max_batch_size"] == 4 and "dynamic_batching" in config
    assert [(t["name"], t["data_type"], t["dims"]) for t in config["input"]] == [("A", "TYPE_FP32", [4]), ("B", "TYPE_FP32", [4])]
    assert [t["name"] for t in config["output"]] == ["SUM", "DIFFERENCE"]
    assert [(g["kind"], g["count"]) for g in config["instance_group"]] == [("KIND_CPU", 2)]
    config = config_of(server, "fixed")
    assert config["max_batch_size"] == 0 and "dynamic_batching" not in config and config["input"][0]["dims"] == [4]
    config = config_of(server, "platform")
    assert config["max_batch_size"] == 1 and "dynamic_batching" not in config and config["backend"] == "onnxruntime"


@pytest.mark.parametrize("protocol", [http, grpc], ids=["http", "grpc"])
@pytest.mark.parametrize("kind", TYPES)
def test_types(server, kind, protocol):
    data = array(kind)
    np.testing.assert_array_equal(infer(server, "identity-" + kind.lower(), {"X": data}, protocol)["Y"], data)


@pytest.mark.parametrize("kind", ["FP32", "BYTES"])
def test_an_empty_tensor(server, kind):
    data = np.zeros((1, 0), np.float32 if kind == "FP32" else object)
    assert infer(server, "identity-" + kind.lower(), {"X": data})["Y"].shape == (1, 0)


def test_a_scalar(server):
    assert infer(server, "scalar", {"X": np.array([3], np.float32)})["Y"].tolist() == [-3]


def test_bools_other_than_0_and_1(server):
    head = {"inputs": [{"name": "X", "datatype": "BOOL", "shape": [1, 4], "parameters": {"binary_data_size": 4}}]}
    head = json.dumps(head).encode()
    answer = requests.post(server.url("/v2/models/identity-bool/infer"), head + b"\x02\x00\xff\x01",
                           headers={"Inference-Header-Content-Length": str(len(head))}, timeout=20)
    assert answer.json()["outputs"][0]["data"] == [True, False, True, True]


def test_requested_outputs(server):
    assert list(infer(server, "plain", PLAIN, outputs=["DIFFERENCE"])) == ["DIFFERENCE"]


def test_an_optional_input(server):
    x = np.array([1, 2], np.float32)
    assert infer(server, "default", {"X": x})["Y"].tolist() == [3, 6]
    assert infer(server, "default", {"X": x, "F": np.array([5], np.float32)})["Y"].tolist() == [5, 10]


def test_an_output_that_requests_cannot_carry_may_be_left_out(server):
    assert infer(server, "one-output", {"X": np.array([1, 2], np.float32)})["Z"].tolist() == [-1, -2]


def together(server, name, inputs):
    """One request for each of `inputs`, at the same time; answers or exceptions in their order."""
    answers = [None] * len(inputs)

    def one(i):
        try:
            answers[i] = infer(server, name, inputs[i])
        except Exception as error:  # noqa: BLE001 # the test looks at it
            answers[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def counts(server, name):
    stats = requests.get(server.url(f"/v2/models/{name}/stats"), timeout=20).json()["model_stats"][0]
    return stats["inference_count"], stats["execution_count"]


def test_requests_are_joined(server):
    before = counts(server, "declared")
    inputs = [{"A": np.full((1 + i % 2, 4), i, np.float32), "B": np.ones((1 + i % 2, 4), np.float32)} for i in range(5)]
    for i, answer in enumerate(together(server, "declared", inputs)):
        np.testing.assert_array_equal(answer["SUM"], inputs[i]["A"] + 1)
    after = counts(server, "declared")
    assert after[0] - before[0] == 7 and after[1] - before[1] < 5


def test_strings_of_joined_requests(server):
    inputs = [{"X": np.array([[b"x" * (i + r) for _ in range(2)] for r in range(1 + i % 2)], object)} for i in range(5)]
    before = counts(server, "strings")
    for i, answer in enumerate(together(server, "strings", inputs)):
        np.testing.assert_array_equal(answer["Y"], inputs[i]["X"])
    assert counts(server, "strings")[1] - before[1] < 5


def test_a_wrong_index_fails_alone(server):
    inputs = [{"I": np.array([[i]], np.int64)} for i in (0, 1, 77, 3)]
    answers = together(server, "rows", inputs)
    assert "indices element out of data bounds" in str(answers[2])
    assert [a["R"].tolist() for i, a in enumerate(answers) if i != 2] == [[[0, 1]], [[2, 3]], [[6, 7]]]


def test_outputs_that_are_no_rows_of_the_batch(server):
    """Declared as a batch by its open dimensions, which it is not."""
    inputs = [{"X": np.arange(3, dtype=np.float32).reshape(1, 3) + i} for i in range(4)]
    for i, answer in enumerate(together(server, "transpose", inputs)):
        np.testing.assert_array_equal(answer["Y"], inputs[i]["X"].T)


def slow():
    """N times: X = X + 1, one node of the loop after the other."""
    body = helper.make_graph([helper.make_node("Add", ["x", "ONE"], ["y"]), helper.make_node("Identity", ["go"], ["on"])], "body",
                             [value("i", "INT64", []), value("go", "BOOL", []), value("x", "FP32", [1])],
                             [value("on", "BOOL", []), value("y", "FP32", [1])])
    return model([helper.make_node("Loop", ["N", "", "X"], ["Y"], body=body)], [value("N", "INT64", [1]), value("X", "FP32", [1])],
                 [value("Y", "FP32", [1])], [helper.make_tensor("ONE", TensorProto.FLOAT, [1], [1.0])])


def test_a_run_ends_when_its_client_disconnects(server):
    inputs = [{"name": "N", "datatype": "INT64", "shape": [1], "data": [1 << 40]}, {"name": "X", "datatype": "FP32", "shape": [1], "data": [0]}]
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(server.url("/v2/models/slow/infer"), json={"inputs": inputs}, timeout=0.5)
    answer = infer(server, "slow", {"N": np.array([5], np.int64), "X": np.zeros(1, np.float32)})
    assert answer["Y"].tolist() == [5]
    count = 'nv_inference_request_failure{model="slow",reason="CANCELED",version="1"} 1'
    wait_until(lambda: count in requests.get(f"http://{server.metrics}/metrics", timeout=20).text)


def test_the_example():
    with Server(OPTION, repositories=[ROOT / "examples/onnx/repository"]) as one:
        got = infer(one, "colours", {"RGB": np.array([[250, 20, 10], [0, 0, 200]], np.float32)})
        assert got["NAME"].tolist() == [[b"red"], [b"blue"]] and got["SCORE"].shape == (2, 6)


def test_loading_by_request_again_and_again(tmp_path):
    """Files that come with the request; memory and threads of a version end with it."""
    add(tmp_path, "plain", add_sub())
    with Server(OPTION, "--model-control-mode=explicit", repositories=[tmp_path]) as one, http.InferenceServerClient(one.http) as client:
        sizes, threads = [], []
        for i in range(60):
            table = np.full((5, 20000), i, np.float32)
            made = model([helper.make_node("Gather", ["T", "I"], ["R"])], [value("I", "INT64", ["n", 1])],
                         [value("R", "FP32", ["n", 1, 20000])], [numpy_helper.from_array(table, "T")])
            client.load_model("sent", config=json.dumps({"backend": "onnxruntime"}), files={"file:1/model.onnx": made.SerializeToString()})
            assert infer(one, "sent", {"I": np.array([[2]], np.int64)})["R"][0, 0, 0] == i
            client.unload_model("sent")
            while any(m["name"] == "sent" and m.get("state") == "READY" for m in client.get_model_repository_index()):
                time.sleep(0.01)
            sizes.append(one.resident_bytes())
            threads.append(len(list(pathlib.Path(f"/proc/{one.process.pid}/task").iterdir())))
        if "asan" not in str(PROA) and "tsan" not in str(PROA):  # sanitizers keep what is freed
            assert max(sizes[40:]) < max(sizes[10:30]) + (16 << 20), sizes
        assert max(threads[40:]) <= max(threads[10:30]) + 2, threads


def test_sequence_controls_are_compared_with_the_model(tmp_path):
    start = """sequence_batching { control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START %s: [ 0, 1 ] } ] } ] }"""
    made = model([helper.make_node("Add", ["X", "START"], ["Y"])], [value("X", "FP32", ["n", 1]), value("START", "FP32", ["n", 1])],
                 [value("Y", "FP32", ["n", 1])])
    config = 'backend: "onnxruntime"\nmax_batch_size: 2\n' + io("input", "X", "FP32", [1]) + io("output", "Y", "FP32", [1])
    add(tmp_path, "good", made, config + start % "fp32_false_true")
    add(tmp_path, "type", made, config + start % "int32_false_true")
    add(tmp_path, "name", made, config + start.replace("START\"", "BEGIN\"", 1) % "fp32_false_true")
    with Server(OPTION, "--exit-on-error=false", repositories=[tmp_path]) as one:
        why = reasons(one)
        assert "sequence control 'START' has the type TYPE_INT32 in the configuration, TYPE_FP32 in the model" in why["type"]
        assert "the model has no input 'BEGIN', which is a sequence control in the configuration" in why["name"]
        with http.InferenceServerClient(one.http) as client:
            for first in (True, False):
                tensor = http.InferInput("X", [1, 1], "FP32")
                tensor.set_data_from_numpy(np.array([[7]], np.float32))
                got = client.infer("good", [tensor], sequence_id=3, sequence_start=first, sequence_end=not first).as_numpy("Y")
                assert got.tolist() == [[8 if first else 7]]


def reasons(server):
    return {m["name"]: m.get("reason", "") for m in requests.post(server.url("/v2/repository/index"), json={}, timeout=20).json()}


@pytest.mark.parametrize("name", WRONG)
def test_a_model_that_cannot_be_served_has_one_clear_error(server, name):
    reason = reasons(server)["wrong-" + name]
    assert reason and WRONG[name][2].replace(f"model '{name}'", f"model 'wrong-{name}'") in reason
    assert "\n" not in reason
    assert requests.get(server.url(f"/v2/models/wrong-{name}/ready"), timeout=20).status_code != 200
    assert infer(server, "plain", PLAIN)


def test_without_the_library(tmp_path):
    add(tmp_path, "plain", add_sub())
    empty = {"PATH": "/nowhere", "HOME": "/nowhere", "VIRTUAL_ENV": "", "LD_LIBRARY_PATH": ""}
    with Server("--exit-on-error=false", repositories=[tmp_path], env=empty) as one:
        reason = reasons(one)["plain"]
        if not reason:
            pytest.skip("the system has the library")
        assert "ONNX Runtime's library was not found" in reason
    with Server("--backend-config=onnxruntime,library=/nowhere/lib.so", "--exit-on-error=false", repositories=[tmp_path]) as one:
        assert "/nowhere/lib.so" in reasons(one)["plain"]


def test_found_in_a_virtual_environment(tmp_path):
    capi = tmp_path / "env/lib/python3.11/site-packages/onnxruntime/capi"
    capi.mkdir(parents=True)
    (capi / LIBRARY.name).symlink_to(LIBRARY)
    add(tmp_path / "repository", "plain", add_sub())
    with Server("--backend-config=onnxruntime,default-max-batch-size=16", "--backend-config=onnxruntime,enable-global-threadpool=1",
                "--backend-config=onnxruntime,intra_op_thread_count=1", repositories=[tmp_path / "repository"],
                env={"VIRTUAL_ENV": str(tmp_path / "env"), "LD_LIBRARY_PATH": ""}) as one:
        assert config_of(one, "plain")["max_batch_size"] == 16
        np.testing.assert_array_equal(infer(one, "plain", PLAIN)["SUM"], PLAIN["A"] + 1)


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "a/../../secret", "x" * 5000])
def test_external_data_outside_of_the_folder(tmp_path, location):
    made = table_of_rows()
    table = made.graph.initializer[0]
    table.ClearField("float_data")
    table.ClearField("raw_data")
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=location)
    add(tmp_path, "outside", made)
    add(tmp_path, "plain", add_sub())
    (tmp_path / "outside/secret").write_bytes(bytes(40))
    with Server(OPTION, "--exit-on-error=false", repositories=[tmp_path]) as one:
        assert "names external data" in reasons(one)["outside"]
        assert infer(one, "plain", PLAIN)


def test_external_data_inside(tmp_path):
    made = table_of_rows()
    path = tmp_path / "inside/1/model.onnx/model.onnx"
    path.parent.mkdir(parents=True)
    made.graph.initializer[0].raw_data = np.arange(10, dtype=np.float32).tobytes()
    made.graph.initializer[0].ClearField("float_data")
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (path.parent / "weights.bin").exists()
    with Server(OPTION, repositories=[tmp_path]) as one:
        assert infer(one, "inside", {"I": np.array([[4]], np.int64)})["R"].tolist() == [[8, 9]]


def test_absurd_shapes(tmp_path):
    """A weight of 2^62 elements with 4 bytes, an input of more elements than can be, an output that no memory holds."""
    huge = table_of_rows()
    huge.graph.initializer[0].dims[:] = [1 << 31, 1 << 31]
    add(tmp_path, "weight", huge)
    add(tmp_path, "input", identity("FP32", [1 << 40, 1 << 40]))
    fill = helper.make_node("ConstantOfShape", ["S"], ["Y"])
    add(tmp_path, "output", model([fill], [value("S", "INT64", [2])], [value("Y", "FP32", ["a", "b"])]))
    add(tmp_path, "plain", add_sub())
    with Server(OPTION, "--exit-on-error=false", repositories=[tmp_path]) as one:
        assert reasons(one)["weight"]
        assert infer(one, "output", {"S": np.array([2, 3], np.int64)})["Y"].shape == (2, 3)
        large = [] if "asan" in str(PROA) else [[1 << 24, 1 << 24]]  # the sanitizer ends the process instead of throwing
        for shape in (*large, [1 << 40, 1 << 40], [-1, 5]):
            with pytest.raises(Exception, match="onnx runtime error"):
                infer(one, "output", {"S": np.array(shape, np.int64)})
        assert infer(one, "plain", PLAIN) and one.alive()
