# SPDX-License-Identifier: Apache-2.0
"""triton_python_backend_utils without a server: types, texts, DLPack's lifetimes, configurations, senders, calls."""
import asyncio
import gc
import json
import os
import struct
import sys

import numpy as np
import pytest
from wire import ROOT, VALUES

sys.path.insert(0, str(ROOT / "src/python/stub"))
import proa_tensor  # noqa: E402
import triton_python_backend_utils as pb  # noqa: E402


class Channel:
    """What the process's channel does, with a pipe in place of the socket: every call is answered by `copies` echoes."""

    def __init__(self, copies=1, error=None):
        self.said, self.coming, self.copies, self.error = [], [], copies, error
        self.read_end, self.write_end = os.pipe()

    def fileno(self):
        return self.read_end

    def pump(self):
        if self.coming:
            os.read(self.read_end, 1)
            on_reply, *what = self.coming.pop(0)
            on_reply(*what)

    def wait(self, done, timeout=None):
        while not done():
            assert self.coming, "it would wait for ever"
            self.pump()
        return True

    def infer(self, head, tensors, on_reply):
        self.said.append(("infer", head, tensors))
        last = not head["decoupled"]
        for _ in range(self.copies):
            self._later(on_reply, self.error or {}, tensors, last)
        if not last:
            self._later(on_reply, None, (), True)
        return len(self.said)

    def _later(self, *what):
        self.coming.append(what)
        os.write(self.write_end, b".")

    def infer_cancel(self, handle):
        self.said.append(("cancel", handle))

    def respond(self, *what):
        self.said.append(("respond", *what))

    def cancelled(self, number):
        return number == 13

    def call(self, kind, head, tensors=()):
        self.said.append((kind, head, tensors))
        return {"ready": True, "family": 4, "metric": 5, "value": 2.5}, ()

    def post(self, kind, head):
        self.said.append((kind, head))


@pytest.fixture
def channel():
    one = Channel()
    pb._attach(one)
    yield one
    pb._attach(None)


@pytest.fixture
def decoupled():
    one = Channel(copies=3)
    pb._attach(one, decoupled=True)
    yield one
    pb._attach(None)


def request(number=1, outputs=(), **head):
    return pb._request(number, {"outputs": list(outputs), **head}, [("A", "INT32", (2, ), np.array([1, 2], np.int32).data.cast("B"))])


def response(*names):
    return pb.InferenceResponse([pb.Tensor(name, np.array([1], np.int32)) for name in names])


# ---- types and texts ----


@pytest.mark.parametrize("name", VALUES)
def test_types_there_and_back(name):
    kind = proa_tensor.NUMPY_OF[name]
    number = pb.numpy_to_triton_type(kind)
    config = "TYPE_STRING" if name == "BYTES" else "TYPE_" + name
    assert pb.triton_to_numpy_type(number) is kind and pb.triton_string_to_numpy(config) is kind
    assert pb.Tensor("x", np.zeros(2, kind)).triton_dtype() == number


@pytest.mark.parametrize("unknown", ["TYPE_INVALID", "TYPE_BF16", "float", 0, 14, 99, -1])
def test_unknown_types(unknown):
    with pytest.raises(KeyError):
        pb.triton_to_numpy_type(unknown)


def test_numbers_of_the_protocol():
    assert [pb.numpy_to_triton_type(one) for one in (np.bool_, np.uint8, np.int64, np.float16, np.float64, np.object_, np.bytes_)] == \
        [1, 2, 9, 10, 12, 13, 13]
    with pytest.raises(pb.TritonModelException):
        pb.Tensor("x", np.zeros(2, np.complex64))


def test_framing_of_texts():
    array = np.array([["a", b"\xff\x00"], ["ö", 12]], dtype=np.object_)
    framed = pb.serialize_byte_tensor(array)
    assert framed == b"\1\0\0\0a\2\0\0\0\xff\0\2\0\0\0\xc3\xb6\2\0\0\00012"
    assert pb.deserialize_bytes_tensor(framed).tolist() == [b"a", b"\xff\0", "ö".encode(), b"12"]
    assert pb.serialize_byte_tensor(np.array([b"ab", b"c"])) == b"\2\0\0\0ab\1\0\0\0c"
    assert pb.serialize_byte_tensor(np.zeros(3)) is None and pb.deserialize_bytes_tensor(b"").shape == (0, )


@pytest.mark.parametrize("broken", [b"\1", b"\1\0\0\0", b"\2\0\0\0a", b"\1\0\0\0ab", struct.pack("<I", 2**32 - 1)])
def test_broken_framing(broken):
    with pytest.raises(pb.TritonModelException):
        pb.deserialize_bytes_tensor(broken)


def test_shape_and_bytes_must_agree():
    for datatype, shape, buffer in (("INT32", (3, ), b"\0" * 8), ("BYTES", (2, ), b"\0\0\0\0")):
        with pytest.raises(pb.TritonModelException):
            pb.Tensor._from_wire("x", datatype, shape, buffer).as_numpy()


@pytest.mark.parametrize("array", [np.arange(6, dtype=np.int32).reshape(2, 3).T, np.arange(6, dtype=">i4"), np.float32(3) * np.ones(()),
                                   np.arange(8, dtype=np.float64)[::-2]])
def test_arrays_of_any_order(array):
    name, datatype, shape, data = pb.Tensor("x", array)._wire()
    assert (np.frombuffer(data.tobytes(), proa_tensor.NUMPY_OF[datatype]).reshape(shape) == array).all()


# ---- DLPack ----


@pytest.mark.parametrize("name", [one for one in VALUES if one != "BYTES"])
def test_dlpack_shares_memory_and_gives_it_back(name):
    array = np.ones((2, 3), proa_tensor.NUMPY_OF[name])
    tensor = pb.Tensor("x", array)
    theirs, ours = np.from_dlpack(tensor), pb.Tensor.from_dlpack("y", tensor.to_dlpack())
    assert theirs.ctypes.data == ours.as_numpy().ctypes.data == array.ctypes.data and ours.triton_dtype() == tensor.triton_dtype()
    view = ours.as_numpy()[1:]
    del theirs, ours
    gc.collect()
    assert proa_tensor._lent and view.sum() == 3
    del view
    tensor.to_dlpack()  # a capsule that nobody takes
    gc.collect()
    assert not proa_tensor._lent


def test_dlpack_is_used_once():
    capsule = pb.Tensor("x", np.ones(2)).to_dlpack()
    pb.Tensor.from_dlpack("y", capsule)
    with pytest.raises(pb.TritonModelException):
        pb.Tensor.from_dlpack("z", capsule)


def test_dlpack_of_bf16_and_of_nothing():
    half = pb.Tensor._from_wire("x", "BF16", (2, ), b"\x80\x3f\x00\x40")
    back = pb.Tensor.from_dlpack("y", half)
    assert (back.triton_dtype(), back.shape(), bytes(back._wire()[3])) == (14, [2], b"\x80\x3f\x00\x40")
    with pytest.raises(pb.TritonModelException):
        half.as_numpy()
    assert pb.Tensor.from_dlpack("z", pb.Tensor("e", np.zeros((0, 4))).to_dlpack()).as_numpy().shape == (0, 4)
    assert pb.Tensor.from_dlpack("z", pb.Tensor("s", np.ones(()))).shape() == []
    with pytest.raises(pb.TritonModelException):
        pb.Tensor("t", np.array([b"text"], dtype=np.object_)).to_dlpack()


class OnOther:
    """A tensor on a device that is neither the CPU nor a GPU of NVIDIA's."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (8, 0)

    def __dlpack__(self):
        capsule = pb.Tensor("x", self.array).to_dlpack()
        proa_tensor._DLManagedTensor.from_address(proa_tensor._capsule_pointer(capsule, b"dltensor")).tensor.device.kind = 8
        return capsule


def test_dlpack_of_other_devices():
    with pytest.raises(pb.TritonModelException, match="DLDevice type 8 is not support by Python backend."):
        pb.Tensor.from_dlpack("y", OnOther(np.array([1, 2], np.float32)))


# ---- requests and responses ----


def test_what_a_request_is_made_of(channel):
    one = pb.InferenceRequest("id", 3, [pb.Tensor("A", np.zeros(1))], ["B"], "m", 2, 1, 50, parameters={"k": True})
    assert (one.request_id(), one.correlation_id(), one.requested_output_names(), one.model_name(), one.model_version(), one.flags(),
            one.timeout(), one.parameters()) == ("id", 3, {"B"}, "m", 2, 1, 50, '{"k": true}')
    one.set_flags(2)
    one.exec()
    head = channel.said[0][1]
    assert head == {"model": "m", "version": 2, "decoupled": False, "parent": 0, "id": "id", "correlation_id": 3, "flags": 2, "timeout": 50,
                    "parameters": {"k": True}, "outputs": ["B"]}
    assert request(13).is_cancelled() and not request(1).is_cancelled() and not one.is_cancelled()


@pytest.mark.parametrize("wrong", [{"inputs": [None]}, {"requested_output_names": [""]}, {"parameters": 3}, {"parameters": {"k": []}}, {"parameters": {1: "v"}}])
def test_requests_that_cannot_be_made(wrong):
    with pytest.raises(pb.TritonModelException):
        pb.InferenceRequest(model_name="m", **wrong)


def test_errors():
    assert [pb.TritonError("x", code).code() for code in (pb.TritonError.UNKNOWN, pb.TritonError.CANCELLED)] == [0, 7]
    error = pb.TritonError("text")
    assert (error.code(), error.message(), str(error)) == (pb.TritonError.INTERNAL, "text", "text")
    assert pb._response(pb.InferenceResponse(error=pb.TritonError("x", pb.TritonError.NOT_FOUND))) == ({"error": "x", "code": 5}, ())
    with pytest.raises(pb.TritonModelException):
        pb.TritonError("x", 8)
    with pytest.raises(TypeError):
        pb.InferenceResponse(error="x")
    with pytest.raises(pb.TritonModelException):
        pb.InferenceResponse([None])


def test_outputs_that_were_asked_for():
    assert [one[0] for one in pb._response(response("A", "B", "C"), ["C", "A"])[1]] == ["A", "C"]
    assert [one[0] for one in pb._response(response("A", "B"), [])[1]] == ["A", "B"]


def test_sender_of_one_response(channel):
    sender = request(7, ["B"]).get_response_sender()
    with pytest.raises(pb.TritonModelException, match="before sending a response"):
        sender.send(flags=1)
    sender.send(response("A", "B"))
    with pytest.raises(pb.TritonModelException, match="more than one response"):
        sender.send(response("B"))
    sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with pytest.raises(pb.TritonModelException, match="has been closed"):
        sender.send(response("B"), 1)
    assert [(one[0], one[1], len(one[3]), one[4]) for one in channel.said] == [("respond", 7, 1, True)]


def test_sender_of_many(decoupled):
    sender = request(7).get_response_sender()
    with pytest.raises(pb.TritonModelException, match="must be provided"):
        sender.send()
    with pytest.raises(pb.TritonModelException, match="Unsupported flag"):
        sender.send(response("A"), 2)
    with pytest.raises(TypeError):
        sender.send("A")
    sender.send(response("A"))
    sender.send(response("A"), 1)
    assert [one[4] for one in decoupled.said] == [False, True] and not sender.is_cancelled()


def test_sender_that_is_let_go(channel, decoupled):
    one = request(7)
    one.get_response_sender()
    gc.collect()
    assert not decoupled.said  # the request can still be asked for it
    del one
    assert decoupled.said == [("respond", 7, None, (), True)]
    pb._attach(channel)
    request(8).get_response_sender()
    assert channel.said[0][2]["error"] and channel.said[0][4]


def test_release_flags(channel):
    one = request()
    one.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    assert one._rescheduled
    with pytest.raises(pb.TritonModelException):
        one.set_release_flags(3)


# ---- calls ----


def numbers(reply):
    return pb.get_output_tensor_by_name(reply, "A").as_numpy().tolist()


def call():
    return pb.InferenceRequest(model_name="m", inputs=[pb.Tensor("A", np.array([1, 2]))])


def test_calls_that_wait(channel):
    assert numbers(call().exec()) == [1, 2]
    assert pb.get_output_tensor_by_name(call().exec(), "B") is None
    channel.error = {"error": "no", "code": 14}
    reply = call().exec()
    assert reply.has_error() and (reply.error().message(), reply.error().code()) == ("no", pb.TritonError.UNAVAILABLE)


def test_calls_of_coroutines(channel):

    async def work():
        return [numbers(one) for one in await asyncio.gather(*[call().async_exec() for _ in range(4)])]

    assert asyncio.run(work()) == [[1, 2]] * 4 and len(channel.said) == 4
    assert asyncio.run(work()) == [[1, 2]] * 4  # in another loop


def test_calls_with_many_responses(decoupled):

    async def work():
        return [numbers(one) async for one in await call().async_exec(decoupled=True)]

    assert [numbers(one) for one in call().exec(decoupled=True)] == [[1, 2]] * 3
    assert asyncio.run(work()) == [[1, 2]] * 3


def test_calls_that_are_given_up(decoupled):

    async def work():
        future = call().async_exec()
        future.cancel()
        await asyncio.sleep(0)

    iterator = call().exec(decoupled=True)
    next(iterator)
    iterator.cancel()
    list(iterator)
    iterator.cancel()  # it has ended
    assert [one for one in decoupled.said if one[0] == "cancel"] == [("cancel", 1)]
    asyncio.run(work())
    assert decoupled.said[-1][0] == "cancel"


# ---- control, metrics ----


def test_control(channel):
    pb.load_model("m", config="{}", files={"file:1/model.py": b"x = 1"})
    pb.unload_model("m", True)
    assert pb.is_model_ready("m", 2) is True
    assert channel.said == [
        ("load", {"model": "m", "config": "{}", "files": ["file:1/model.py"]}, [("file:1/model.py", "UINT8", (5, ), b"x = 1")]),
        ("unload", {"model": "m", "dependents": True}, ()),
        ("ready", {"model": "m", "version": "2"}, ()),
    ]


def test_metrics(channel):
    family = pb.MetricFamily("n", "d", pb.MetricFamily.HISTOGRAM)
    with pytest.raises(pb.TritonModelException):
        family.Metric(labels={})
    metric = family.Metric(labels={"a": 1}, buckets=[1, 2])
    metric.observe(1)
    with pytest.raises(pb.TritonModelException, match="TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set"):
        metric.set(1)
    counter = pb.MetricFamily("c", "d", pb.MetricFamily.COUNTER).Metric()
    with pytest.raises(pb.TritonModelException):
        counter.increment(-1)
    assert counter.value() == 2.5
    assert ("metric", {"family": 4, "labels": {"a": "1"}, "buckets": [1.0, 2.0]}, ()) in channel.said
    del metric, counter, family
    gc.collect()
    assert [one[0] for one in channel.said].count("metric_free") == 2


def test_without_a_server():
    for work in (lambda: pb.load_model("m"), lambda: call().exec(), lambda: pb.MetricFamily("n", "d", 0)):
        with pytest.raises(pb.TritonModelException):
            work()


# ---- configuration ----

CONFIG = {"name": "m", "max_batch_size": 4, "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": ["4"]}, {"name": "B"}]}


def completed(work, config=None):

    class Model:

        @staticmethod
        def auto_complete_config(it):
            return work(it) or it

    return json.loads(pb._auto_complete(Model, json.dumps(config or CONFIG)))


def test_completion():

    def work(config):
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_input({"name": "B", "data_type": "TYPE_INT32", "dims": [1], "optional": True})
        config.add_output({"name": "O", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": True})

    made = completed(work)
    assert made["max_batch_size"] == 8 and made["dynamic_batching"] == {} and made["model_transaction_policy"] == {"decoupled": True}
    assert [one["name"] for one in made["input"]] == ["A", "B"] and made["input"][1]["data_type"] == "TYPE_INT32"
    assert pb.using_decoupled_model_transaction_policy(made) and not pb.using_decoupled_model_transaction_policy(CONFIG)
    assert pb.get_output_config_by_name(made, "O")["dims"] == [1] and pb.get_input_config_by_name(made, "O") is None
    assert "dynamic_batching" not in completed(lambda config: config.set_dynamic_batching(), {"name": "m", "sequence_batching": {}})


@pytest.mark.parametrize("work, text", [
    (lambda config: config.set_max_batch_size(2), "configuration specified max_batch_size 4"),
    (lambda config: config.add_input({"data_type": "TYPE_FP32", "dims": [1]}), "is missing 'name' property."),
    (lambda config: config.add_input({"name": "X", "dims": [1]}), "is missing 'data_type' property."),
    (lambda config: config.add_output({"name": "X", "data_type": "TYPE_FP32"}), "is missing 'dims' property."),
    (lambda config: config.add_output({"name": "X", "data_type": "TYPE_FP32", "dims": [1], "optional": True}), "contains property 'optional'"),
    (lambda config: config.add_input({"name": "A", "data_type": "TYPE_INT8", "dims": [4]}), "expects datatype TYPE_FP32 for input 'A'"),
    (lambda config: config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [5]}), "the model expects dims [5]"),
    (lambda config: config.set_model_transaction_policy({"other": 1}), "other than 'decoupled'"),
])
def test_completion_that_clashes(work, text):
    with pytest.raises(ValueError) as caught:
        completed(work)
    assert text in str(caught.value)


def test_completion_without_a_result():
    with pytest.raises(pb.TritonModelException, match="must return a valid pb.ModelConfig object"):
        completed(lambda config: 3)
    assert json.loads(pb._auto_complete(object, '{"name": "m"}')) == {"name": "m"}
