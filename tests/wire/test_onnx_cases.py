# SPDX-License-Identifier: Apache-2.0
"""The backend tests of the package onnx: each node test, and each model that the package holds, gives through `infer` what
ONNX Runtime's own Python package gives, over HTTP and gRPC. Models that requests cannot carry (sequences, optional values,
types that KServe does not have) are refused by one line. What ONNX Runtime itself cannot load or run is not tested."""
import collections
import concurrent.futures
import ctypes
import pathlib
import re
import warnings

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import np_to_triton_dtype
from wire import Server

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
import onnx.backend.test.loader as loader  # noqa: E402
from onnx import numpy_helper  # noqa: E402

LIBRARY = max((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
REFUSED = re.compile(r"of the model (is a sequence|is an optional value|is a map|is a sparse tensor|has elements of type \w+), "
                     r"which requests of inference cannot carry")
RANDOM = re.compile("bernoulli|random|multinomial|training_dropout")  # outputs that differ from run to run

Case = collections.namedtuple("Case", "name content feeds expected")


def array_of(value):
    """A numpy array, or None for what is none: a sequence, an absent optional value."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None


def model_files():
    """(name, path of the model, path of a folder with data or None) of the package's data."""
    data = pathlib.Path(loader.DATA_DIR)
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for test in loader.load_model_tests(kind=kind):
            folder = pathlib.Path(test.model_dir)
            yield f"{kind}-{test.name}", folder / "model.onnx", folder / "test_data_set_0"
    for path in sorted((data / "light").glob("*.onnx")):
        yield path.stem, path, None


def data_of(folder, kind):
    tensors = []
    for path in sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1])):
        try:
            tensors.append(onnx.load_tensor(path))
        except Exception:  # noqa: BLE001 # a sequence or an optional value
            tensors.append(None)
    return tensors


def dummies(model):
    """Inputs of the models of the folder light: values from 0 to 1, as the package's own runner makes them."""
    values = []
    held = {i.name for i in model.graph.initializer}
    for entry in model.graph.input:
        if entry.name not in held:
            shape = [d.dim_value for d in entry.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            values.append((np.arange(count, dtype=np.float32) / count).reshape(shape))
    return values


def all_models():
    """(name, ModelProto, inputs in the graph's order)"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = loader.load_node_model_tests()
    for test in nodes:
        for i, (inputs, _) in enumerate(test.data_sets):
            yield f"node-{test.name}-{i}" if i else f"node-{test.name}", test.model, inputs
    for name, path, folder in model_files():
        model = onnx.load(path)
        yield name, model, data_of(folder, "input") if folder else dummies(model)


def run_python(content, inputs):
    """(feeds, outputs) of ONNX Runtime's Python package; None: it cannot load or run the model. With inputs or outputs that
    are no arrays: feeds is None, the model is loaded only."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        arrays = [array_of(value) for value in inputs]
        kinds = [t.type for t in (*session.get_inputs(), *session.get_outputs())]
        if any(not kind.startswith("tensor(") or re.search("float8|float4|int4|complex|int2", kind) for kind in kinds):
            return None, None
        if any(a is None for a in arrays):
            return None
        feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays)}
        given = {k: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(v.view(np.uint16), onnx.TensorProto.BFLOAT16)
                 if v.dtype.name == "bfloat16" else v for k, v in feeds.items()}
        names = [o.name for o in session.get_outputs()]
        if any("bfloat16" in kind for kind in kinds):
            given = {k: v if isinstance(v, onnxruntime.OrtValue) else onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in given.items()}
            return feeds, dict(zip(names, session.run_with_ort_values(names, given)))
        return feeds, dict(zip(names, session.run(names, given)))
    except Exception:  # noqa: BLE001 # it is not the test's matter why
        return None


def prepare(case):
    name, model, inputs = case
    content = model.SerializeToString()
    result = run_python(content, inputs)
    return result and Case(name, content, *result)


@pytest.fixture(scope="module")
def cases():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [case for case in pool.map(prepare, all_models()) if case]


@pytest.fixture(scope="module")
def server(cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    for case in cases:
        place = folder / case.name / "1"
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(case.content)
        (folder / case.name / "config.pbtxt").write_text(ONE)
    with Server(f"--backend-config=onnxruntime,library={LIBRARY}", "--backend-config=onnxruntime,default-max-batch-size=0",
                "--backend-config=onnxruntime,enable-global-threadpool=1", "--backend-config=onnxruntime,intra_op_thread_count=1",
                "--exit-on-error=false", repositories=[folder]) as one:
        yield one


@pytest.fixture(scope="module")
def reasons(server):
    return {m["name"]: m.get("reason", "") for m in requests.post(server.url("/v2/repository/index"), json={}, timeout=60).json()}


def strings(array):
    return np.vectorize(lambda s: s if isinstance(s, bytes) else str(s).encode(), otypes=[object])(array) if array.size else array.astype(object)


def request_of(protocol, case):
    tensors = []
    for name, data in case.feeds.items():
        data = data.reshape(1) if data.ndim == 0 else data
        if data.dtype.kind in "OUS":
            data = strings(data)
        tensors.append(protocol.InferInput(name, data.shape, np_to_triton_dtype(data.dtype)))
        tensors[-1].set_data_from_numpy(data)
    return tensors


def difference(case, result):
    """What of the answer is not as expected; None: all is."""
    for name, want in case.expected.items():
        got = result.as_numpy(name)
        if got is None:
            return f"{name} is missing"
        if isinstance(want, onnxruntime.OrtValue):
            if got.astype(np.float32).tobytes() != bf16_values(want).tobytes():
                return f"{name} differs"
            continue
        want = np.asarray(want)
        want = strings(want) if want.dtype.kind in "OUS" else want
        if got.shape != (want.shape or (1,)) or got.dtype != want.dtype:
            return f"{name} is {got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
        if not RANDOM.search(case.name) and not np.array_equal(got, want.reshape(got.shape), equal_nan=want.dtype.kind == "f"):
            return f"{name} differs"
    return None


def bf16_values(value):
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy().astype(np.float32)
    count = int(np.prod(value.shape()))
    bits = np.ctypeslib.as_array(ctypes.cast(value.data_ptr(), ctypes.POINTER(ctypes.c_uint16)), (count,))
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("protocol", [http, grpc], ids=["http", "grpc"])
def test_each_case_gives_what_the_python_package_gives(cases, server, reasons, protocol):
    wrong, ran = {}, 0
    with protocol.InferenceServerClient(server.http if protocol is http else server.grpc) as client:
        for case in cases:
            if case.feeds is None:
                continue
            ran += 1
            if reasons[case.name]:
                wrong[case.name] = reasons[case.name]
                continue
            try:
                why = difference(case, client.infer(case.name, request_of(protocol, case)))
            except Exception as error:  # noqa: BLE001 # all of them are shown together
                why = str(error)
            if why:
                wrong[case.name] = why
    assert not wrong, f"{len(wrong)} of {ran}: {wrong}"
    print(f"{ran} cases")
    assert ran > 1500


def test_what_requests_cannot_carry_is_refused_by_one_line(cases, server, reasons):
    refused = [case.name for case in cases if case.feeds is None]
    wrong = {name: reasons[name] for name in refused if not REFUSED.search(reasons[name]) or "\n" in reasons[name]}
    assert not wrong and len(refused) > 20
    print(f"{len(refused)} refused")
