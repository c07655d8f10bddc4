# SPDX-License-Identifier: Apache-2.0
"""transformers' scripts with one import changed give the ids and scores of transformers (tests/golden/drop_in.npz)."""
import json
import pathlib

import numpy as np
import pytest
from drop_in_scripts import DOG, LLAMA, SCRIPTS, T5

import proa

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = np.load(ROOT / "tests/golden/drop_in.npz")


@pytest.fixture(scope="module")
def load():
    models = {}

    def open_model(kind, path):
        if (kind, path) not in models:
            auto = getattr(proa, "AutoModelFor" + kind if kind else "AutoModel")
            models[kind, path] = auto.from_pretrained(ROOT / path, dtype="f32", max_num_seqs=32)
        return models[kind, path]

    yield open_model
    for model in models.values():
        model.close()


def compare(name, results):
    expected = {key.split("/")[1]: GOLDEN[key] for key in GOLDEN.files if key.startswith(name + "/")}
    assert set(results) == set(expected)
    for key, value in results.items():
        value = np.asarray(value)
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(value, expected[key], err_msg=key)
            continue
        value = value[..., ::31] if value.shape[-1] > 512 else value
        assert value.shape == expected[key].shape, key
        np.testing.assert_array_equal(np.isneginf(value), np.isneginf(expected[key]), err_msg=key)
        finite = np.isfinite(expected[key])
        np.testing.assert_allclose(value[finite], expected[key][finite], atol=1e-4, err_msg=key)


def test_there_are_forty():
    assert len(SCRIPTS) == 40 and str(GOLDEN["versions"][1]).startswith("5.")


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_with_numpy(load, name):
    compare(name, SCRIPTS[name](load, lambda rows: np.array(rows, np.int64)))


@pytest.mark.parametrize("name", ["t5_beams_returned_with_scores", "llama_left_padding_batch", "bert_hidden_states"])
def test_script_with_torch(load, name):
    torch = pytest.importorskip("torch")
    results = SCRIPTS[name](load, torch.tensor)
    assert all(isinstance(value, torch.Tensor) for value in results.values())
    compare(name, results)


@pytest.mark.parametrize(
    "arguments",
    [
        {"output_attentions": True},
        {"output_hidden_states": True},
        {"guidance_scale": 1.5},
        {"assistant_model": object()},
        {"prefix_allowed_tokens_fn": lambda *_: [1]},
        {"max_time": 2.0},
        {"constraints": ["x"]},
        {"force_words_ids": [[5]]},
        {"watermarking_config": {}},
        {"dola_layers": "low"},
        {"num_beems": 3},
        {"logits_processor": [object()]},
        {"stopping_criteria": [object()]},
        {"negative_prompt_ids": np.array([[1]])},
        {"custom_generate": "x"},
        {"past_key_values": object()},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_an_argument_that_is_not_supported_is_named(load, arguments):
    model = load("CausalLM", LLAMA)
    with pytest.raises(proa.UnsupportedError, match=next(iter(arguments))):
        model.generate(np.array([[1, 395]]), max_new_tokens=2, **arguments)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"num_return_sequences": 2}, "'num_return_sequences' is 2"),
        ({"num_beams": 2, "num_return_sequences": 3}, "'num_return_sequences' is 3, must be at most 'num_beams'"),
        ({"max_length": 2}, "'max_length' is 2"),
        ({"repetition_penalty": -1.0}, "'repetition_penalty' is -1"),
        ({"attention_mask": np.array([[1, 1, 1]])}, "'attention_mask' has the shape"),
        ({"attention_mask": np.array([[0, 0]])}, "hides all"),
    ],
)
def test_a_wrong_value_is_named(load, arguments, text):
    with pytest.raises(ValueError, match=text):
        load("CausalLM", LLAMA).generate(np.array([[1, 395]]), **arguments)


def test_what_a_model_cannot_do_is_said(load):
    with pytest.raises(proa.UnsupportedError, match="has no generate"):
        load("", "tests/golden/arch/bert").generate(np.array([[2, 3]]))
    with pytest.raises(proa.InvalidArgumentError, match="AutoModelForCausalLM cannot be made"):
        proa.AutoModelForCausalLM.from_pretrained(ROOT / T5)
    with pytest.raises(proa.UnsupportedError, match="'do_sample' is not supported together with 'num_beams'"):
        load("CausalLM", LLAMA).generate(np.array([[1, 395]]), do_sample=True, num_beams=2)
    with pytest.raises(proa.UnsupportedError, match="padded on the right"):
        ids, mask = np.array([[0, 2, 3]]), np.array([[0, 1, 1]])
        load("Seq2SeqLM", "tests/golden/arch/bart").generate(ids, attention_mask=mask)


def embedding_rows(folder, name, ids):
    """Rows of a tensor of float32 in a safetensors file."""
    data = (ROOT / folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:begin])[name]
    table = np.frombuffer(data[begin:], np.uint8)[slice(*entry["data_offsets"])].view(np.float32)
    return table.reshape(entry["shape"])[ids]


def test_inputs_embeds_stand_for_ids(load):
    """As transformers: only the new ids are returned then; padding on the left is hidden by the mask."""
    model, ids = load("CausalLM", "tests/golden/arch/gpt2"), [5, 9, 13, 17]
    rows = embedding_rows("tests/golden/arch/gpt2", "transformer.wte.weight", ids)
    embeds = np.stack([rows, np.concatenate([np.zeros_like(rows[:2]), rows[:2]])])
    mask = np.array([[1, 1, 1, 1], [0, 0, 1, 1]])
    by_rows = model.generate(inputs_embeds=embeds, attention_mask=mask, max_new_tokens=8)
    padded = np.array([ids, [0, 0, *ids[:2]]])
    by_ids = model.generate(padded, attention_mask=mask, max_new_tokens=8)
    np.testing.assert_array_equal(by_rows, by_ids[:, 4:])


def test_ranks_give_the_same_ids(load):
    """Tensor parallelism, in generate and in a session."""
    ids = np.array([[1, 395, 285, 264]])
    one = load("CausalLM", LLAMA)
    two = proa.AutoModelForCausalLM.from_pretrained(ROOT / LLAMA, dtype="f32", tensor_parallel_size=2)
    np.testing.assert_array_equal(one.generate(ids, max_new_tokens=8), two.generate(ids, max_new_tokens=8))
    with proa.Session(one) as a, proa.Session(two) as b:
        np.testing.assert_allclose(a.step([ids[0]]), b.step([ids[0]]), atol=1e-3)
    two.close()


def test_processors_by_their_class(load):
    """transformers' processor objects are read by their class and attributes."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    model, ids = load("CausalLM", LLAMA), np.array([[1, 395, 285, 264]])
    processors = transformers.LogitsProcessorList(
        [transformers.RepetitionPenaltyLogitsProcessor(1.1), transformers.NoRepeatNGramLogitsProcessor(2)]
    )
    criteria = transformers.StoppingCriteriaList([transformers.MaxLengthCriteria(12)])
    by_objects = model.generate(ids, logits_processor=processors, stopping_criteria=criteria)
    by_names = model.generate(ids, repetition_penalty=1.1, no_repeat_ngram_size=2, max_length=12)
    np.testing.assert_array_equal(by_objects, by_names)


def test_a_seed_repeats_a_run(load):
    model, ids = load("CausalLM", LLAMA), np.array([[1, 395]])
    first = model.generate(ids, do_sample=True, seed=3, max_new_tokens=10, num_return_sequences=2)
    again = model.generate(ids, do_sample=True, seed=3, max_new_tokens=10, num_return_sequences=2)
    other = model.generate(ids, do_sample=True, seed=4, max_new_tokens=10, num_return_sequences=2)
    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist() and first[0].tolist() != first[1].tolist()


def test_pipelines_of_transformers():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(ROOT / LLAMA)
    model = proa.AutoModelForCausalLM.from_pretrained(ROOT / LLAMA, dtype="f32")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(ROOT / LLAMA, dtype="float32")
    answers = [
        transformers.pipeline("text-generation", model=m, tokenizer=tokenizer)(
            "It was", do_sample=False, max_new_tokens=8
        )
        for m in (model, theirs)
    ]
    assert answers[0] == answers[1]
    polarity = ROOT / "models/polarity-bert"
    tokenizer = transformers.AutoTokenizer.from_pretrained(polarity)
    model = proa.AutoModelForSequenceClassification.from_pretrained(polarity, dtype="f32")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(polarity)
    texts = ["a gripping and funny film", "dull"]
    answers = [
        transformers.pipeline("text-classification", model=m, tokenizer=tokenizer)(texts, batch_size=2)
        for m in (model, theirs)
    ]
    assert [a["label"] for a in answers[0]] == [a["label"] for a in answers[1]]
    np.testing.assert_allclose([a["score"] for a in answers[0]], [a["score"] for a in answers[1]], atol=1e-4)


def test_transformers_streamers(load):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(ROOT / T5)
    streamer = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    load("Seq2SeqLM", T5).generate(np.array([DOG]), streamer=streamer, max_new_tokens=20)
    assert "".join(streamer) == "Ein Hund rennt."
