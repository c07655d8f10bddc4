# SPDX-License-Identifier: Apache-2.0
"""transformers' scripts with one import changed give the ids and scores of transformers (tests/golden/drop_in.npz)."""
import json
import pathlib

import numpy as np
import pytest
from drop_in_scripts import BART, DOG, LLAMA, MAN, SCRIPTS, T5

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
        {"max_time": 1.0},
        {"top_h": 0.4},
        {"token_healing": True},
        {"constraints": ["x"]},
        {"force_words_ids": [[5]]},
        {"watermarking_config": {}},
        {"dola_layers": "low"},
        {"num_beems": 1},
        {"do_smaple": False},
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


def test_a_generation_config_is_checked_too(load):
    model, ids = load("CausalLM", LLAMA), np.array([[1, 395]])
    with pytest.raises(proa.UnsupportedError, match="'guidance_scale' is not supported"):
        model.generate(ids, {"max_new_tokens": 2, "guidance_scale": 1.5})
    neutral = {"guidance_scale": 1, "output_attentions": False, "max_time": None, "chat_format": "of another library"}
    expected = model.generate(ids, max_new_tokens=2)
    np.testing.assert_array_equal(model.generate(ids, {"max_new_tokens": 2, **neutral}), expected)
    np.testing.assert_array_equal(model.generate(ids, max_new_tokens=2, output_attentions=False), expected)


def test_an_encoder_names_what_it_does_not_take(load):
    encoder = load("Seq2SeqLM", T5).get_encoder()
    with pytest.raises(proa.UnsupportedError, match="encoder: argument 'output_attentions'"):
        encoder(np.array([DOG]), output_attentions=True)
    assert isinstance(encoder(np.array([DOG]), return_dict=False), tuple)


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
    with pytest.raises(proa.UnsupportedError, match="padded on the right"):
        ids, mask = np.array([[0, 2, 3]]), np.array([[0, 1, 1]])
        load("Seq2SeqLM", "tests/golden/arch/bart").generate(ids, attention_mask=mask)


def embedding_rows(folder, name, ids):
    """Rows of a tensor of float32 or bfloat16 in a safetensors file."""
    data = (ROOT / folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:begin])[name]
    table = np.frombuffer(data[begin:], np.uint8)[slice(*entry["data_offsets"])]
    if entry["dtype"] == "BF16":
        table = (table.view(np.uint16).astype(np.uint32) << 16).view(np.uint8)
    table = table.view(np.float32)
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


@pytest.mark.parametrize(
    "folder, name, ids",
    [
        (T5, "shared.weight", DOG),
        ("tests/golden/arch/bart", "model.shared.weight", [2, 31, 42, 53, 64, 75, 86, 2]),
    ],
)
def test_inputs_embeds_of_encoders(load, folder, name, ids):
    """Embeddings of the encoder's input give what their ids give, in generate and from the encoder alone."""
    model, embeds = load("Seq2SeqLM", folder), np.stack(2 * [embedding_rows(folder, name, ids)])
    mask = np.array([[1] * len(ids), [1] * 4 + [0] * (len(ids) - 4)])
    for options in ({}, {"num_beams": 3}):
        by_rows = model.generate(inputs_embeds=embeds, attention_mask=mask, max_new_tokens=8, **options)
        by_ids = model.generate(np.array([ids, ids]), attention_mask=mask, max_new_tokens=8, **options)
        np.testing.assert_array_equal(by_rows, by_ids)
    memory = model.get_encoder()(inputs_embeds=embeds, attention_mask=mask).last_hidden_state
    expected = model.get_encoder()(np.array([ids, ids]), attention_mask=mask).last_hidden_state
    np.testing.assert_allclose(memory, expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"'inputs_embeds' has the shape \[2, 3\]"):
        model.generate(inputs_embeds=np.zeros((2, 3), np.float32))


def test_sampled_beams_have_the_distribution_of_transformers(load):
    """How often each token was the best beam's in 8192 runs of transformers 5.24 with these options. Of the scores that
    are sampled from, those of the first step are deterministic: the eight likeliest log-probabilities over 6."""
    expected = {88: 6493 / 8192, 123: 1514 / 8192, 17: 185 / 8192}
    model, runs, count = load("CausalLM", "tests/golden/arch/gpt2"), 1024, {}
    options = {"do_sample": True, "num_beams": 3, "top_k": 8, "top_p": 1.0, "temperature": 6.0, "max_new_tokens": 1}
    prompts = np.array([[5, 9, 13, 17]] * 64)
    for run in range(0, runs, 64):
        for row in model.generate(prompts, seed=1000 * run, **options):
            count[int(row[4])] = count.get(int(row[4]), 0) + 1
    for token, share in expected.items():
        assert abs(count[token] - share * runs) < 4 * (share * (1 - share) * runs) ** 0.5, (count, token)
    raw = model(prompts[:1]).logits[0, -1].astype(np.float64)
    logprobs = (raw - raw.max() - np.log(np.exp(raw - raw.max()).sum())) / 6
    out = model.generate(prompts[:1], seed=1, return_dict_in_generate=True, output_scores=True, **options)
    best = np.sort(np.argsort(-logprobs)[:8])
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(out.scores[0][0])), best)
    np.testing.assert_allclose(out.scores[0][0][best], logprobs[best], atol=1e-4)
    assert abs(out.sequences_scores[0] - logprobs[out.sequences[0, 4]]) < 1e-4


def test_sampled_beams_repeat_with_a_seed(load):
    model, ids = load("Seq2SeqLM", T5), np.array([MAN])
    options = {"do_sample": True, "num_beams": 4, "num_return_sequences": 3, "temperature": 1.5, "max_new_tokens": 12}
    first, again = model.generate(ids, seed=3, **options), model.generate(ids, seed=3, **options)
    np.testing.assert_array_equal(first, again)
    assert len(first) == 3 and first.tolist() != model.generate(ids, seed=4, **options).tolist()
    with pytest.raises(ValueError, match="groups of beams do not sample"):
        model.generate(ids, num_beam_groups=2, **options)


def test_fewer_hypotheses_than_sequences(load):
    """An end token that is forced at once leaves one hypothesis: the other rows are padding with transformers' score."""
    model, options = load("Seq2SeqLM", BART), {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 1}
    out = model.generate(
        np.array([[5, 6, 7, 2], [8, 9, 10, 2]]),
        forced_eos_token_id=2,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    np.testing.assert_array_equal(out.sequences, [[2, 2]] * 4)  # a pad of id 0 is the end token, as there
    np.testing.assert_array_equal(out.sequences_scores, np.array([0, -1e9] * 2, np.float32))
    np.testing.assert_array_equal(out.beam_indices, [[0], [-1], [3], [-1]])


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
