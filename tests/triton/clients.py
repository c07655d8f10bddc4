# SPDX-License-Identifier: Apache-2.0
"""A case is one request, or several that belong together; an answer is plain data that can be compared."""
import dataclasses
import http.client
import json

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

SECONDS = 30  # no answer until then: it hangs
KEPT_HEADERS = ("inference-header-content-length", "content-encoding", "content-type")


@dataclasses.dataclass
class Http:
    name: str
    path: str
    method: str = "POST"
    body: bytes = b""
    headers: dict = dataclasses.field(default_factory=dict)
    kind = "http"

    def __str__(self):
        return f"{self.method} {self.path} {self.headers or ''} {self.body[:400]!r}"


@dataclasses.dataclass
class Grpc:
    """A call, or a stream where messages is a list."""
    name: str
    method: str
    messages: object
    kind = "grpc"

    def __str__(self):
        text = str([json_format.MessageToDict(one) for one in self.messages] if isinstance(self.messages, list) else
                   json_format.MessageToDict(self.messages))
        return f"{self.method} {text[:500]}"


# ---- HTTP ----


def events_of(body):
    """The JSON of server-sent events."""
    texts = [line[len("data: "):] for line in body.decode(errors="replace").split("\n\n") if line.startswith("data: ")]
    return [json.loads(text) for text in texts]


def body_of(headers, body):
    """JSON where it is some; of a binary answer the JSON and the bytes behind it."""
    length = headers.get("inference-header-content-length")
    head, tail = (body[:int(length)], body[int(length):]) if length else (body, b"")
    kind = headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return {"events": events_of(body)}
    if not head:
        return {}
    try:
        return {"json": json.loads(head), "binary": tail.hex()}
    except ValueError:
        return {"text": head.decode("latin-1")}


def ask_http(server, case):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=SECONDS)
    try:
        connection.request(case.method, case.path, case.body, case.headers)
        got = connection.getresponse()
        body = got.read()
    except (OSError, http.client.HTTPException) as error:
        return {"status": f"no answer: {type(error).__name__}"}
    finally:
        connection.close()
    headers = {key.lower(): value for key, value in got.getheaders()}
    kept = {key: headers[key] for key in KEPT_HEADERS if key in headers}
    return {"status": got.status, "headers": kept, **body_of(headers, body)}


# ---- gRPC ----


def message_of(message):
    found = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def stub_of(server, credentials=None):
    target, options = f"127.0.0.1:{server.grpc_port}", [("grpc.max_metadata_size", 1 << 20), ("grpc.use_local_subchannel_pool", 1)]
    channel = (grpc.secure_channel(f"localhost:{server.grpc_port}", credentials, options) if credentials else
               grpc.insecure_channel(target, options))
    return channel, service_pb2_grpc.GRPCInferenceServiceStub(channel)


def ask_grpc(server, case, credentials=None):
    channel, stub = stub_of(server, credentials)
    with channel:
        call = getattr(stub, case.method)
        answers = []
        try:
            if isinstance(case.messages, list):
                for one in call(iter(case.messages), timeout=SECONDS):
                    answers.append(message_of(one))
            else:
                answers.append(message_of(call(case.messages, timeout=SECONDS)))
        except grpc.RpcError as error:
            return {"status": error.code().name, "json": {"error": error.details()}, "messages": answers}
    return {"status": "OK", "messages": answers}


def ask(server, case):
    return ask_http(server, case) if case.kind == "http" else ask_grpc(server, case)


# ---- differences ----


def differences(triton, proa, path=""):
    """Leaves that differ, as (path, value of Triton, value of Proa); None where there is none."""
    if isinstance(triton, dict) and isinstance(proa, dict):
        found = []
        for key in sorted({*triton, *proa}):
            found += differences(triton.get(key), proa.get(key), f"{path}.{key}" if path else key)
        return found
    if isinstance(triton, list) and isinstance(proa, list) and len(triton) == len(proa):
        return [one for i, (a, b) in enumerate(zip(triton, proa)) for one in differences(a, b, f"{path}[{i}]")]
    return [] if triton == proa else [(path, triton, proa)]


def infer_request(model, inputs, **fields):
    """inputs: (name, datatype, shape, bytes)."""
    message = pb.ModelInferRequest(model_name=model, **fields)
    for name, datatype, shape, data in inputs:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_input_contents.append(data)
    return message
