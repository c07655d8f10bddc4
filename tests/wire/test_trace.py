# SPDX-License-Identifier: Apache-2.0
"""Traces of requests: files in Triton's form, and spans that an OpenTelemetry collector decodes."""
import http.server
import json
import sys
import threading
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
from python_models import write
from wire import ROOT, Server, metric, wait_until

MODEL_TIMES = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END"]
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "double" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "twice" } },
  { model_name: "caller" model_version: -1 input_map { key: "IN" value: "twice" } output_map { key: "OUT" value: "OUT" } }
] }
"""


def front_end(name, start, end):
    return [f"{name}_{start}_START", f"{name}_{start}_END", "INFER_RESPONSE_COMPLETE", f"{name}_{end}_START", f"{name}_{end}_END"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """double; caller, which calls double within its trace and once outside of it; both, an ensemble of the two."""
    folder = tmp_path_factory.mktemp("models")
    write(folder, "double", "IN:INT32:-1", "OUT:INT32:-1", """
        def execute(self, requests):
            values = [pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * value)]) for value in values]
    """)
    write(folder, "caller", "IN:INT32:-1", "OUT:INT32:-1", """
        def execute(self, requests):
            responses = []
            for one in requests:
                for trace in (one.trace(), None):
                    call = pb_utils.InferenceRequest(model_name="double", requested_output_names=["OUT"], inputs=one.inputs(), trace=trace)
                    response = call.exec()
                responses.append(response)
            return responses
    """)
    (folder / "both" / "1").mkdir(parents=True)
    (folder / "both" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


def serve(models, *options):
    return Server(*[word for option in options for word in ("--trace-config", option)], repositories=(models, ),
                  env={"PROA_PYTHON": sys.executable})


def ask(server, model, headers=None, **more):
    body = {"inputs": [{"name": "IN", "shape": [3], "datatype": "INT32", "data": [1, 2, 3]}], **more}
    answer = requests.post(server.url(f"/v2/models/{model}/infer"), json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"][0]["data"]


def ask_grpc(server, model):
    tensor = grpc.InferInput("IN", [3], "INT32")
    tensor.set_data_from_numpy(np.array([1, 2, 3], np.int32))
    with grpc.InferenceServerClient(server.grpc) as client:
        return client.infer(model, [tensor], request_id="by grpc").as_numpy("OUT").tolist()


def read_trace(path):
    """{id: {"model_name", "request_id", "parent_id", "times": {name: ns}, "tensors": [(activity, name, data)]}}"""
    traces = {}
    for entry in json.loads(path.read_text()):
        one = traces.setdefault(entry["id"], {"times": {}, "tensors": []})
        one |= {key: value for key, value in entry.items() if key not in ("id", "timestamps", "activity", "tensor")}
        one["times"] |= {stamp["name"]: stamp["ns"] for stamp in entry.get("timestamps", ())}
        if "tensor" in entry:
            one["tensors"].append((entry["activity"], entry["tensor"]["name"], entry["tensor"]["data"]))
    return traces


def expect_order(times, *names):
    """These times exist and follow each other."""
    assert [times[name] for name in names] == sorted(times[name] for name in names), times


def test_file(models, tmp_path):
    with serve(models, f"file={tmp_path}/trace", "level=TIMESTAMPS", "level=TENSORS", "rate=1") as server:
        assert ask(server, "double", id="first") == [2, 4, 6]
        assert ask_grpc(server, "double") == [2, 4, 6]
        assert ask(server, "both") == [4, 8, 12]
    traces = read_trace(tmp_path / "trace")
    assert [one["model_name"] for one in traces.values()] == ["double", "double", "both", "double", "caller", "double"]
    first, second, both, *steps = traces.values()
    both_id, caller_id = list(traces)[2], list(traces)[4]
    assert [one.get("request_id") for one in (first, second, both)] == ["first", "by grpc", None]
    assert [one.get("parent_id") for one in traces.values()] == [None, None, None, both_id, both_id, caller_id]
    assert set(first["times"]) == {*front_end("HTTP", "RECV", "SEND"), *MODEL_TIMES}
    assert set(second["times"]) == {*front_end("GRPC", "WAITREAD", "SEND"), *MODEL_TIMES}
    assert set(both["times"]) == {*front_end("HTTP", "RECV", "SEND"), "REQUEST_START", "QUEUE_START", "REQUEST_END"}
    expect_order(first["times"], "HTTP_RECV_START", "HTTP_RECV_END", *MODEL_TIMES, "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END")
    for one in steps:
        assert set(one["times"]) == set(MODEL_TIMES)
        assert both["times"]["REQUEST_START"] <= one["times"]["REQUEST_START"] <= one["times"]["REQUEST_END"] <= both["times"]["HTTP_SEND_START"]
    assert first["tensors"] == [("TENSOR_QUEUE_INPUT", "IN", "1,2,3"), ("TENSOR_BACKEND_OUTPUT", "OUT", "2,4,6")]
    assert steps[1]["tensors"] == [("TENSOR_QUEUE_INPUT", "IN", "2,4,6"), ("TENSOR_BACKEND_OUTPUT", "OUT", "4,8,12")]


def test_sampling_and_numbered_files(models, tmp_path):
    """One of two requests; a file for two of them; the last one when the count is used up."""
    with serve(models, f"triton,file={tmp_path}/trace", "level=TIMESTAMPS", "rate=2", "count=3", "triton,log-frequency=2") as server:
        for number in range(10):
            ask(server, "double", id=str(number))
        assert requests.get(server.url("/v2/trace/setting"), timeout=10).json()["trace_count"] == "0"
    found = [[one["request_id"] for one in read_trace(path).values()] for path in sorted(tmp_path.iterdir())]
    assert found == [["1", "3"], ["5"]]


def test_settings_of_a_model(models, tmp_path):
    with serve(models, f"file={tmp_path}/trace") as server:
        setting = server.url("/v2/models/double/trace/setting")
        ask(server, "double", id="before")
        changed = requests.post(setting, json={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, timeout=10).json()
        assert (changed["trace_level"], changed["trace_rate"], changed["trace_mode"]) == (["TIMESTAMPS"], "1", "triton")
        ask(server, "double", id="traced")
        ask(server, "both")
        requests.post(setting, json={"trace_level": None}, timeout=10)
        ask(server, "double", id="after")
    assert [one["request_id"] for one in read_trace(tmp_path / "trace").values()] == ["traced"]


# ---- OpenTelemetry ----


class Collector:
    """Receives OTLP over HTTP. status: what it answers, one after the other; the last one goes on."""

    def __init__(self, *status, rejects=0):
        self.service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="opentelemetry-proto is not installed")
        self.status, self.rejects = list(status) or [200], rejects
        self.open = threading.Event()  # it answers nothing before
        self.open.set()
        self.requests, self.resources, self.spans = [], [], []

    def __enter__(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                collector.take(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def take(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.open.wait(60)
        status = self.status.pop(0) if len(self.status) > 1 else self.status[0]
        self.requests.append((request.path, dict(request.headers), status))
        if status == 200:
            message = self.service.ExportTraceServiceRequest.FromString(body)
            for group in message.resource_spans:
                self.resources.append(attributes_of(group.resource))
                assert [scope.scope.name for scope in group.scope_spans] == ["proa"]
                self.spans += group.scope_spans[0].spans
        answer = self.service.ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.rejects
        text = answer.SerializeToString()
        request.send_response(status)
        request.send_header("Content-Type", "application/x-protobuf")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def named(self, name):
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]


def attributes_of(one):
    """{key: value} of a span or resource."""
    found = {}
    for pair in one.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        found[pair.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


def otel(collector, *options):
    return ["mode=opentelemetry", f"opentelemetry,url={collector.url}", "opentelemetry,bsp_schedule_delay=50", *options]


TRACE_ID, CALLER_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE_ID}-{CALLER_ID}-01", "tracestate": "vendor=value,other=1"}


def test_spans(models):
    """A trace of an ensemble: InferRequest, the ensemble, its steps, and the call of a Python model."""
    with Collector() as collector:
        more = ["opentelemetry,resource=service.name=mine", "opentelemetry,resource=test.key=a=b"]
        with serve(models, *otel(collector, *more), "level=TIMESTAMPS", "rate=1") as server:
            before = time.time_ns()
            ask(server, "both", id="an id")
            after = time.time_ns()
    root, both, caller = (collector.named(name) for name in ("InferRequest", "both", "caller"))
    doubles = [span for span in collector.spans if span.name == "double"]
    computes = [span for span in collector.spans if span.name == "compute"]
    assert len(collector.spans) == 8 and len(doubles) == 2 and len(computes) == 3
    assert {span.trace_id for span in collector.spans} == {root.trace_id} and len(root.trace_id) == 16
    assert len({span.span_id for span in collector.spans}) == 8
    assert root.parent_span_id == b"" and root.kind == root.SPAN_KIND_SERVER
    assert both.parent_span_id == root.span_id and caller.parent_span_id == both.span_id
    assert [span.parent_span_id for span in doubles] == [both.span_id, caller.span_id]
    assert {span.parent_span_id for span in computes} == {caller.span_id, *(span.span_id for span in doubles)}
    assert [event.name for event in root.events] == front_end("HTTP", "RECV", "SEND")
    assert [event.name for event in both.events] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert [event.name for event in computes[0].events] == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    for span in collector.spans:
        assert before - 10**8 <= root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= after + 10**8
        assert all(span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano for event in span.events)
    about = attributes_of(both)
    assert (about["triton.model_name"], about["triton.model_version"], about["triton.request_id"]) == ("both", 1, "an id")
    assert attributes_of(caller)["triton.trace_parent_id"] == about["triton.trace_id"]
    assert collector.resources[0]["service.name"] == "mine" and collector.resources[0]["test.key"] == "a=b"
    path, headers, _ = collector.requests[0]
    assert (path, headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")


@pytest.mark.parametrize("protocol", ["HTTP", "gRPC"])
def test_context_of_the_caller(models, protocol):
    """With rate 0 only requests are traced whose caller traces them."""
    with Collector() as collector:
        with serve(models, *otel(collector), "level=TIMESTAMPS", "rate=0") as server:
            for headers in ({}, CONTEXT, {"traceparent": CONTEXT["traceparent"][:-1] + "0"}, {"traceparent": "nonsense"}):
                if protocol == "HTTP":
                    ask(server, "double", headers)
                else:
                    tensor = grpc.InferInput("IN", [1], "INT32")
                    tensor.set_data_from_numpy(np.array([1], np.int32))
                    with grpc.InferenceServerClient(server.grpc) as client:
                        client.infer("double", [tensor], headers=headers)
    assert [span.name for span in collector.spans] == ["InferRequest", "double", "compute"]
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE_ID}
    assert {span.trace_state for span in collector.spans} == {CONTEXT["tracestate"]}
    assert collector.spans[0].parent_span_id.hex() == CALLER_ID
    assert collector.spans[0].events[0].name == ("HTTP_RECV_START" if protocol == "HTTP" else "GRPC_WAITREAD_START")


def test_context_in_a_python_model(models, tmp_path):
    write(tmp_path, "tells", "IN:INT32:-1", "OUT:STRING:-1", """
        def execute(self, requests):
            contexts = [np.array([one.trace().get_context() or ""], dtype=object) for one in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", context)]) for context in contexts]
    """)
    with Collector() as collector, serve(tmp_path, *otel(collector), "level=TIMESTAMPS", "rate=0") as server:
        assert ask(server, "tells") == [""]
        context = json.loads(ask(server, "tells", CONTEXT)[0])
        wait_until(lambda: collector.spans)
    assert context == {"traceparent": f"00-{TRACE_ID}-{collector.named('tells').span_id.hex()}-01", "tracestate": CONTEXT["tracestate"]}


def test_errors_are_in_spans(models, tmp_path):
    write(tmp_path, "fails", "IN:INT32:-1", "OUT:INT32:-1", """
        def execute(self, requests):
            raise ValueError("no luck today")
    """)
    with Collector() as collector:
        with serve(tmp_path, *otel(collector), "level=TIMESTAMPS", "rate=1") as server:
            body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]}
            assert requests.post(server.url("/v2/models/fails/infer"), json=body, timeout=30).status_code == 500
            body["inputs"][0]["name"] = "WRONG"
            assert requests.post(server.url("/v2/models/fails/infer"), json=body, timeout=30).status_code == 400
    failed = [span for span in collector.spans if span.name == "fails"]
    assert [span.status.code for span in failed] == [2, 2]
    assert "no luck today" in failed[0].status.message and "refused" in failed[1].status.message


def counts(server):
    text = requests.get(f"http://{server.metrics}/metrics", timeout=10).text
    return [metric(text, f"proa_trace_{name}_total") for name in ("spans_exported", "spans_dropped", "exports_failed")]


def test_batches_and_a_full_queue(models):
    """Batches have a limit; what does not fit into the queue is dropped and counted, and no request waits."""
    with Collector() as collector:
        collector.open.clear()
        options = ["opentelemetry,bsp_max_queue_size=9", "opentelemetry,bsp_max_export_batch_size=4"]
        with serve(models, *otel(collector, *options), "level=TIMESTAMPS", "rate=1") as server:
            for _ in range(40):
                ask(server, "double")
            collector.open.set()
            wait_until(lambda: sum(counts(server)[:2]) == 120)
            exported, dropped, failed = counts(server)
            assert dropped >= 100 and failed == 0
    assert len(collector.spans) == exported
    assert len(collector.requests) >= exported / 4


def test_a_collector_that_fails(models):
    """Answers that ask for repetition are repeated; others are not; what is lost is counted."""
    with Collector(503, 429, 200) as collector:
        with serve(models, *otel(collector), "level=TIMESTAMPS", "rate=1") as server:
            ask(server, "double")
            wait_until(lambda: counts(server) == [3, 0, 0])
        assert [status for _, _, status in collector.requests] == [503, 429, 200]
    with Collector(400) as collector:
        with serve(models, *otel(collector), "level=TIMESTAMPS", "rate=1") as server:
            ask(server, "double")
            wait_until(lambda: counts(server) == [0, 3, 1])
            assert "answers 400" in server.log_text()
    with Collector(rejects=2) as collector:
        with serve(models, *otel(collector), "level=TIMESTAMPS", "rate=1") as server:
            ask(server, "double")
            wait_until(lambda: counts(server) == [1, 2, 0])


def test_no_collector(models):
    """Requests are answered, and the end of the server does not wait for ever."""
    options = ["mode=opentelemetry", "opentelemetry,url=http://127.0.0.1:9/v1/traces", "level=TIMESTAMPS", "rate=1"]
    with serve(models, *options) as server:
        assert ask(server, "double") == [2, 4, 6]
        settings = requests.get(server.url("/v2/trace/setting"), timeout=10).json()
        begin = time.monotonic()
    assert time.monotonic() - begin < 30
    assert settings == {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "-1", "url": "http://127.0.0.1:9/v1/traces",
                        "bsp_max_queue_size": "2048", "bsp_schedule_delay": "5000", "bsp_max_export_batch_size": "512",
                        "trace_mode": "opentelemetry"}  # yapf: disable


def test_environment(models):
    with Collector() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url[:-len("/v1/traces")] + "/", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x-more=1,bad=a%0Ab",
               "OTEL_RESOURCE_ATTRIBUTES": "service.name=first,zone=here", "OTEL_SERVICE_NAME": "second", "OTEL_BSP_SCHEDULE_DELAY": "50",
               "PROA_PYTHON": sys.executable}  # yapf: disable
        options = [word for option in ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1") for word in ("--trace-config", option)]
        with Server(*options, repositories=(models, ), env=env) as server:
            ask(server, "double")
    (path, headers, _), *_ = collector.requests
    assert (path, headers["api-key"], headers["x-more"], headers.get("bad")) == ("/v1/traces", "a b", "1", None)
    assert collector.resources[0] | {"service.name": "second", "zone": "here"} == collector.resources[0]


@pytest.mark.parametrize("option, text", [
    ("mode=loud", "--trace-config mode=loud: triton or opentelemetry"),
    ("rate=0", "--trace-config rate=0: needs mode=opentelemetry"),
    ("opentelemetry,bsp_max_queue_size=0", "--trace-config bsp_max_queue_size=0: must be 1 to"),
    ("opentelemetry,colour=red", "--trace-config opentelemetry,colour is none of url,"),
    ("opentelemetry,url=ftp://x", "url=ftp://x: must be http"),
    ("opentelemetry,resource=novalue", "resource=novalue: must be KEY=VALUE"),
])
def test_refused_options(models, option, text):
    with pytest.raises(AssertionError) as failure:
        with serve(models, *(["mode=opentelemetry"] if option.startswith("open") else []), option):
            pass
    assert text in str(failure.value)


def expect_phases(collector):
    """Spans of one request to the language model; returns the attributes of the model's."""
    root, model, compute, queue, prefill, decode = (
        collector.named(name) for name in ("InferRequest", "classics-10m", "compute", "queue", "prefill", "decode"))
    assert root.parent_span_id.hex() == CALLER_ID and model.parent_span_id == root.span_id
    assert (queue.parent_span_id, prefill.parent_span_id, decode.parent_span_id) == (model.span_id, compute.span_id, compute.span_id)
    assert queue.end_time_unix_nano == prefill.start_time_unix_nano and prefill.end_time_unix_nano == decode.start_time_unix_nano
    return attributes_of(model)


def test_language_model():
    """OpenAI's routes: attributes of the conventions for generative AI, and the phases of a request."""
    body = {"model": "classics-10m", "prompt": "It was the", "max_tokens": 12, "n": 2, "temperature": 0.5, "top_p": 0.9}
    names = ("classics-10m", "polarity-bert")
    with Collector() as collector:
        options = [word for option in otel(collector, "level=TIMESTAMPS", "rate=0") for word in ("--trace-config", option)]
        with Server(*options, repositories=[ROOT / "models" / name for name in names]) as server:
            for stream in (False, True):
                collector.spans.clear()
                answer = requests.post(server.url("/v1/completions"), json=body | {"stream": stream}, headers=CONTEXT, timeout=60)
                assert answer.status_code == 200
                wait_until(lambda: len(collector.spans) == 6)
                about = expect_phases(collector)
                assert about["gen_ai.operation.name"] == "text_completion" and about["gen_ai.request.model"] == "classics-10m"
                assert (about["gen_ai.request.max_tokens"], about["gen_ai.request.choice.count"]) == (12, 2)
                assert (about["gen_ai.request.temperature"], about["gen_ai.request.top_p"]) == pytest.approx((0.5, 0.9))
                assert about["gen_ai.response.finish_reasons"] == ["length", "length"] and about["gen_ai.usage.output_tokens"] == 24
                if not stream:
                    assert about["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
                    assert about["gen_ai.response.id"] == answer.json()["id"]
                first, whole = about["gen_ai.latency.time_to_first_token"], about["gen_ai.latency.e2e"]
                assert 0 < first < whole and first >= about["gen_ai.latency.time_in_queue"] + about["gen_ai.latency.time_in_model_prefill"]
            embedding = {"model": "polarity-bert", "input": "a good film"}
            assert requests.post(server.url("/v1/embeddings"), json=embedding, headers=CONTEXT, timeout=60).status_code == 200
    assert attributes_of(collector.named("polarity-bert"))["gen_ai.operation.name"] == "embeddings"
