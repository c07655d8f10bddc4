# SPDX-License-Identifier: Apache-2.0
"""Requests of all kinds from a seed: good ones, and good ones with one mistake."""
import json
import struct

from clients import Grpc, Http, infer_request
from google.protobuf import json_format
from models import ENSEMBLES, PYTHON
from tritonclient.grpc import service_pb2 as pb

WORDS = ["", "a", "text", "ümlaut €", "x" * 300, "line\nend", "quote\"", "\\", "error", "code", "long", "int64", "rank", "extra", "raise", "params"]
SCRIPTS = ["a", "aa", "aaa", "", "e", "ae", "aea", "aaaea", "ea", "x"]
FORMATS = {"BOOL": "?", "UINT8": "B", "INT32": "i", "INT64": "q", "FP32": "f"}
TYPES = [*FORMATS, "BYTES", "FP64", "UINT16", "FP16"]
NUMBERS = {"BOOL": [True, False], "UINT8": [0, 1, 255], "INT32": [0, 1, -1, 2**31 - 1, -2**31], "INT64": [0, 7, 2**63 - 1, -2**63],
           "FP32": [0.0, 1.5, -2.25, 1e30, 0.1, 3.4e38]}  # yapf: disable


def tensor_names(spec):
    return [tuple(word.split(":")[:3]) for word in spec.split()]


def signature(model):
    """Inputs and outputs of a model as (name, datatype, dims), and whether it has a batch dimension."""
    if model in PYTHON:
        _, inputs, outputs, batch, _ = PYTHON[model]
    else:
        (inputs, outputs, _), batch = ENSEMBLES[model], 0
    return [[(name, kind.replace("STRING", "BYTES"), [int(d) for d in dims.split(",")]) for name, kind, dims in tensor_names(side)]
            for side in (inputs, outputs)] + [batch > 0]


class Traffic:

    def __init__(self, random):
        self.random = random
        self.models = [*PYTHON, *ENSEMBLES]

    # ---- tensors ----

    def element(self, model, datatype):
        if datatype == "BYTES":
            return self.random.choice(SCRIPTS if "decoupled" in model else WORDS)
        return self.random.choice(NUMBERS[datatype])

    def tensors(self, model):
        """(name, datatype, shape, elements) of a good request."""
        inputs, _, batched = signature(model)
        open_dim, rows, found = self.random.choice([0, 1, 1, 2, 3, 5]), self.random.choice([1, 1, 2, 4]), []
        if model == "sequence":
            rows = 1
        for name, datatype, dims in inputs:
            if model == "optional" and name == "B" and self.random.random() < 0.5:
                continue
            if model in ("odd", "bls", "ens_two") and open_dim == 0:
                open_dim = 1
            shape = ([rows] if batched else []) + [open_dim if d == -1 else d for d in dims]
            count = 1
            for d in shape:
                count *= d
            found.append([name, datatype, shape, [self.element(model, datatype) for _ in range(count)]])
        return found

    def nested(self, shape, data):
        """Data as lists within lists, by the shape."""
        if len(shape) <= 1:
            return data
        size = len(data) // shape[0] if shape[0] else 0
        return [self.nested(shape[1:], data[i * size:(i + 1) * size]) for i in range(shape[0])]

    @staticmethod
    def raw(datatype, data):
        if datatype == "BYTES":
            return b"".join(struct.pack("<I", len(one.encode())) + one.encode() for one in data)
        return struct.pack(f"<{len(data)}{FORMATS[datatype]}", *data)

    def parameters(self, model):
        if self.random.random() < 0.6 and model != "sequence":
            return {}
        found = {}
        if model == "sequence":
            found = {"sequence_id": self.random.choice([1, 2, 77]), "sequence_start": self.random.random() < 0.5,
                     "sequence_end": self.random.random() < 0.3}  # yapf: disable
        if self.random.random() < 0.5:
            found |= self.random.choice([{"text": "t"}, {"number": 7}, {"flag": True}, {"priority": 1}, {"double": 1.5}])
        return found

    # ---- infer over HTTP ----

    def body(self, model):
        tensors = self.tensors(model)
        inputs = [{"name": name, "datatype": kind, "shape": shape,
                   "data": self.nested(shape, data) if self.random.random() < 0.5 else data} for name, kind, shape, data in tensors]  # yapf: disable
        body = {"inputs": inputs}
        if self.random.random() < 0.3:
            body["id"] = self.random.choice(["1", "some-id", "ü"])
        if parameters := self.parameters(model):
            body["parameters"] = parameters
        outputs = signature(model)[1]
        if self.random.random() < 0.3:
            wanted = self.random.sample(outputs, self.random.randint(1, len(outputs)))
            body["outputs"] = [{"name": name} for name, _, _ in wanted]
            for one in body["outputs"]:
                if model == "add_sub" and self.random.random() < 0.5:
                    one["parameters"] = {"classification": self.random.choice([1, 2, 4, 9])}
                elif self.random.random() < 0.5:
                    one["parameters"] = {"binary_data": self.random.choice([True, False])}
        return body

    def as_binary(self, body):
        """Some inputs behind the JSON; headers and body."""
        tail = b""
        for one in body["inputs"]:
            if self.random.random() < 0.5:
                continue
            flat = one.pop("data")
            while flat and isinstance(flat[0], list):
                flat = [item for row in flat for item in row]
            data = self.raw(one["datatype"], flat)
            one.setdefault("parameters", {})["binary_data_size"] = len(data)
            tail += data
        head = json.dumps(body).encode()
        return ({"Inference-Header-Content-Length": str(len(head))} if tail else {}), head + tail

    def mistake(self, body):
        """One thing of the request is wrong. Shapes stay small: a large one ends Triton."""
        one = self.random.choice(body["inputs"]) if body["inputs"] else {}
        changes = [
            lambda: one.update(name="WRONG"),
            lambda: one.update(datatype=self.random.choice(TYPES)),
            lambda: one.update(datatype="NOPE"),
            lambda: one.update(shape=[*one.get("shape", []), 1]),
            lambda: one.update(shape=[self.random.choice([0, 2, 3, 7])]),
            lambda: one.update(shape=[-1]),
            lambda: one.update(shape=[]),
            lambda: one.pop("shape", None),
            lambda: one.pop("datatype", None),
            lambda: one.pop("data", None),
            lambda: one.pop("name", None),
            lambda: one.update(data=["text", 5]),
            lambda: one.update(data="text"),
            lambda: one.update(data=[None]),
            lambda: one.update(data=[1.5]),
            lambda: body["inputs"].append(dict(one)),
            lambda: body["inputs"].clear(),
            lambda: body.pop("inputs"),
            lambda: body.update(outputs=[{"name": "WRONG"}]),
            lambda: body.update(outputs=[]),
            lambda: body.update(outputs=[{}]),
            lambda: body.update(parameters={"timeout": -1}),
            lambda: body.update(parameters={"sequence_id": "word"}),
            lambda: body.update(parameters={"triton_x": 1}),
            lambda: body.update(parameters=[]),
            lambda: body.update(id=5),
            lambda: body.update(more={"un": ["known"]}),
        ]
        index = self.random.randrange(len(changes))
        changes[index]()
        return index

    def path(self, model, what="infer"):
        version = self.random.choice(["", "", "", "/versions/1", "/versions/3", "/versions/2", "/versions/x", "/versions/"])
        return f"/v2/models/{model}{version}/{what}"

    def http_infer(self):
        model = self.random.choice(self.models)
        body, label, headers = self.body(model), "good", {}
        if self.random.random() < 0.35 and model != "sequence":
            label = f"mistake {self.mistake(body)}"
        if label == "good" and self.random.random() < 0.3:
            headers, data = self.as_binary(body)
            label = "binary"
        else:
            data = json.dumps(body).encode()
        if self.random.random() < 0.03:
            data, label = data[:self.random.randrange(len(data))], "cut"
        if "binary" in label and self.random.random() < 0.2:
            data, label = data + b"more", "binary, bytes too many"
        return Http(f"infer {model} {label}", self.path(model), body=data, headers=headers)

    # ---- generate ----

    def generate(self):
        model = self.random.choice([m for m in self.models if m != "sequence"])
        body = {}
        for name, datatype, dims in signature(model)[0]:
            count = 1 if self.random.random() < 0.5 else self.random.choice([0, 2, 3])
            data = [self.element(model, datatype) for _ in range(4 if dims == [4] else count)]
            body[name] = data[0] if len(data) == 1 and self.random.random() < 0.7 else data
        for key, value in [("id", "g"), ("parameters", {"text": "t"}), ("more", 5), ("more", [1]), ("more", {"a": 1})]:
            if self.random.random() < 0.1:
                body[key] = value
        data = json.dumps(body).encode()
        if self.random.random() < 0.03:
            data = data[:self.random.randrange(len(data))]
        what = self.random.choice(["generate", "generate_stream"])
        return Http(f"{what} {model}", self.path(model, what), body=data)

    # ---- gRPC ----

    def request(self, model):
        message = infer_request(model, [(name, kind, shape, self.raw(kind, data)) for name, kind, shape, data in self.tensors(model)])
        if self.random.random() < 0.3:
            message.id = self.random.choice(["1", "some-id"])
        if self.random.random() < 0.2:
            message.model_version = self.random.choice(["1", "2", "3", "x"])
        for name, value in self.parameters(model).items():
            kind = {bool: "bool_param", int: "int64_param", float: "double_param"}.get(type(value), "string_param")
            setattr(message.parameters[name], kind, value)
        if self.random.random() < 0.2:
            message.outputs.add(name=self.random.choice(signature(model)[1])[0])
        return message

    def grpc_mistake(self, message):
        one = self.random.choice(message.inputs) if message.inputs else pb.ModelInferRequest.InferInputTensor()
        changes = [
            lambda: setattr(one, "name", "WRONG"),
            lambda: setattr(one, "datatype", self.random.choice(TYPES)),
            lambda: setattr(one, "datatype", "NOPE"),
            lambda: one.shape.append(1),
            lambda: one.ClearField("shape"),
            lambda: setattr(message, "model_name", "nobody"),
            lambda: message.outputs.add(name="WRONG"),
            lambda: message.raw_input_contents.append(b"more"),
            lambda: message.ClearField("raw_input_contents"),
            lambda: message.ClearField("inputs"),
            lambda: setattr(message.parameters["triton_x"], "int64_param", 1),
            lambda: setattr(message.parameters["sequence_id"], "string_param", "word"),
        ]
        index = self.random.randrange(len(changes))
        changes[index]()
        return index

    def grpc_infer(self):
        model = self.random.choice(self.models)
        message, label = self.request(model), "good"
        if self.random.random() < 0.3 and model != "sequence":
            label = f"mistake {self.grpc_mistake(message)}"
        return Grpc(f"ModelInfer {model} {label}", "ModelInfer", message)

    def grpc_stream(self):
        """One model a stream. Of decoupled ones one request: two have ended Triton. Of sequences too: they are batched by chance."""
        model = self.random.choice([m for m in self.models if m != "cached"])
        count = 1 if "decoupled" in model or model == "sequence" else self.random.randint(1, 4)
        messages = [self.request(model) for _ in range(count)]
        for number, one in enumerate(messages):
            one.id = str(number)
            if self.random.random() < 0.1 and model != "sequence":
                self.grpc_mistake(one)
                one.id = str(number)
        return Grpc(f"ModelStreamInfer {model}", "ModelStreamInfer", messages)

    # ---- everything that only asks ----

    def http_status(self):
        model = self.random.choice([*self.models, "nobody", "a b", "%2e"])
        paths = ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models", "/v2/models/stats", "/v2/nothing", "/", "/v2/", "/v2/models/",
                 f"/v2/models/{model}", f"/v2/models/{model}/ready", f"/v2/models/{model}/config", f"/v2/models/{model}/stats",
                 f"/v2/models/{model}/versions/1", f"/v2/models/{model}/versions/2/ready", f"/v2/models/{model}/versions/3/config",
                 f"/v2/models/{model}/versions/x", f"/v2/models/{model}/trace/setting", "/v2/trace/setting", "/v2/logging",
                 "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/none/status", "/v2/cudasharedmemory/status"]  # yapf: disable
        path = self.random.choice(paths).replace(" ", "%20")
        method = "GET" if self.random.random() < 0.85 else self.random.choice(["POST", "PUT", "DELETE", "HEAD"])
        return Http(f"{method} {path}", path, method, b"{}" if method == "POST" else b"")

    def index(self):
        body = self.random.choice([b"", b"{}", b'{"ready":true}', b'{"ready":false}', b'{"ready":5}', b"[", b'{"more":1}'])
        return Http("index", "/v2/repository/index", body=body)

    def grpc_status(self):
        name = self.random.choice([*self.models, "nobody"])
        version = self.random.choice(["", "1", "2", "3", "x"])
        method, message = self.random.choice([
            ("ServerLive", pb.ServerLiveRequest()),
            ("ServerReady", pb.ServerReadyRequest()),
            ("ServerMetadata", pb.ServerMetadataRequest()),
            ("ModelReady", pb.ModelReadyRequest(name=name, version=version)),
            ("ModelMetadata", pb.ModelMetadataRequest(name=name, version=version)),
            ("ModelConfig", pb.ModelConfigRequest(name=name, version=version)),
            ("ModelStatistics", pb.ModelStatisticsRequest(name=name, version=version)),
            ("RepositoryIndex", pb.RepositoryIndexRequest()),
            ("TraceSetting", pb.TraceSettingRequest()),
            ("LogSettings", pb.LogSettingsRequest()),
            ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
        ])
        return Grpc(f"{method} {json_format.MessageToDict(message)}", method, message)

    def next(self):
        makers = [(self.http_infer, 40), (self.grpc_infer, 20), (self.generate, 14), (self.grpc_stream, 12), (self.http_status, 10), (self.index, 1),
                  (self.grpc_status, 5)]  # yapf: disable
        return self.random.choices([maker for maker, _ in makers], [weight for _, weight in makers])[0]()
