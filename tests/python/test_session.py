# SPDX-License-Identifier: Apache-2.0
"""proa.Session, and the programs of examples/python-session: beams of one's own are the engine's."""
import importlib.util
import pathlib

import numpy as np
import pytest

import proa

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


def test_a_session_survives_its_engine_being_closed_first():
    model = proa.LLM(ROOT / "models/classics-10m")
    session = proa.Session(model)
    session.step([[5]])
    model.close()
    with pytest.raises(proa.UnavailableError):
        session.step([[5]])
    session.close()
