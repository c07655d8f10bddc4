# SPDX-License-Identifier: Apache-2.0
"""Parts that need servers of their own: poll mode, TLS, traces, several repositories, priorities, version policies."""
import dataclasses
import http.client
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

import grpc
import models
from clients import Grpc, Http, ask, ask_grpc, infer_request
from servers import Pair
from tritonclient.grpc import service_pb2 as pb

WAIT_SECONDS = 60  # for what should come; what has not come until then is compared as it is
# OUT is IN + 1000 times the version + a number.
PLUS = """
def initialize(self, args):
    self.add = 1000 * int(args["model_version"]) + NUMBER

def execute(self, requests):
    time.sleep(SECONDS)
    return [out(value(one) + np.int32(self.add)) for one in requests]
"""
# OUT is the number of the execution.
COUNTER = """
def initialize(self, args):
    self.count = 0

def execute(self, requests):
    answers = []
    for one in requests:
        time.sleep(float(value(one).ravel()[0]) / 1000)
        answers.append(out(np.full_like(value(one), self.count)))
        self.count += 1
    return answers
"""
# Calls the model `one` within its own trace.
CALLER = """
def execute(self, requests):
    answers = []
    for one in requests:
        call = pb_utils.InferenceRequest(model_name="one", requested_output_names=["OUT"], inputs=one.inputs(), trace=one.trace())
        answers.append(out(pb_utils.get_output_tensor_by_name(call.exec(), "OUT").as_numpy()))
    return answers
"""
BROKEN = """
def initialize(self, args):
    raise ValueError("no")

def execute(self, requests):
    return []
"""


@dataclasses.dataclass
class Scene:
    """A step of a part, in the place of a case."""
    name: str
    kind = "scene"

    def __str__(self):
        return ""


def write_plus(folder, name, number=0, versions=(1, ), more="", seconds=0.0):
    code = PLUS.replace("NUMBER", str(number)).replace("SECONDS", str(seconds))
    models.write_python(folder, name, code, "IN:INT32:-1", "OUT:INT32:-1", 0, more, versions)


def infer(server, model, version=None, value=1, **more):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}], **more}
    return ask(server, Http("infer", path, body=json.dumps(body).encode()))


def answer_of(server, model, version=None):
    """What comes out, or the status of the refusal."""
    got = infer(server, model, version)
    return got["json"]["outputs"][0]["data"][0] if got["status"] == 200 else got["status"]


def index_of(server, body=b""):
    """name, version, state and whether there is a reason. Rows without a version are not compared: Triton has them for a moment."""
    got = ask(server, Http("index", "/v2/repository/index", body=body))
    rows = got.get("json") or []
    return sorted((one["name"], one.get("version", ""), one.get("state", ""), bool(one.get("reason"))) for one in rows)


def view(server, wanted):
    """The state of a server as far as clients see it. wanted: model: versions."""
    return {"index": [list(row) for row in index_of(server)],
            "index of ready": [list(row) for row in index_of(server, b'{"ready":true}')],
            "answers": {f"{model} {version}": answer_of(server, model, version) for model, versions in wanted.items()
                        for version in (None, *versions)},
            "ready": {f"{model} {version}": ask(server, Http("ready", f"/v2/models/{model}/versions/{version}/ready", "GET"))["status"]
                      for model, versions in wanted.items() for version in versions}}  # yapf: disable


def wait_for(done, seconds=WAIT_SECONDS):
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.1)


def settle(pair):
    """Waits until nothing is being loaded or unloaded, for a while: Triton tries a broken model again and again."""
    wait_for(lambda: all(not any(row[2] in ("LOADING", "UNLOADING") for row in index_of(server)) for server in pair.both()), 10)


# ---- poll mode ----


def compare_poll(_, report):
    with tempfile.TemporaryDirectory(prefix="proa-poll-") as folder:
        repository = pathlib.Path(folder) / "repository"
        write_plus(repository, "one")
        wanted = {"one": (1, 3), "two": (1, ), "bad": (1, )}
        with Pair(folder, [repository], ["--model-control-mode=poll", "--repository-poll-secs=1"]) as pair:

            def step(name, change, done):
                """done(server): has the change arrived?"""
                change()
                wait_for(lambda: all(done(server) for server in pair.both()))
                if done(pair.proa) and not done(pair.triton):
                    report.slow(f"poll: {name}")
                    return
                time.sleep(2.5)  # another round of polling: nothing more happens
                settle(pair)
                report.judge(Scene(f"poll: {name}"), *(view(server, wanted) for server in pair.both()))

            def config(name, old, new):
                path = repository / name / "config.pbtxt"
                text = path.read_text()
                path.write_text(text.replace(old, new) if old else text + new)

            step("start", lambda: None, lambda server: answer_of(server, "one") == 1001)
            step("a model comes", lambda: write_plus(repository, "two", 7), lambda server: answer_of(server, "two") == 1008)
            step("a version comes", lambda: write_plus(repository, "one", 0, (3, )), lambda server: answer_of(server, "one") == 3001)
            step("a policy changes", lambda: config("one", "", "version_policy { all {} }\n"), lambda server: answer_of(server, "one", 1) == 1001)
            step("a configuration breaks", lambda: config("two", "TYPE_INT32", "TYPE_NOTHING"), lambda server: True)
            step("and is mended", lambda: config("two", "TYPE_NOTHING", "TYPE_INT32"), lambda server: answer_of(server, "two") == 1008)
            step("a file changes", lambda: write_plus(repository, "two", 8), lambda server: answer_of(server, "two") == 1009)
            step("a version goes", lambda: shutil.rmtree(repository / "one" / "1"), lambda server: answer_of(server, "one", 1) != 1001)
            step("a model goes", lambda: shutil.rmtree(repository / "two"), lambda server: answer_of(server, "two") != 1009)
            step("a broken model comes", lambda: models.write_python(repository, "bad", BROKEN,
                                                                       "IN:INT32:-1", "OUT:INT32:-1"),
                 lambda server: any(row[0] == "bad" and row[3] for row in index_of(server)))


# ---- TLS ----


def run_openssl(*args, folder):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    """ca and other sign themselves; server and client are signed by ca, foreign by other."""
    for name in ("ca", "other"):
        run_openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                    f"{name}.pem", folder=folder)
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, issuer in (("server", "ca"), ("client", "ca"), ("foreign", "other")):
        run_openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", f"{name}.key", "-out", f"{name}.csr", folder=folder)
        run_openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial", "-days", "2",
                    "-extfile", "names", "-out", f"{name}.pem", folder=folder)


def credentials(folder, ca, client=None):
    def read(name):
        return (folder / name).read_bytes()

    if client is None:
        return grpc.ssl_channel_credentials(read(f"{ca}.pem"))
    return grpc.ssl_channel_credentials(read(f"{ca}.pem"), read(f"{client}.key"), read(f"{client}.pem"))


def compare_tls(_, report):
    if not shutil.which("openssl"):
        print("tls: skipped, there is no openssl to make certificates with")
        return
    with tempfile.TemporaryDirectory(prefix="proa-tls-") as name:
        folder = pathlib.Path(name)
        make_certificates(folder)
        write_plus(folder / "repository", "one")
        tls = ["--grpc-use-ssl=true", f"--grpc-server-cert={folder}/server.pem", f"--grpc-server-key={folder}/server.key",
               f"--grpc-root-cert={folder}/ca.pem"]  # yapf: disable
        clients = {"right": ("ca", ), "wrong authority": ("other", ), "with a certificate": ("ca", "client"),
                   "with a foreign certificate": ("ca", "foreign")}  # yapf: disable
        for mutual in (False, True):
            with Pair(folder, [folder / "repository"], [*tls, f"--grpc-use-ssl-mutual={str(mutual).lower()}"]) as pair:
                request = infer_request("one", [("IN", "INT32", [1], b"\1\0\0\0")])
                for label, names in clients.items():
                    case = Grpc(f"tls: {'mutual, ' if mutual else ''}{label}", "ModelInfer", request)
                    report.judge(case, *({**ask_grpc(server, case, credentials(folder, *names)), "json": {}} for server in pair.both()))
                case = Grpc(f"tls: {'mutual, ' if mutual else ''}plain text", "ServerLive", pb.ServerLiveRequest())
                report.judge(case, *({**ask_grpc(server, case), "json": {}} for server in pair.both()))


# ---- traces ----


def entries_of(server):
    """Of all trace files, per request: its model, the model that led to it, and the names of its times; None if nothing was written."""
    found = []
    for path in sorted(server.folder.glob("trace*")):
        text = path.read_text().strip()
        found += json.loads(text) if text else []
    if not found:
        return None
    heads = {one["id"]: one for one in found if "model_name" in one}
    for one in found:
        for stamp in one.get("timestamps", ()):
            heads[one["id"]].setdefault("names", []).append(stamp["name"])
    parents = {one["id"]: heads.get(one.get("parent_id"), {}).get("model_name", "") for one in heads.values()}
    return sorted([one["model_name"], str(one.get("model_version")), parents[one["id"]], sorted(one.get("names", []))] for one in heads.values())


def compare_traces(_, report):
    with tempfile.TemporaryDirectory(prefix="proa-trace-") as folder:
        repository = pathlib.Path(folder) / "repository"
        write_plus(repository, "one")
        models.write_ensemble(repository, "ens", "IN:INT32:-1", "OUT:INT32:-1", [models.step("one", {"IN": "IN"}, {"OUT": "OUT"})])
        models.write_python(repository, "caller", CALLER, "IN:INT32:-1", "OUT:INT32:-1")
        pair = Pair(folder, [repository], ["--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=count=-1"])
        for server in pair.both():
            server.options.append(f"--trace-config=triton,file={server.folder}/trace")
        changes = [{"trace_rate": "2"}, {"trace_level": ["TIMESTAMPS"]}, {"trace_count": "5"}, {"log_frequency": "1"}, {"trace_rate": None},
                   {"trace_rate": "x"}, {"trace_count": "-2"}, {"trace_level": ["OFF"]}, {"trace_level": None}]  # yapf: disable
        with pair:
            for server in pair.both():
                for _ in range(3):
                    infer(server, "one")
                    infer(server, "ens")
                infer(server, "caller")
                ask(server, Grpc("infer", "ModelInfer", infer_request("one", [("IN", "INT32", [1], b"\1\0\0\0")])))
            for path in ("/v2/trace/setting", "/v2/models/one/trace/setting"):
                for change in changes:
                    case = Http(f"trace: {path} {change}", path, body=json.dumps(change).encode())
                    report.judge(case, *(hide(ask(server, case), server) for server in pair.both()))
        proa = entries_of(pair.proa)
        try:
            triton = entries_of(pair.triton)
        except json.JSONDecodeError as error:  # its threads append to one file: once in some twenty runs an entry is cut in two
            print(f"trace: Triton's file is not JSON ({error}), only the settings are compared")
            triton = None
        if triton is None:
            print("trace: Triton wrote no file, only the settings are compared")
            report.check("trace: Proa wrote one", proa is not None)
            return
        report.judge(Scene("trace: the file"), {"entries": triton}, {"entries": proa})


class Collector:
    """Receives spans from both: tritonserver sends OTLP's JSON, Proa protobuf."""

    def __init__(self):
        self.spans = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_json = "json" in self.headers["Content-Type"]
                collector.spans += json_spans(body) if is_json else protobuf_spans(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def tree(self):
        """Of each span: its name and that of the span above it, its events, attributes and state."""
        names = {one["id"]: one["name"] for one in self.spans}
        return sorted([one["name"], names.get(one["parent"], one["parent"]), one["events"], sorted(one["attributes"]), one["state"]] for one in self.spans)


def json_spans(body):
    for resource in json.loads(body)["resourceSpans"]:
        for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
            yield {"id": span["spanId"], "parent": span.get("parentSpanId", ""), "name": span["name"], "state": span.get("traceState", ""),
                   "events": [event["name"] for event in span.get("events", ())],
                   "attributes": [pair["key"] for pair in span.get("attributes", ())]}  # yapf: disable


def varint(message, at):
    value, shift = 0, 0
    while True:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return value, at


def fields(message):
    """(number, value) of a protobuf message: numbers of varints, bytes of all else."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
        else:
            size, at = varint(message, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = message[at:at + size], at + size
        yield key >> 3, value


def inside(messages, number):
    return [value for message in messages for key, value in fields(message) if key == number]


def protobuf_spans(body):
    """By the numbers of opentelemetry-proto: the request's 1, 2 and 2 are resources, scopes and spans."""
    for span in inside(inside(inside([body], 1), 2), 2):
        value = dict(fields(span))
        yield {"id": value[2].hex(), "parent": value.get(4, b"").hex(), "name": value[5].decode(), "state": value.get(3, b"").decode(),
               "events": [name.decode() for name in inside(inside([span], 11), 2)],
               "attributes": [key.decode() for key in inside(inside([span], 9), 1)]}  # yapf: disable


def compare_spans(_, report):
    with tempfile.TemporaryDirectory(prefix="proa-spans-") as folder:
        repository = pathlib.Path(folder) / "repository"
        write_plus(repository, "one")
        models.write_ensemble(repository, "ens", "IN:INT32:-1", "OUT:INT32:-1", [models.step("one", {"IN": "IN"}, {"OUT": "OUT"})])
        models.write_python(repository, "caller", CALLER, "IN:INT32:-1", "OUT:INT32:-1")
        options = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=1", "opentelemetry,bsp_schedule_delay=100", "opentelemetry,resource=service.name=x"]
        pair = Pair(folder, [repository], [f"--trace-config={one}" for one in options])
        collectors = [Collector(), Collector()]
        for server, collector in zip(pair.both(), collectors):
            server.options.append(f"--trace-config=opentelemetry,url={collector.url}")
        context = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
        body = json.dumps({"id": "r", "inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]}).encode()
        settings = Http("spans: the settings", "/v2/trace/setting", method="GET")
        with pair:
            for server in pair.both():
                for model, headers in (("one", context), ("ens", {}), ("caller", {})):
                    ask(server, Http("spans", f"/v2/models/{model}/infer", body=body, headers=headers))
                ask(server, Grpc("infer", "ModelInfer", infer_request("one", [("IN", "INT32", [1], b"\1\0\0\0")])))
            got = [ask(server, settings) for server in pair.both()]
            for answer in got:
                answer["json"].pop("url", None)
            end = time.monotonic() + 10
            while time.monotonic() < end and any(len(one.spans) < 15 for one in collectors):
                time.sleep(0.1)
        report.judge(settings, *got)
        report.judge(Scene("spans: the tree"), *({"spans": one.tree()} for one in collectors))


def hide(answer, server):
    """An answer without the server's own folder."""
    return json.loads(json.dumps(answer).replace(str(server.folder), "FOLDER"))


# ---- several repositories ----


def load(server, model, config=None, unload=False):
    body = {"parameters": {"config": json.dumps(config)}} if config else {}
    got = ask(server, Http("load", f"/v2/repository/models/{model}/{'unload' if unload else 'load'}", body=json.dumps(body).encode()))
    return got["status"]


def compare_repositories(_, report):
    with tempfile.TemporaryDirectory(prefix="proa-repositories-") as folder:
        first, second = (pathlib.Path(folder) / name for name in ("first", "second"))
        write_plus(first, "one", 1)
        write_plus(second, "two", 2)
        for number, repository in ((3, first), (4, second)):
            write_plus(repository, "both", number)
        wanted = {"one": (1, ), "two": (1, ), "both": (1, )}
        with Pair(folder, [first, second], ["--model-control-mode=explicit"]) as pair:
            steps = [(model, False) for model in ("one", "two", "both", "nobody")] + [("one", True), ("nobody", True), ("one", False)]
            for model, unload in steps:
                statuses = [load(server, model, unload=unload) for server in pair.both()]
                settle(pair)
                report.judge(Scene(f"repositories: {'unload' if unload else 'load'} {model}"),
                             *({"status": status, **view(server, wanted)} for status, server in zip(statuses, pair.both())))
        for more in ([], ["--model-namespacing=true"]):
            with Pair(folder, [first, second], ["--exit-on-error=false", "--strict-readiness=false", *more]) as pair:
                report.judge(Scene(f"repositories: at start {more}"), *(view(server, wanted) for server in pair.both()))


# ---- priorities and queues under load ----


def pending(server, model):
    """Requests that wait in the queue of a model."""
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf'^nv_inference_pending_request_count{{model="{model}",version="1"}} (\d+)', text, re.M)
    return int(found[1]) if found else 0


def send_together(server, model, requests):
    """One after the other without waiting for answers: [(milliseconds, parameters)]. Statuses or numbers of executions, in that order."""
    results = [None] * len(requests)

    def send(index, milliseconds, parameters):
        body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [milliseconds]}], "parameters": parameters}
        got = ask(server, Http("infer", f"/v2/models/{model}/infer", body=json.dumps(body).encode()))
        results[index] = got["json"]["outputs"][0]["data"][0] if got["status"] == 200 else got["status"]

    threads = [threading.Thread(target=send, args=(i, *one), daemon=True) for i, one in enumerate(requests)]
    for thread in threads:  # the next one when this one is in the queue, or was answered
        before = pending(server, model)
        thread.start()
        end = time.monotonic() + (0.5 if thread is threads[0] else 2)
        while thread.is_alive() and pending(server, model) <= before and time.monotonic() < end:
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    return results


def compare_priorities(_, report):
    policies = {
        "levels": "priority_levels: 3 default_priority_level: 2",
        "full": "default_queue_policy { max_queue_size: 2 }",
        "late": "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 300000 allow_timeout_override: true }",
        "delay": "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 300000 }",
    }
    busy = (3000, {})
    loads = {
        "levels": [busy, *((1, {"priority": p} if p else {}) for p in (3, 1, 2, 0, 3, 1, 0, 2))],
        "full": [busy, *[(1, {})] * 5],
        "late": [busy, (1, {}), (1, {"timeout": 100000}), (1, {})],
        "delay": [busy, (1, {}), (1, {})],
    }
    with tempfile.TemporaryDirectory(prefix="proa-priorities-") as folder:
        repository = pathlib.Path(folder) / "repository"
        for name, policy in policies.items():
            models.write_python(repository, name, COUNTER, "IN:INT32:1", "OUT:INT32:1", 1, f"dynamic_batching {{ {policy} }}")
        with Pair(folder, [repository]) as pair:
            for name, requests in loads.items():
                answers = [send_together(server, name, requests) for server in pair.both()]
                report.judge(Scene(f"priorities: {name}"), *({"order": one} for one in answers))


# ---- version policies while loading ----


class Asking:
    """A client that asks without a pause; counts what was not answered."""

    def __init__(self, server, model):
        self.server, self.model, self.ended, self.lost, self.asked = server, model, False, [], 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended:
            got = answer_of(self.server, self.model)
            self.asked += 1
            if not isinstance(got, int) or got < 1000:
                self.lost.append(got)
            time.sleep(0.005)

    def end(self):
        self.ended = True
        self.thread.join()
        return {"lost": self.lost}


def compare_versions(_, report):
    policies = [{"latest": {"num_versions": 1}}, {"latest": {"num_versions": 2}}, {"all": {}}, {"specific": {"versions": [1, 3]}},
                {"specific": {"versions": [9]}}, {"specific": {"versions": [5, 9]}}, {"latest": {"num_versions": 1}}]  # yapf: disable
    base = {"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}], "instance_group": [{"kind": "KIND_CPU"}]}  # yapf: disable
    with tempfile.TemporaryDirectory(prefix="proa-versions-") as folder:
        repository = pathlib.Path(folder) / "repository"
        write_plus(repository, "many", versions=(1, 2, 3, 5))
        with Pair(folder, [repository], ["--model-control-mode=explicit", "--load-model=many"]) as pair:
            for policy in policies:
                found = []
                for server in pair.both():
                    client = Asking(server, "many")
                    status = load(server, "many", {**base, "version_policy": policy})
                    found.append({"status": status, **client.end()})
                settle(pair)
                for one, server in zip(found, pair.both()):
                    one.update(view(server, {"many": (1, 2, 3, 4, 5)}))
                report.judge(Scene(f"versions: {policy}"), *found)


# ---- Triton's compiled Python backend in both ----

# The model completes its own configuration.
COMPLETES = """
@staticmethod
def auto_complete_config(config):
    config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [4]})
    config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]})
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    return config

def execute(self, requests):
    return [out(value(one) * np.float32(2)) for one in requests]
"""
# Each kind of metric, and the values of those that have one.
METRICS = """
def initialize(self, args):
    self.metrics = []
    for kind in (pb_utils.MetricFamily.COUNTER, pb_utils.MetricFamily.GAUGE):
        family = pb_utils.MetricFamily(name=f"library_{kind}".replace(".", "_"), description="of a test", kind=kind)
        self.metrics.append((family, family.Metric(labels={"what": "a \\"test\\"", "version": "1"})))

def execute(self, requests):
    answers = []
    for one in requests:
        for _, metric in self.metrics:
            metric.increment(2)
        self.metrics[1][1].set(float(self.metrics[1][1].value()) - 0.5)
        answers.append(out(np.array([metric.value() for _, metric in self.metrics], np.float64)))
    return answers
"""
# Calls a decoupled model, one that is not there, and several at once.
CALLS = """
async def call(self, text):
    tensor = pb_utils.Tensor("IN", np.array([text.encode()], dtype=np.object_))
    return await pb_utils.InferenceRequest(model_name="odd", requested_output_names=["OUT"], inputs=[tensor]).async_exec()

async def execute(self, requests):
    import asyncio
    answers = []
    for one in requests:
        got = []
        steps = pb_utils.Tensor("IN", np.array([b"aaea"], dtype=np.object_))
        inner = pb_utils.InferenceRequest(model_name="decoupled", requested_output_names=["NUM"], inputs=[steps])
        for reply in inner.exec(decoupled=True):
            if reply.has_error():
                got.append(reply.error().message())
            elif reply.output_tensors():
                got.append(str(int(pb_utils.get_output_tensor_by_name(reply, "NUM").as_numpy()[0])))
        for name in ("nothing", "decoupled"):
            try:
                reply = pb_utils.InferenceRequest(model_name=name, requested_output_names=["NUM"], inputs=[steps]).exec()
                got.append(reply.error().message())
            except pb_utils.TritonModelException as error:
                got.append(str(error))
        for reply in await asyncio.gather(*[self.call(text) for text in ("a", "error", "b")]):
            got.append(reply.error().message() if reply.has_error() else reply.output_tensors()[0].as_numpy()[0].decode())
        got.append(str(pb_utils.is_model_ready("odd")) + str(pb_utils.is_model_ready("nothing")))
        answers.append(out(np.array([text.encode() for text in got], dtype=np.object_)))
    return answers
"""
# Loads, asks and unloads a model.
CONTROL = """
def execute(self, requests):
    answers = []
    for one in requests:
        got = [pb_utils.is_model_ready("other")]
        pb_utils.load_model(model_name="other")
        got.append(pb_utils.is_model_ready("other"))
        tensor = pb_utils.Tensor("IN", np.array([7], np.int32))
        inner = pb_utils.InferenceRequest(model_name="other", requested_output_names=["OUT"], inputs=[tensor]).exec()
        got.append(bool(inner.output_tensors()[0].as_numpy()[0] == 1007))
        pb_utils.unload_model(model_name="other")
        try:
            pb_utils.load_model(model_name="absent")
        except Exception:
            got.append(True)
        answers.append(out(np.array(got, np.bool_)))
    return answers
"""


def write_library(folder):
    models.write_all(folder, library=True)
    models.write_python(folder, "completes", COMPLETES, "", "")
    (folder / "completes" / "config.pbtxt").write_text('backend: "python"' + models.LIBRARY)
    models.write_python(folder, "metrics", METRICS, "IN:INT32:-1", "OUT:FP64:2", 0, models.LIBRARY)
    models.write_python(folder, "calls", CALLS, "IN:INT32:-1", "OUT:STRING:-1", 0, models.LIBRARY)
    models.write_python(folder, "many", models.IDENTITY, "IN:INT32:-1", "OUT:INT32:-1", 4, "dynamic_batching {}" + models.LIBRARY, count=3)
    models.write_python(folder, "control", CONTROL, "IN:INT32:-1", "OUT:BOOL:-1", 0, models.LIBRARY)
    write_plus(folder, "other", more=models.LIBRARY)


def tensor_of(shape, kind="INT32", data=(1, )):
    return {"inputs": [{"name": "IN", "datatype": kind, "shape": list(shape), "data": list(data)}]}


def metric_lines(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    kept = [line for line in lines if "library_" in line and not line.startswith("# HELP")]
    return sorted((line.rsplit(" ", 1)[0], line.rsplit(" ", 1)[1]) if line.startswith("#") else
                  ("".join(sorted(line.rsplit(" ", 1)[0])), float(line.rsplit(" ", 1)[1])) for line in kept)


def compare_library(_, report):
    """What the traffic does not reach: completion, metrics, calls of several kinds, control of models, several instances.
    Proa runs the library in processes of its own, and in the server's."""
    for where in ([], ["--in-process=all"]):
        compare_library_in(where, report)


def compare_library_in(where, report):
    with tempfile.TemporaryDirectory(prefix="proa-library-") as folder:
        repository = pathlib.Path(folder) / "repository"
        write_library(repository)

        def loading(*names):
            options = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in names)]
            return Pair(folder, [repository], options, proa_options=where, library=True)

        def judge(name, model, body):
            case = Http(name, f"/v2/models/{model}/infer", body=json.dumps(body).encode())
            report.judge(case, *(ask(server, case) for server in pair.both()))

        with loading(*models.PYTHON, "completes", "metrics", "many", "control") as pair:
            for name in ("completes", "many"):
                case = Http("config", f"/v2/models/{name}/config", "GET")
                report.judge(case, *(ask(server, case) for server in pair.both()))
            judge("completes", "completes", tensor_of([2, 4], "FP32", range(8)))
            judge("completes, a batch too large", "completes", tensor_of([9, 4], "FP32", range(36)))
            for _ in range(3):
                judge("metrics", "metrics", tensor_of([1]))
            report.judge(Scene("metrics"), *({"lines": [list(line) for line in metric_lines(server)]} for server in pair.both()))
            judge("control", "control", tensor_of([1]))
            for value in range(20):
                judge("many", "many", tensor_of([1, 1], data=[value]))
        pair = loading("odd", "decoupled", "calls")
        pair.proa.stub_stays = True
        with pair:
            judge("calls", "calls", tensor_of([1]))


PARTS = {"library": compare_library, "poll": compare_poll, "tls": compare_tls, "trace": compare_traces, "spans": compare_spans, "repositories": compare_repositories,
         "priorities": compare_priorities, "versions": compare_versions}  # yapf: disable
