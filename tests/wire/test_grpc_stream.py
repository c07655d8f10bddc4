# SPDX-License-Identifier: Apache-2.0
"""ModelStreamInfer: order, decoupled models, final responses, failures and their two forms, cancels."""
import asyncio
import queue
import threading
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from wire import executions, wait_until


class Stream:
    """A stream of Triton's client with its answers in a queue."""

    def __init__(self, url, **options):
        self.client = triton.InferenceServerClient(url)
        self.answers = queue.Queue()
        self.client.start_stream(callback=lambda result, error: self.answers.put((result, error)), **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream(cancel_requests=True)
        self.client.close()

    def ask(self, model, inputs, **options):
        self.client.async_stream_infer(model, inputs, **options)

    def next(self, seconds=60):
        result, error = self.answers.get(timeout=seconds)
        assert error is None, error
        return result.get_response()

    def next_error(self, seconds=60):
        result, error = self.answers.get(timeout=seconds)
        assert result is None
        return error


@pytest.fixture
def stream(server):
    with Stream(server.grpc) as one:
        yield one


def tensor(name, datatype, values):
    array = np.array(values, {"INT32": np.int32, "UINT32": np.uint32, "FP32": np.float32}[datatype])
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def floats(value):
    return [tensor("INPUT0", "FP32", [[value]])]


def repeat(values, delay_ms=0):
    return [tensor("IN", "INT32", values), tensor("DELAY", "UINT32", [delay_ms] * len(values)), tensor("WAIT", "UINT32", [0])]


def is_final(response):
    return response.parameters["triton_final_response"].bool_param


def test_order(stream):
    """One slow model before fast ones: answers come as the requests did."""
    for i in range(12):
        stream.ask("identity_slow" if i % 4 == 0 else "identity_fp32", floats(i), request_id=str(i))
    for i in range(12):
        response = stream.next()
        assert response.id == str(i) and is_final(response)


def test_decoupled(stream):
    stream.ask("repeat_int32", repeat([3, 1, 4, 1, 5]), request_id="pi")
    got = [stream.next() for _ in range(5)]
    assert [np.frombuffer(r.raw_output_contents[0], np.int32)[0] for r in got] == [3, 1, 4, 1, 5]
    assert all(r.id == "pi" and not is_final(r) for r in got)
    with pytest.raises(queue.Empty):
        stream.answers.get(timeout=0.2)


@pytest.mark.parametrize("values", [[1, 2], []])
def test_empty_final(stream, values):
    stream.ask("repeat_int32", repeat(values), request_id="e", enable_empty_final_response=True)
    got = [stream.next() for _ in range(len(values) + 1)]
    assert [is_final(r) for r in got] == [False] * len(values) + [True]
    assert got[-1].id == "e" and got[-1].model_name == "repeat_int32" and not got[-1].outputs


def test_decoupled_do_not_hold_up_others(stream):
    stream.ask("repeat_int32", repeat([1, 2, 3], delay_ms=300), request_id="slow")
    stream.ask("identity_fp32", floats(1), request_id="fast")
    assert stream.next().id == "fast"
    assert [stream.next().id for _ in range(3)] == ["slow"] * 3


def test_errors_leave_the_stream_open(stream):
    stream.ask("identity_slow", floats(1), request_id="before")
    stream.ask("none", floats(1), request_id="bad")
    stream.ask("identity_fp32", [tensor("INPUT0", "INT32", [[1]])], request_id="worse")
    stream.ask("identity_fp32", floats(2), request_id="after")
    assert stream.next().id == "before"
    assert "Request for unknown model: 'none' is not found" in stream.next_error().message()
    assert "data-type is 'INT32', but model 'identity_fp32' expects 'FP32'" in stream.next_error().message()
    assert stream.next().id == "after"


def test_error_names_its_request(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        (answer,) = stub.ModelStreamInfer(iter([pb.ModelInferRequest(model_name="none", id="x")]))
        assert "unknown model" in answer.error_message
        assert answer.infer_response.id == "x" and not answer.infer_response.outputs


def test_grpc_error(server):
    with Stream(server.grpc, headers={"triton_grpc_error": "true"}) as stream:
        stream.ask("identity_fp32", floats(1), request_id="good")
        assert stream.next().id == "good"
        stream.ask("none", floats(1), request_id="bad")
        assert stream.next_error().status() == "StatusCode.NOT_FOUND"


def test_many_requests(stream):
    """More than the server takes from one stream at once: the rest waits with the client."""
    count = 3000
    sender = threading.Thread(target=lambda: [stream.ask("identity_fp32", floats(i), request_id=str(i)) for i in range(count)])
    sender.start()
    for i in range(count):
        assert stream.next(20).id == str(i)
    sender.join()


def test_sequences_side_by_side(stream):
    for step in range(3):
        for number in (1001, 1002):
            stream.ask("simple_sequence", [tensor("INPUT", "INT32", [[number * (step + 1)]])], request_id=f"{number}.{step}",
                       sequence_id=number, sequence_start=step == 0, sequence_end=step == 2)
    got = [stream.next().id for _ in range(6)]
    assert got == [f"{number}.{step}" for step in range(3) for number in (1001, 1002)]


def pending(client, model):
    stats = client.get_inference_statistics(model).model_stats[0].inference_stats
    return stats.fail.count


def test_a_client_that_leaves(server):
    """Its queued requests end at once: the next client does not wait for them."""
    with triton.InferenceServerClient(server.grpc) as other:
        before, executed = pending(other, "identity_slow"), executions(server, "identity_slow")
        with Stream(server.grpc) as stream:
            for i in range(30):
                stream.ask("identity_slow", floats(i))
            assert stream.next().id == ""
        assert other.infer("identity_slow", floats(5)).as_numpy("OUTPUT0")[0, 0] == 5
        assert executions(server, "identity_slow") - executed <= 15
        wait_until(lambda: pending(other, "identity_slow") > before)


def test_slow_reader(server):
    """Answers of 40 MB that nobody reads for a while: the server stays as it is, and all come in the end."""
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def requests():
            for i in range(40):
                asked = pb.ModelInferRequest(model_name="identity_fp32", id=str(i))
                asked.inputs.add(name="INPUT0", datatype="FP32").shape.extend([1, 250_000])
                asked.raw_input_contents.append(bytes([i]) * 1_000_000)
                yield asked

        call = stub.ModelStreamInfer(requests())
        time.sleep(1)
        for i, answer in enumerate(call):
            assert answer.infer_response.id == str(i)
            assert answer.infer_response.raw_output_contents[0] == bytes([i]) * 1_000_000


def test_aio(server):
    async def run():
        async def requests():
            for i in range(20):
                yield {"model_name": "identity_fp32", "inputs": floats(i), "request_id": str(i)}

        async with triton_aio.InferenceServerClient(server.grpc) as client:
            got = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                got.append(result.get_response().id)
            assert got == [str(i) for i in range(20)]

    asyncio.run(run())


def test_drain(start):
    """SIGTERM while a stream works: its answers come, the server ends well."""
    own = start()
    stream = Stream(own.grpc)
    for i in range(5):
        stream.ask("identity_slow", floats(i), request_id=str(i))
    assert stream.next().id == "0"
    ended = []
    stopper = threading.Thread(target=lambda: ended.append(own.stop()))
    stopper.start()
    assert [stream.next().id for _ in range(4)] == ["1", "2", "3", "4"]
    stream.client.stop_stream()
    stopper.join(30)
    assert ended == [0]
    stream.client.close()
