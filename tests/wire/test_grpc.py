# SPDX-License-Identifier: Apache-2.0
"""gRPC by Triton's own client: every operation, datatype, form of data and refusal; unary calls."""
import asyncio
import queue
import struct
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException
from wire import VALUES, identity_of, values_of

SIZES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2, "UINT32": 4, "INT32": 4, "FP32": 4,
         "UINT64": 8, "INT64": 8, "FP64": 8}


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(server.grpc) as one:
        yield one


@pytest.fixture(scope="module")
def stub(server):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(array, name="INPUT0", datatype="FP32"):
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def floats(*values):
    return tensor(np.array([values], dtype=np.float32))


def request(model, datatype="FP32", shape=(1, 1), raw=b"\0\0\0\0", **fields):
    """A message by hand, for what the client does not write."""
    made = pb.ModelInferRequest(model_name=model, **fields)
    one = made.inputs.add(name="INPUT0", datatype=datatype)
    one.shape.extend(shape)
    if raw is not None:
        made.raw_input_contents.append(raw)
    return made


def refused(call, code, text):
    with pytest.raises((InferenceServerException, grpc.RpcError)) as caught:
        call()
    error = caught.value
    if isinstance(error, grpc.RpcError):
        found = error.code().name, error.details()
    else:
        found = error.status().removeprefix("StatusCode."), error.message()
    assert found[0] == code and text in found[1], found


# ---- what the server says of itself ----


def test_health(client, server):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("simple") and client.is_model_ready("simple", "1")
    refused(lambda: client.is_model_ready("none"), "NOT_FOUND", "Request for unknown model: 'none' is not found")
    refused(lambda: client.is_model_ready("simple", "9"), "NOT_FOUND", "'simple' version 9 is not found")
    refused(lambda: client.is_model_ready("simple", "x"), "INVALID_ARGUMENT", "should be an integral value > 0")
    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"  # SERVING
        refused(lambda: channel.unary_unary("/grpc.health.v1.Health/Watch")(b""), "UNIMPLEMENTED", "unknown method")
        refused(lambda: channel.unary_unary("/no.Such/Thing")(b""), "UNIMPLEMENTED", "unknown method '/no.Such/Thing'")


def test_metadata(client):
    about = client.get_server_metadata()
    assert about.name == "triton" and "model_repository" in about.extensions and "statistics" in about.extensions
    model = client.get_model_metadata("simple")
    assert (model.name, list(model.versions)) == ("simple", ["1"])
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [("INPUT0", "INT32", [-1, 16]), ("INPUT1", "INT32", [-1, 16])]
    config = client.get_model_config("simple").config
    assert config.max_batch_size == 8 and config.input[0].dims == [16]
    assert "simple" in [m.name for m in client.get_model_repository_index().models]
    refused(lambda: client.get_model_metadata("none"), "NOT_FOUND", "Request for unknown model: 'none' is not found")
    refused(lambda: client.get_model_config("simple", "7"), "NOT_FOUND", "version 7")


def test_statistics(client):
    def counts():
        one = client.get_inference_statistics("identity_int16").model_stats[0]
        return one.inference_count, one.inference_stats.success.count, one.inference_stats.fail.count

    before = counts()
    for _ in range(3):
        client.infer("identity_int16", [tensor(np.zeros((2, 4), np.int16), datatype="INT16")])
    inferences, success, fail = (after - was for after, was in zip(counts(), before))
    assert (inferences, success, fail) == (6, 3, 0)
    assert len(client.get_inference_statistics().model_stats) > 10
    refused(lambda: client.get_inference_statistics("none"), "INVALID_ARGUMENT", "requested model 'none' is not available")


# ---- inference ----


@pytest.mark.parametrize("datatype", sorted(VALUES))
def test_datatypes(client, datatype):
    values = values_of(datatype)
    for shape in [(1, len(values)), (len(values), 1)]:
        array = values.reshape(shape)
        answer = client.infer(identity_of(datatype), [tensor(array, datatype=datatype)]).as_numpy("OUTPUT0")
        assert answer.shape == shape
        assert answer.tolist() == array.tolist()


@pytest.mark.parametrize("datatype", sorted(SIZES))
def test_bytes_pass_through(stub, datatype):
    raw = bytes(i * 37 % 2 if datatype == "BOOL" else i * 37 % 256 for i in range(6 * SIZES[datatype]))
    answer = stub.ModelInfer(request(identity_of(datatype), datatype, (2, 3), raw, id="7"))
    assert answer.raw_output_contents[0] == raw
    assert (answer.id, answer.model_name, answer.model_version) == ("7", identity_of(datatype), "1")
    assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == (datatype, [2, 3])
    assert len(answer.raw_output_contents) == 1 and not answer.outputs[0].HasField("contents")


TYPED = [
    ("BOOL", "bool_contents", [True, False, True], "3?"), ("INT8", "int_contents", [-128, 0, 127], "3b"),
    ("INT16", "int_contents", [-32768, 0, 32767], "3h"), ("INT32", "int_contents", [-(2**31), 0, 2**31 - 1], "3i"),
    ("INT64", "int64_contents", [-(2**63), 0, 2**63 - 1], "3q"), ("UINT8", "uint_contents", [0, 1, 255], "3B"),
    ("UINT16", "uint_contents", [0, 1, 65535], "3H"), ("UINT32", "uint_contents", [0, 1, 2**32 - 1], "3I"),
    ("UINT64", "uint64_contents", [0, 1, 2**64 - 1], "3Q"), ("FP32", "fp32_contents", [0.5, -1, 1e30], "3f"),
    ("FP64", "fp64_contents", [0.1, -1, 1e300], "3d"),
]


@pytest.mark.parametrize("datatype, field, values, form", TYPED, ids=[row[0] for row in TYPED])
def test_typed_contents(stub, datatype, field, values, form):
    asked = request(identity_of(datatype), datatype, (1, 3), raw=None)
    getattr(asked.inputs[0].contents, field).extend(values)
    assert stub.ModelInfer(asked).raw_output_contents[0] == struct.pack("<" + form, *values)


def test_typed_strings(stub):
    asked = request("identity_bytes", "BYTES", (1, 3), raw=None)
    asked.inputs[0].contents.bytes_contents.extend([b"ab", b"", b"\0\xff"])
    assert stub.ModelInfer(asked).raw_output_contents[0] == b"\2\0\0\0ab\0\0\0\0\2\0\0\0\0\xff"


@pytest.mark.parametrize("elements", [0, 1, 15, 1000, 4096, 70_000, 6_000_000])
def test_sizes(client, elements):
    array = np.arange(elements, dtype=np.float32).reshape(1, elements)
    answer = client.infer("identity_fp32", [tensor(array)]).as_numpy("OUTPUT0")
    assert np.array_equal(answer, array) and answer.shape == array.shape


def test_add_sub(client):
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.full((1, 16), 3, np.int32)
    inputs = [tensor(a, "INPUT0", "INT32"), tensor(b, "INPUT1", "INT32")]
    answer = client.infer("simple", inputs, request_id="an id", model_version="1")
    assert np.array_equal(answer.as_numpy("OUTPUT0"), a + b) and np.array_equal(answer.as_numpy("OUTPUT1"), a - b)
    assert answer.get_response().id == "an id"
    one = client.infer("simple", inputs, outputs=[triton.InferRequestedOutput("OUTPUT1")])
    assert one.as_numpy("OUTPUT0") is None and np.array_equal(one.as_numpy("OUTPUT1"), a - b)
    best = client.infer("simple", inputs, outputs=[triton.InferRequestedOutput("OUTPUT0", class_count=2)])
    assert best.as_numpy("OUTPUT0").tolist() == [[b"18:15", b"17:14"]]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(server, start, client, algorithm):
    array = np.zeros((1, 100_000), np.float32)
    answer = client.infer("identity_fp32", [tensor(array)], compression_algorithm=algorithm)
    assert np.array_equal(answer.as_numpy("OUTPUT0"), array)
    if algorithm == "gzip":
        packing = start("--grpc-infer-response-compression-level=high")
        with triton.InferenceServerClient(packing.grpc) as other:
            answer = other.infer("identity_fp32", [tensor(array)], compression_algorithm=algorithm)
            assert np.array_equal(answer.as_numpy("OUTPUT0"), array)


def test_parameters(client):
    assert client.infer("identity_fp32", [floats(1)], priority=2, timeout=10_000_000,
                        parameters={"text": "x", "flag": True, "number": 3}).as_numpy("OUTPUT0")[0, 0] == 1


def test_sequence(client):
    got = []
    for i, value in enumerate([5, 7, 9]):
        one = tensor(np.array([[value]], np.int32), "INPUT", "INT32")
        answer = client.infer("simple_sequence", [one], sequence_id=77, sequence_start=i == 0, sequence_end=i == 2)
        got.append(int(answer.as_numpy("OUTPUT")[0, 0]))
    assert got == [6, 7, 9]  # INPUT + START
    text = "inference request for sequence 78 to model 'simple_sequence' must specify the START flag"
    refused(lambda: client.infer("simple_sequence", [tensor(np.array([[1]], np.int32), "INPUT", "INT32")], sequence_id=78),
            "INVALID_ARGUMENT", text)


# ---- refusals ----


def no_data():
    return request("identity_fp32", raw=None)


def both_kinds():
    made = request("identity_fp32")
    made.inputs[0].contents.fp32_contents.append(1)
    return made


def wrong_field():
    made = request("identity_fp32", raw=None)
    made.inputs[0].contents.int_contents.append(1)
    return made


def two_inputs():
    made = request("identity_fp32")
    made.inputs.add(name="INPUT1", datatype="FP32").shape.extend([1, 1])
    made.raw_input_contents.append(b"1234")
    return made


def parameter(name, **value):
    made = request("identity_fp32")
    made.parameters[name].MergeFrom(pb.InferParameter(**value))
    return made


def class_parameter(model="identity_fp32", **value):
    made = request(model)
    made.outputs.add(name="OUTPUT0").parameters["classification"].MergeFrom(pb.InferParameter(**value))
    return made


REFUSALS = [
    (request("none"), "NOT_FOUND", "Request for unknown model: 'none' is not found"),
    (request("identity_fp32", model_version="x"), "INVALID_ARGUMENT",
     "failed to get model version from specified version string 'x'"),
    (request("identity_fp32", model_version="9"), "NOT_FOUND", "'identity_fp32' version 9 is not found"),
    (pb.ModelInferRequest(model_name="identity_fp32", id="q"), "INVALID_ARGUMENT",
     "[request id: q] expected 1 inputs but got 0 inputs for model 'identity_fp32'"),
    (request("identity_fp32", "INT32"), "INVALID_ARGUMENT",
     "inference input 'INPUT0' data-type is 'INT32', but model 'identity_fp32' expects 'FP32'"),
    (request("identity_fp32", shape=(65, 1), raw=bytes(260)), "INVALID_ARGUMENT",
     "inference request batch-size must be <= 64 for 'identity_fp32'"),
    (request("identity_fp32", raw=b"123"), "INVALID_ARGUMENT",
     "input byte size mismatch for input 'INPUT0' for model 'identity_fp32'. Expected 4, got 3"),
    (request("simple", "INT32", (1, 17), bytes(68)), "INVALID_ARGUMENT", "for model 'simple'"),
    (two_inputs(), "INVALID_ARGUMENT", "expected 1 inputs but got 2 inputs for model 'identity_fp32'"),
    (no_data(), "INVALID_ARGUMENT", "unable to find data for input tensor 'INPUT0' for model 'identity_fp32' in request."),
    (both_kinds(), "INVALID_ARGUMENT",
     "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'identity_fp32'"),
    (wrong_field(), "INVALID_ARGUMENT", "unexpected explicit tensor data for input tensor 'INPUT0' for model "
     "'identity_fp32' of type 'INT32', expected datatype 'FP32'"),
    (parameter("sequence_id", bool_param=True), "INVALID_ARGUMENT",
     "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
    (parameter("priority", string_param="x"), "INVALID_ARGUMENT",
     "invalid value type for 'priority' parameter, expected int64_param or uint64_param."),
    (parameter("triton_x", bool_param=True), "INVALID_ARGUMENT",
     "parameter keys starting with 'triton_' are reserved for Triton usage."),
    (class_parameter(int64_param=0), "INVALID_ARGUMENT", "invalid value for 'classification' parameter, expected >= 0"),
    (class_parameter(bool_param=True), "INVALID_ARGUMENT",
     "invalid value type for 'classification' parameter, expected int64_param"),
    (request("repeat_int32"), "UNIMPLEMENTED", "ModelInfer RPC doesn't support models with decoupled transaction policy"),
]


@pytest.mark.parametrize("asked, code, text", REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(stub, asked, code, text):
    refused(lambda: stub.ModelInfer(asked), code, text)


def test_not_a_message(server):
    with grpc.insecure_channel(server.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        refused(lambda: infer(b"\x0a\xff"), "INVALID_ARGUMENT", "the message is not a ModelInferRequest")
        config = channel.unary_unary("/inference.GRPCInferenceService/ModelConfig")
        refused(lambda: config(b"\x0a\xff"), "INVALID_ARGUMENT", "the message is not a ModelConfigRequest")
        refused(lambda: config(bytes(2 << 20)), "RESOURCE_EXHAUSTED", "Received message larger than max (2097152 vs. 1048576)")


# ---- control, shared memory, settings ----


def test_control(start):
    explicit = start("--model-control-mode=explicit", "--load-model=simple")
    with triton.InferenceServerClient(explicit.grpc) as client:
        assert client.is_model_ready("simple")
        client.load_model("identity_fp32")
        assert client.infer("identity_fp32", [floats(4)]).as_numpy("OUTPUT0")[0, 0] == 4
        client.unload_model("identity_fp32")
        refused(lambda: client.infer("identity_fp32", [floats(4)]), "NOT_FOUND", "identity_fp32")
        config = ('{"backend":"identity","max_batch_size":2,"input":[{"name":"INPUT0","data_type":"TYPE_FP32","dims":[-1]}],'
                  '"output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[-1]}]}')
        client.load_model("identity_fp32", config=config)
        assert client.get_model_config("identity_fp32").config.max_batch_size == 2
        client.load_model("brought", config=config, files={"file:1/model.bin": b"bytes"})
        assert client.infer("brought", [floats(5)]).as_numpy("OUTPUT0")[0, 0] == 5
        refused(lambda: client.load_model("no_such_model"), "INTERNAL",
                "failed to load 'no_such_model', failed to poll from model repository")
        stub = service_pb2_grpc.GRPCInferenceServiceStub(client._channel)
        named = pb.RepositoryModelLoadRequest(repository_name="r", model_name="simple")
        refused(lambda: stub.RepositoryModelLoad(named), "UNIMPLEMENTED", "'repository_name' specification is not supported")
        odd = pb.RepositoryModelLoadRequest(model_name="simple")
        odd.parameters["odd"].string_param = "x"
        refused(lambda: stub.RepositoryModelLoad(odd), "INVALID_ARGUMENT", "unrecognized load parameter 'odd'.")
        wrong = pb.RepositoryModelUnloadRequest(model_name="simple")
        wrong.parameters["unload_dependents"].string_param = "x"
        refused(lambda: stub.RepositoryModelUnload(wrong), "INVALID_ARGUMENT",
                "invalid value type for 'unload_dependents' parameter, expected bool_param.")


def test_control_is_explicit(client):
    text = "explicit model load / unload is not allowed if polling is enabled"
    refused(lambda: client.load_model("simple"), "UNAVAILABLE", text)
    refused(lambda: client.unload_model("simple"), "UNAVAILABLE", text)


def test_shared_memory_is_off(start):
    with triton.InferenceServerClient(start().grpc) as client:
        for call in [lambda: client.register_system_shared_memory("r", "/r", 4), client.unregister_system_shared_memory,
                     client.unregister_cuda_shared_memory]:
            refused(call, "UNIMPLEMENTED", "Client shared memory is disabled.")


def test_cuda_shared_memory(client):
    assert not client.get_cuda_shared_memory_status().regions
    refused(lambda: client.get_cuda_shared_memory_status("r"), "NOT_FOUND", "Unable to find cuda shared memory region: 'r'")
    refused(lambda: client.register_cuda_shared_memory("r", b"", 0, 4), "INVALID_ARGUMENT", "GPUs not supported")


def test_settings(client):
    trace = client.get_trace_settings().settings
    assert list(trace["trace_level"].value) == ["OFF"] and list(trace["trace_mode"].value) == ["triton"]
    refused(lambda: client.update_trace_settings("none"), "NOT_FOUND", "Request for unknown model: 'none' is not found")
    changed = client.update_log_settings({"log_verbose_level": 1}).settings
    assert changed["log_verbose_level"].uint32_param == 1
    assert client.update_log_settings({"log_verbose_level": 0}).settings["log_verbose_level"].uint32_param == 0
    refused(lambda: client.update_log_settings({"log_file": "x"}), "UNIMPLEMENTED", "log file location can not be updated")


def test_restricted(start):
    guarded = start("--grpc-restricted-protocol=inference,model-config:secret=word")
    with triton.InferenceServerClient(guarded.grpc) as client:
        text = "This protocol is restricted, expecting header 'triton-grpc-protocol-secret'"
        right, wrong = {"triton-grpc-protocol-secret": "word"}, {"triton-grpc-protocol-secret": "other"}
        refused(lambda: client.infer("identity_fp32", [floats(1)]), "UNAVAILABLE", text)
        refused(lambda: client.infer("identity_fp32", [floats(1)], headers=wrong), "UNAVAILABLE", text)
        assert client.infer("identity_fp32", [floats(1)], headers=right).as_numpy("OUTPUT0")[0, 0] == 1
        refused(lambda: client.get_model_config("simple"), "UNAVAILABLE", text)
        assert client.get_model_metadata("simple").name == "simple"


# ---- time ----


def test_deadline(client):
    refused(lambda: client.infer("identity_slow", [floats(1)], client_timeout=0.05), "DEADLINE_EXCEEDED", "")


def test_cancel_frees_the_queue(client):
    """identity_slow answers one request in 200 ms; those that are cancelled must not stand before the next."""
    answers = queue.Queue()
    before = client.get_inference_statistics("identity_slow").model_stats[0].execution_count
    waiting = [client.async_infer("identity_slow", [floats(i)], callback=lambda result, error: answers.put(error)) for i in range(20)]
    time.sleep(0.05)
    for call in waiting:
        call.cancel()
    assert client.infer("identity_slow", [floats(9)]).as_numpy("OUTPUT0")[0, 0] == 9
    assert client.get_inference_statistics("identity_slow").model_stats[0].execution_count - before <= 10
    assert sum(answers.get(timeout=60) is not None for _ in waiting) >= 10


def test_many_at_once(client):
    answers = queue.Queue()
    for i in range(2000):
        client.async_infer("identity_fp32", [floats(i)], callback=lambda result, error: answers.put((result, error)))
    seen = set()
    for _ in range(2000):
        result, error = answers.get(timeout=20)
        assert error is None
        seen.add(int(result.as_numpy("OUTPUT0")[0, 0]))
    assert seen == set(range(2000))


def test_aio(server):
    async def run():
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            assert await client.is_server_ready()
            assert (await client.get_model_config("simple")).config.max_batch_size == 8
            answers = await asyncio.gather(*(client.infer("identity_fp32", [floats(i)]) for i in range(200)))
            assert [int(a.as_numpy("OUTPUT0")[0, 0]) for a in answers] == list(range(200))
            with pytest.raises(InferenceServerException) as caught:
                await client.infer("none", [floats(1)])
            assert caught.value.status() == "StatusCode.NOT_FOUND"

    asyncio.run(run())
