# SPDX-License-Identifier: Apache-2.0
"""proa.Session, and the programs of examples/python-session: beams of one's own are the engine's."""
import importlib.util
import pathlib

import numpy as np
import pytest

import proa
from proa import arrays

ROOT = pathlib.Path(__file__).parents[2]
PROMPTS = {
    "m30k-t5": "translate English to German: A man in a red shirt is reading a newspaper on a bench.",
    "classics-10m": "It was a dark and stormy",
}


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/python-session/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=list(PROMPTS))
def llm(request):
    with proa.LLM(ROOT / "models" / request.param, dtype="f32") as model:
        model.prompt = PROMPTS[request.param]
        yield model


def engine_beams(llm, beams, tokens):
    params = proa.SamplingParams(temperature=0, max_tokens=tokens, extra_args={"beams": beams})
    return [(o.score, o.token_ids) for o in llm.generate(llm.prompt, params)[0].outputs]


def assert_same_beams(own, theirs):
    assert [ids for _, ids in own] == [ids for _, ids in theirs]
    np.testing.assert_allclose([s for s, _ in own], [s for s, _ in theirs], atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3, 8])
def test_own_beam_search_gives_the_engine_s_beams(llm, beams):
    with proa.Session(llm, beams) as session:
        own = example("beam_search").beam_search(session, llm.engine.encode(llm.prompt), beams, 24)
    if beams == 1:
        greedy = llm.generate(llm.prompt, proa.SamplingParams(temperature=0, max_tokens=24))[0].outputs[0]
        assert own[0][1] == greedy.token_ids
    else:
        assert_same_beams(own, engine_beams(llm, beams, 24))


def test_own_beam_search_over_torch_tensors(llm):
    torch = pytest.importorskip("torch")
    with proa.Session(llm, 4) as session:
        ids = torch.tensor(llm.engine.encode(llm.prompt))
        best, results = example("beam_search_torch").beam_search(session, ids, 4, 24)
    theirs = engine_beams(llm, 4, 24)
    end = llm.engine.info["eos_id"]
    filled = [ids + [end] * (24 - len(ids)) for _, ids in theirs]
    assert_same_beams(list(zip(best.tolist(), results.tolist())), [(s, i) for (s, _), i in zip(theirs, filled)])


def test_the_operator_runs_under_torch_compile():
    pytest.importorskip("torch")
    with proa.LLM(ROOT / "models/classics-10m", dtype="f32") as model, proa.Session(model) as session:
        ids = model.engine.encode(PROMPTS["classics-10m"])
        own = example("torch_op").generate(session, ids, 10)
        theirs = model.generate([ids], proa.SamplingParams(temperature=0, max_tokens=10))[0].outputs[0].token_ids
        assert own == theirs


def test_outputs_and_kinds_of_arrays(llm):
    info = llm.engine.info
    ids = llm.engine.encode(llm.prompt)[:5]
    with proa.Session(llm, 2) as session:
        if info["kind"] == "encoder-decoder":
            for i in (0, 1):
                assert session.encode(np.array(ids), i).shape == (5, info["hidden"])
        logits, hidden = session.step([ids, ids[:3]], output="both")
        assert logits.shape == (2, info["outputs"]) and hidden.shape == (2, info["hidden"])
        assert session.step([[5], [6]], all_rows=True).shape == (2, info["outputs"])
        assert session.length(0) == 6 and session.length(1) == 4
        session.truncate(0, 3)
        assert session.length(0) == 3


def test_errors_name_what_is_wrong(llm):
    with proa.Session(llm, 2) as session:
        with pytest.raises(proa.InvalidArgumentError, match="sequence 2, must be 0 to 1"):
            session.fork(0, 2)
        with pytest.raises(proa.InvalidArgumentError, match="output is 'x'"):
            session.step([[1]], output="x")
        with pytest.raises(proa.InvalidArgumentError, match="must have"):
            session.step([np.zeros((1, 3), np.float32)])
    with pytest.raises(proa.InvalidArgumentError, match="the session is closed"):
        session.step([[1]])
    with pytest.raises(proa.LimitError, match="'sequences' is 17, must be 1 to 16"):
        proa.Session(llm, 17)


def test_embeddings_stand_for_ids():
    """Rows of the embedding table in place of their ids give the same logits."""
    header_len = int.from_bytes((ROOT / "models/classics-10m/model.safetensors").open("rb").read(8), "little")
    import json

    data = (ROOT / "models/classics-10m/model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + header_len])
    entry = header["model.embed_tokens.weight"]
    begin, end = (8 + header_len + at for at in entry["data_offsets"])
    assert entry["dtype"] in ("F32", "BF16")
    if entry["dtype"] == "F32":
        table = np.frombuffer(data[begin:end], np.float32)
    else:
        table = (np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
    table = table.reshape(entry["shape"])
    ids = [5, 77, 300]
    with proa.Session(ROOT / "models/classics-10m", 2, dtype="f32") as session:
        by_ids, by_rows = session.step([ids], [0]), session.step([table[ids]], [1])
        np.testing.assert_allclose(by_rows, by_ids, atol=1e-5)


# ---- whose memory ----


def embeddings_of(session, count):
    return np.random.default_rng(3).standard_normal((count, session.engine.info["embedding"]), np.float32)


def test_tensors_on_the_cpu_are_used_in_place():
    torch = pytest.importorskip("torch")
    tensor, array = torch.arange(6, dtype=torch.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    assert arrays.to_numpy(tensor).ctypes.data == tensor.data_ptr()
    assert arrays.like(tensor, array).data_ptr() == array.ctypes.data
    with proa.Session(ROOT / "models/classics-10m", 2, dtype="f32") as session:
        rows = embeddings_of(session, 5)
        by_torch, by_numpy = session.step([torch.from_numpy(rows)], [0]), session.step([rows], [1])
        assert isinstance(by_torch, torch.Tensor) and isinstance(by_numpy, np.ndarray)
        assert np.array_equal(by_torch.numpy(), by_numpy)


class OnGpu:
    """What a library of GPU arrays shows of one, over memory of the host."""

    def __init__(self, array, device=(2, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        assert stream == 1
        return self.array.__dlpack__()

    def __array_namespace__(self):
        return np


def test_ids_of_all_rows_are_one_array():
    torch = pytest.importorskip("torch")
    for rows in (torch.arange(6).reshape(3, 2), torch.arange(6).reshape(3, 2).unbind(), [torch.arange(6)[i] for i in range(6)]):
        ids, counts = arrays.joined_ids(rows)
        assert ids.dtype == torch.int32 and ids.tolist() == [*range(6)] and sum(counts) == 6 and len(counts) == len(rows)
    assert arrays.joined_ids(torch.arange(3))[1] == [1, 1, 1]


def test_arrays_of_the_same_kind_are_made():
    made = arrays.empty_like([OnGpu(np.zeros(1, np.float32))], (2, 3))
    assert made.shape == (2, 3) and made.dtype == np.float32


def test_arrays_of_cupy_stay_on_the_gpu():
    cupy = pytest.importorskip("cupy")
    with proa.Session(ROOT / "models/classics-10m", 2, dtype="f32", device="cuda") as session:
        rows = embeddings_of(session, 5)
        mine, theirs = session.step([cupy.asarray(rows)], [0]), session.step([rows], [1])
        assert isinstance(mine, cupy.ndarray)
        np.testing.assert_allclose(cupy.asnumpy(mine), theirs, atol=1e-4)


def test_arrays_of_other_libraries_are_read_by_dlpack():
    array = np.zeros((4, 3), np.float32)
    assert arrays.gpu_of(OnGpu(array)) == 0 and arrays.gpu_of(OnGpu(array, (13, 1))) == 1
    assert arrays.gpu_of(OnGpu(array, (1, 0))) == -1 and arrays.gpu_of([array]) == -1 and arrays.gpu_of([]) == -1
    view = arrays.GpuArray(OnGpu(array[1:]))
    assert (view.address, view.shape, view.stream) == (array[1:].ctypes.data, (3, 3), 0)
    for wrong in (array[:, :2], array.astype(np.float64), array.astype(np.int32), array.T):
        with pytest.raises(proa.InvalidArgumentError, match="float32 without gaps"):
            arrays.GpuArray(OnGpu(wrong))


@pytest.fixture(scope="module")
def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch


def test_tensors_on_a_gpu_stay_there(cuda):
    with proa.Session(ROOT / "models/classics-10m", 2, dtype="f32", device="cuda") as session:
        rows = embeddings_of(session, 5)
        on_gpu = cuda.tensor(rows, device="cuda")
        logits, hidden = session.step([on_gpu], [0], output="both", all_rows=True)
        by_host = session.step([rows], [1], output="both", all_rows=True)
        for mine, theirs in zip((logits, hidden), by_host):
            assert mine.device == on_gpu.device
            np.testing.assert_allclose(mine.cpu().numpy(), theirs, atol=1e-4)
        stream = cuda.cuda.Stream()
        with cuda.cuda.stream(stream):  # work that is not done when the session is called, and work behind it
            late = cuda.zeros_like(on_gpu)
            cuda.cuda._sleep(20_000_000)
            late += on_gpu
            session.truncate(0)
            again = session.step([late], [0]) + 0
        stream.synchronize()
        cuda.testing.assert_close(again[0], logits[-1], atol=1e-4, rtol=0)


def test_ids_on_a_gpu_are_those_of_the_host(cuda):
    with proa.Session(ROOT / "models/classics-10m", 3, dtype="f32", device="cuda", step_tokens=256) as session:
        ids = [[5, 77, 300], [9, 13], [5, 77, 300, 4, 6, 8]]
        theirs = session.step(ids, output="both", all_rows=True)
        on_gpu = [cuda.tensor(row, device="cuda") for row in ids]
        rows = session.engine.encode("It was a dark and stormy night, and the wind was high.") * 60
        for given in (on_gpu, [row.to(cuda.int32) for row in on_gpu], [*on_gpu[:2], ids[2]]):
            for i in range(3):
                session.truncate(i)
            mine = session.step(given, output="both", all_rows=True)
            for a, b in zip(mine, theirs):
                assert a.is_cuda
                np.testing.assert_allclose(a.cpu().numpy(), b, atol=1e-4)
        for i in range(2):
            session.truncate(i)
        long = session.step([rows], [0])  # more than a step's budget of rows
        np.testing.assert_allclose(session.step([cuda.tensor(rows, device="cuda")], [1]).cpu().numpy(), long, atol=1e-3)


def test_a_loop_on_a_gpu_needs_no_host(cuda):
    """Each step's token is chosen on the GPU, which the host does not wait for."""
    with proa.LLM(ROOT / "models/classics-10m", dtype="f32", device="cuda") as model, proa.Session(model) as session:
        ids = model.engine.encode(PROMPTS["classics-10m"])
        greedy = model.generate([ids], proa.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True))
        token, out = session.step(cuda.tensor([ids], device="cuda")).argmax(-1), []
        cuda.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(24):
                out.append(token)
                token = session.step(token[:, None]).argmax(-1)
        finally:
            cuda.cuda.set_sync_debug_mode("default")
        assert cuda.cat(out).tolist() == greedy[0].outputs[0].token_ids


def test_encoder_memory_on_a_gpu_stays_there(cuda):
    with proa.Session(ROOT / "models/m30k-t5", 2, dtype="f32", device="cuda") as session:
        ids = cuda.tensor(session.engine.encode(PROMPTS["m30k-t5"]), device="cuda")
        memory = session.encode(ids, 0)
        assert memory.is_cuda and memory.shape == (len(ids), session.engine.info["hidden"])
        session.set_encoder_outputs(memory, 1)
        start = cuda.full((2, 1), session.engine.info["decoder_start_id"], device="cuda")
        logits = session.step(start)
        assert logits.is_cuda
        cuda.testing.assert_close(logits[0], logits[1], atol=1e-4, rtol=0)


def test_own_beam_search_over_tensors_on_a_gpu(cuda):
    for name, prompt in PROMPTS.items():
        with proa.LLM(ROOT / "models" / name, dtype="f32", device="cuda") as model, proa.Session(model, 4) as session:
            model.prompt = prompt
            ids = cuda.tensor(model.engine.encode(prompt), device="cuda")
            best, results = example("beam_search_torch").beam_search(session, ids, 4, 24)
            theirs, end = engine_beams(model, 4, 24), model.engine.info["eos_id"]
            assert best.is_cuda
            filled = [ids + [end] * (24 - len(ids)) for _, ids in theirs]
            assert results.tolist() == filled
            np.testing.assert_allclose(best.tolist(), [score for score, _ in theirs], atol=1e-4)


def test_a_session_survives_its_engine_being_closed_first():
    model = proa.LLM(ROOT / "models/classics-10m")
    session = proa.Session(model)
    session.step([[5]])
    model.close()
    with pytest.raises(proa.UnavailableError):
        session.step([[5]])
    session.close()
