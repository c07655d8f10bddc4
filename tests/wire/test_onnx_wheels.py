# SPDX-License-Identifier: Apache-2.0
"""Models that public Python packages hold: the packages' own code answers the same when its session is replaced by `infer`,
over HTTP and gRPC. Packages that are not there are skipped; where one needs a larger one (torch, OpenCV), its models are
compared with ONNX Runtime on made inputs."""
import importlib.util
import pathlib

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import np_to_triton_dtype
from wire import ROOT, Server

onnxruntime = pytest.importorskip("onnxruntime")
LIBRARY = max((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))


def package(name):
    """The folder of a package, which is not imported. A plain folder of that name is none."""
    found = importlib.util.find_spec(name)
    return pathlib.Path(found.origin).parent if found and found.origin else None


MODELS = {  # name: (package, path of the file in it, configuration)
    "magika": ("magika", "models/standard_v3_3/model.onnx", None),
    "silero": ("silero_vad", "data/silero_vad.onnx", None),
    "det": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", None),
    "cls": ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", None),
    "rec": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", "max_batch_size: 8\n"),
    "silero-stream": ("silero_vad", "data/silero_vad.onnx", """
        backend: "onnxruntime"
        input [ { name: "input" data_type: TYPE_FP32 dims: [ 1, -1 ] }, { name: "sr" data_type: TYPE_INT64 dims: [ 1 ] } ]
        output [ { name: "output" data_type: TYPE_FP32 dims: [ -1, 1 ] } ]
        sequence_batching { state [ { input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [ 2, 1, 128 ]
            initial_state: { name: "zero" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] zero_data: true } } ] }
        """),
}


def path_of(name):
    return package(MODELS[name][0]) / MODELS[name][1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for name, (owner, file, config) in MODELS.items():
        if not package(owner):
            continue
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.onnx").symlink_to(package(owner) / file)
        if config:
            (folder / name / "config.pbtxt").write_text(config)
    if not any(folder.iterdir()):
        pytest.skip("none of the packages magika, silero-vad, rapidocr-onnxruntime is there")
    with Server(f"--backend-config=onnxruntime,library={LIBRARY}", "--backend-config=onnxruntime,default-max-batch-size=64",
                repositories=[folder]) as one:
        yield one


def need(*names):
    for name in names:
        if not package(name):
            pytest.skip(f"needs the package {name}")


class Remote:
    """A session of ONNX Runtime whose runs are requests, over both protocols, which must answer the same. What the packages
    ask of a session beside runs comes from a real one."""

    def __init__(self, server, model):
        self.model, self.runs = model, 0
        self.session = onnxruntime.InferenceSession(path_of(model), providers=["CPUExecutionProvider"])
        self.clients = [(http, http.InferenceServerClient(server.http)), (grpc, grpc.InferenceServerClient(server.grpc))]

    def __getattr__(self, name):
        return getattr(self.session, name)

    def request(self, protocol, client, names, feeds, **more):
        tensors = []
        kinds = {i.name: i.type for i in self.session.get_inputs()}
        for name, data in feeds.items():
            data = np.asarray(data, np.int32 if kinds[name] == "tensor(int32)" else None)  # lists take the model's type
            data = data.reshape(1) if data.ndim == 0 else data
            tensors.append(protocol.InferInput(name, data.shape, np_to_triton_dtype(data.dtype)))
            tensors[-1].set_data_from_numpy(np.ascontiguousarray(data))
        result = client.infer(self.model, tensors, outputs=[protocol.InferRequestedOutput(n) for n in names], **more)
        return [result.as_numpy(name) for name in names]

    def run(self, names, feeds, *_):
        names = names or [o.name for o in self.session.get_outputs()]
        first, second = (self.request(*one, names, feeds) for one in self.clients)
        for a, b in zip(first, second):
            np.testing.assert_array_equal(a, b)
        self.runs += 1
        return first


def compare(server, model, feeds):
    """`infer` against a session of the Python package on the same inputs: equal to the bit."""
    remote = Remote(server, model)
    for got, want in zip(remote.run(None, feeds), remote.session.run(None, feeds)):
        np.testing.assert_array_equal(got, want)


def test_magika_names_the_types_of_files(server):
    need("magika")
    import magika
    own, served = magika.Magika(), magika.Magika()
    served._onnx_session = Remote(server, "magika")
    files = [ROOT / p for p in ("README.md", "CMakeLists.txt", "do", "src/cli/main.c", "tests/wire/wire.py", "docs/site/mkdocs.yml",
                                "tests/requirements.txt", "include/proa/proa.h")] + [path_of("magika"), LIBRARY]
    for want, got in zip(own.identify_paths(files), served.identify_paths(files)):
        assert (got.output.label, got.score) == (want.output.label, want.score), want.path
    assert served._onnx_session.runs > 0
    assert served.identify_path(ROOT / "src/cli/main.c").output.label == "c"


def sound(seconds=4, rate=16000):
    """Vowel-like harmonics that come and go over quiet noise."""
    t = np.arange(seconds * rate) / rate
    voice = sum(np.sin(2 * np.pi * 140 * k * t + 3 * np.sin(2 * np.pi * 3 * t)) / k for k in range(1, 20))
    gate = (np.sin(2 * np.pi * 0.5 * t) > 0) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t))
    return (0.2 * voice * gate + 0.003 * np.random.default_rng(1).standard_normal(t.size)).astype(np.float32)


def test_silero_finds_speech(server):
    need("silero_vad", "torch")
    import silero_vad
    import torch
    own, served = (silero_vad.utils_vad.OnnxWrapper(str(path_of("silero"))) for _ in range(2))
    served.session = Remote(server, "silero")
    audio = torch.from_numpy(sound())
    assert torch.equal(served.audio_forward(audio, 16000), own.audio_forward(audio, 16000))
    assert silero_vad.get_speech_timestamps(audio, served) == silero_vad.get_speech_timestamps(audio, own)
    assert served.session.runs > 100


def windows(audio, count=20, samples=512, context=64):
    """The windows of the model at 16 kHz, each behind the end of the one before, as the package makes them."""
    padded = np.concatenate([np.zeros(context, np.float32), audio])
    return [padded[i * samples : (i + 1) * samples + context][None] for i in range(count)]


def test_silero_with_its_state_at_the_client(server):
    need("silero_vad")
    remote = Remote(server, "silero")
    states = [np.zeros((2, 1, 128), np.float32)] * 2
    rate = np.array(16000, np.int64)
    for window in windows(sound()):
        answers = [session.run(None, {"input": window, "state": state, "sr": rate})
                   for session, state in zip((remote, remote.session), states)]
        for got, want in zip(*answers):
            np.testing.assert_array_equal(got, want)
        states = [answer[1] for answer in answers]


def test_silero_with_its_state_at_the_server(server):
    """Two streams in turns: sequence batching keeps the state of each."""
    need("silero_vad")
    remote = Remote(server, "silero-stream")
    state = np.zeros((2, 1, 128), np.float32)
    parts = windows(sound())
    for i, window in enumerate(parts):
        want, state = remote.session.run(None, {"input": window, "state": state, "sr": np.array(16000, np.int64)})
        for sequence, client in enumerate(remote.clients):
            got = remote.request(*client, ["output"], {"input": window, "sr": np.array(16000, np.int64)},
                                 sequence_id=sequence + 1, sequence_start=i == 0, sequence_end=i + 1 == len(parts))
            np.testing.assert_array_equal(got[0], want)


def test_rapidocr_reads_an_image(server):
    need("rapidocr_onnxruntime", "cv2", "pyclipper", "shapely")
    import cv2
    import rapidocr_onnxruntime
    image = np.full((240, 640, 3), 255, np.uint8)
    for i, text in enumerate(("Inference 2026", "batch 512", "tensors")):
        cv2.putText(image, text, (20, 60 + 70 * i), cv2.FONT_HERSHEY_SIMPLEX, 1.6, (0, 0, 0), 3)
    own, served = rapidocr_onnxruntime.RapidOCR(), rapidocr_onnxruntime.RapidOCR()
    sessions = {"det": served.text_det.infer, "cls": served.text_cls.infer, "rec": served.text_rec.session}
    for model, infer in sessions.items():
        infer.session = Remote(server, model)
    want, got = own(image)[0], served(image)[0]
    assert got == want and "tensors" in [line[1] for line in got]
    assert all(infer.session.runs > 0 for infer in sessions.values())


@pytest.mark.parametrize("model, shape", [("det", (1, 3, 64, 96)), ("det", (2, 3, 96, 64)), ("cls", (3, 3, 48, 192)), ("rec", (4, 3, 48, 320))])
def test_the_models_of_rapidocr(server, model, shape):
    need("rapidocr_onnxruntime")
    feeds = {"x": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    compare(server, model, feeds)
