# SPDX-License-Identifier: Apache-2.0
"""The repository that both servers load: Python models, ensembles of them, and a configuration for each."""
import pathlib
import textwrap

HEAD = """
import json, time
import numpy as np
import triton_python_backend_utils as pb_utils


def value(request, name="IN"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def out(array, name="OUT"):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])


class TritonPythonModel:
"""
IDENTITY = """
def execute(self, requests):
    return [out(value(one)) for one in requests]
"""
ADD_SUB = """
def execute(self, requests):
    answers = []
    for one in requests:
        a, b = value(one, "A"), value(one, "B")
        answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFF", a - b)]))
    return answers
"""
OPTIONAL = """
def execute(self, requests):
    answers = []
    for one in requests:
        b = pb_utils.get_input_tensor_by_name(one, "B")
        answers.append(out(value(one, "A") + (0 if b is None else b.as_numpy())))
    return answers
"""
# The text of the input says what becomes of the request.
ODD = r"""
def answer(self, request):
    word = value(request).ravel()[0].decode()
    text = np.array([word.encode()], dtype=np.object_)
    if word == "error":
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("two\nlines, \"quoted\""))
    if word == "code":
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("not here", pb_utils.TritonError.NOT_FOUND))
    if word == "long":
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("line\n" * 600))
    if word == "int64":
        return out(np.array([1, 2], np.int64))
    if word == "rank":
        return out(np.array([[b"a", b"b"]], dtype=np.object_))
    if word == "extra":
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text), pb_utils.Tensor("MORE", text)])
    if word == "params":
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])
    return out(text)

def execute(self, requests):
    for one in requests:
        if value(one).ravel()[0] == b"raise":
            raise ValueError("this went\nwrong")
    return [self.answer(one) for one in requests]
"""
# a: an answer, e: an error, anything else: nothing.
DECOUPLED = """
def execute(self, requests):
    for one in requests:
        sender = one.get_response_sender()
        for i, step in enumerate(value(one).ravel()[0].decode()):
            if step == "a":
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUM", np.array([i], np.int32))]))
            elif step == "e":
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"error {i}")))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
SEEN = """
def execute(self, requests):
    answers = []
    for one in requests:
        seen = {"id": one.request_id(), "names": sorted(one.requested_output_names()), "parameters": json.loads(one.parameters()),
                "correlation": one.correlation_id(), "flags": one.flags(), "timeout": one.timeout()}
        answers.append(out(np.array([json.dumps(seen, sort_keys=True).encode()], dtype=np.object_)))
    return answers
"""
BLS = """
def execute(self, requests):
    answers = []
    for one in requests:
        inner = pb_utils.InferenceRequest(model_name=MODEL, requested_output_names=["OUT"], inputs=one.inputs()).exec()
        answers.append(pb_utils.InferenceResponse(error=inner.error()) if inner.has_error() else inner)
    return answers
"""
SEQUENCE = """
def initialize(self, args):
    self.sums = {}

def execute(self, requests):
    answers = []
    for one in requests:
        key = int(value(one, "CORR").ravel()[0])
        first = int(value(one, "START").ravel()[0])
        self.sums[key] = value(one) + (0 if first else self.sums.get(key, 0))
        answers.append(out(self.sums[key].reshape(1, 1)))
    return answers
"""
CONTROLS = """
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "CORR" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ]
}
"""
DECOUPLING = "model_transaction_policy { decoupled: true }"
LIBRARY = '\nruntime: "libtriton_python.so"\n'


def io(side, spec):
    """Tensors from "NAME:TYPE:DIMS[:MORE]" words."""
    rows = []
    for word in spec.split():
        name, kind, dims, *more = word.split(":", 3)
        rows.append(f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] {"".join(more)} }}')
    return f"{side} [ {', '.join(rows)} ]\n"


def step(model, taken, given):
    def maps(kind, names):
        return " ".join(f'{kind} {{ key: "{key}" value: "{value}" }}' for key, value in names.items())

    return f'{{ model_name: "{model}" model_version: -1 {maps("input_map", taken)} {maps("output_map", given)} }}'


# name: (code, inputs, outputs, max_batch_size, more)
PYTHON = {
    "id_bool": (IDENTITY, "IN:BOOL:-1", "OUT:BOOL:-1", 0, ""),
    "id_uint8": (IDENTITY, "IN:UINT8:-1", "OUT:UINT8:-1", 0, ""),
    "id_int64": (IDENTITY, "IN:INT64:-1,2", "OUT:INT64:-1,2", 0, ""),
    "id_fp32": (IDENTITY, "IN:FP32:-1", "OUT:FP32:-1", 4, 'version_policy { all {} }'),
    "id_bytes": (IDENTITY, "IN:STRING:-1", "OUT:STRING:-1", 0, ""),
    "id_int32": (IDENTITY, "IN:INT32:-1", "OUT:INT32:-1", 0, ""),
    "add_sub": (ADD_SUB, "A:INT32:4 B:INT32:4", "SUM:INT32:4:label_filename:\"labels.txt\" DIFF:INT32:4", 8, ""),
    "optional": (OPTIONAL, "A:INT32:-1 B:INT32:-1:optional:true", "OUT:INT32:-1", 0, ""),
    "odd": (ODD, "IN:STRING:-1", "OUT:STRING:-1", 0, ""),
    "decoupled": (DECOUPLED, "IN:STRING:1", "NUM:INT32:1", 0, DECOUPLING),
    "seen": (SEEN, "IN:INT32:-1", "OUT:STRING:1", 0, ""),
    "bls": (BLS.replace("MODEL", '"odd"'), "IN:STRING:-1", "OUT:STRING:-1", 0, ""),
    "sequence": (SEQUENCE, "IN:INT32:1", "OUT:INT32:1", 4, CONTROLS),
    "cached": (IDENTITY, "IN:INT32:-1", "OUT:INT32:-1", 0, "response_cache { enable: true }"),
}
# name: (inputs, outputs, steps)
ENSEMBLES = {
    "ens_chain": ("IN:INT32:-1", "OUT:INT32:-1",
                  [step("id_int32", {"IN": "IN"}, {"OUT": "MID"}), step("cached", {"IN": "MID"}, {"OUT": "OUT"})]),
    "ens_two": ("IN:STRING:-1", "LEFT:STRING:-1 RIGHT:STRING:-1",
                [step("id_bytes", {"IN": "IN"}, {"OUT": "LEFT"}), step("odd", {"IN": "IN"}, {"OUT": "RIGHT"})]),
    "ens_decoupled": ("IN:STRING:1", "OUT:INT32:1",
                      [step("decoupled", {"IN": "IN"}, {"NUM": "MID"}), step("id_int32", {"IN": "MID"}, {"OUT": "OUT"})]),
}  # yapf: disable


def write_python(folder, name, code, inputs, outputs, batch=0, more="", versions=(1, ), count=1):
    for version in versions:
        path = pathlib.Path(folder) / name / str(version)
        path.mkdir(parents=True, exist_ok=True)
        (path / "model.py").write_text(HEAD + textwrap.indent(textwrap.dedent(code), "    "))
    config = f'backend: "python"\nmax_batch_size: {batch}\n{io("input", inputs)}{io("output", outputs)}'
    (pathlib.Path(folder) / name / "config.pbtxt").write_text(config + f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]\n{more}\n")


def write_ensemble(folder, name, inputs, outputs, steps):
    path = pathlib.Path(folder) / name
    (path / "1").mkdir(parents=True, exist_ok=True)
    text = f'platform: "ensemble"\n{io("input", inputs)}{io("output", outputs)}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}\n'
    (path / "config.pbtxt").write_text(text)


def write_all(folder, library=False):
    """library: Triton's Python backend runs the models in Proa too."""
    for name, (code, inputs, outputs, batch, more) in PYTHON.items():
        write_python(folder, name, code, inputs, outputs, batch, more + (LIBRARY if library else ""),
                     (1, 3) if name == "id_fp32" else (1, ))
    (pathlib.Path(folder) / "add_sub" / "labels.txt").write_text("zero\none\ntwo\nthree\n")
    for name, (inputs, outputs, steps) in ENSEMBLES.items():
        write_ensemble(folder, name, inputs, outputs, steps)
