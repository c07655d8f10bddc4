# SPDX-License-Identifier: Apache-2.0
"""Forty scripts in the shapes of transformers' documentation examples, for transformers' classes and Proa's.

Each takes `load`, which opens a model of this repository with an Auto class of the package that is tested, and `t`,
which makes an array of ids (torch.tensor, or numpy's). It returns what is compared: arrays by name; those of floats
within 1e-4, those of ids exactly. tools/golden_drop_in.py runs them with transformers, test_drop_in.py with proa.
"""

T5, TINY_T5, BART = "models/m30k-t5", "tests/golden/arch/t5", "tests/golden/arch/bart"
GPT2, LLAMA, TINY_LLAMA = "tests/golden/arch/gpt2", "models/classics-10m", "tests/golden/arch/llama"
BERT, POLARITY = "tests/golden/arch/bert", "models/polarity-bert"
# "translate English to German: A dog runs.", "... A man in a red shirt is reading.", for models/m30k-t5
DOG = [795, 793, 58, 1223, 685, 7, 106, 772, 3, 1]
MAN = [795, 793, 58, 1223, 685, 7, 10, 6, 7, 102, 92, 25, 598, 3, 1]
SCRIPTS = {}


def script(function):
    SCRIPTS[function.__name__] = function
    return function


def padded(t, rows, pad=0, left=False):
    """(input_ids, attention_mask) of rows of different lengths."""
    width = max(len(row) for row in rows)
    fill = [[pad] * (width - len(row)) for row in rows]
    none = [[0] * len(f) for f in fill]
    if left:
        return t([f + r for f, r in zip(fill, rows)]), t([n + [1] * len(r) for n, r in zip(none, rows)])
    return t([r + f for f, r in zip(fill, rows)]), t([[1] * len(r) + n for n, r in zip(none, rows)])


def scores_of(output):
    """Scores of each step, of the first sequence or beam, while it runs."""
    return {f"scores{i}": step[0] for i, step in enumerate(output.scores)}


# ---- T5 ----


@script
def t5_greedy(load, t):
    return {"ids": load("Seq2SeqLM", T5).generate(t([DOG]), max_new_tokens=20)}


@script
def t5_default_length(load, t):
    return {"ids": load("Seq2SeqLM", T5).generate(t([MAN]))}


@script
def t5_batch_with_mask(load, t):
    ids, mask = padded(t, [DOG, MAN])
    return {"ids": load("Seq2SeqLM", T5).generate(input_ids=ids, attention_mask=mask, max_new_tokens=24)}


@script
def t5_batch_padding_without_mask(load, t):
    """An encoder sees padding that no mask hides; of a decoder's prompt transformers guesses it."""
    ids, _ = padded(t, [DOG, MAN])
    prompts, _ = padded(t, [[1, 395, 285, 264], [1, 300]], left=True)
    return {
        "ids": load("Seq2SeqLM", T5).generate(ids, max_new_tokens=24),
        "decoder": load("CausalLM", LLAMA).generate(prompts, max_new_tokens=12),
    }


@script
def t5_beams_returned_with_scores(load, t):
    output = load("Seq2SeqLM", T5).generate(
        t([MAN]),
        num_beams=4,
        num_return_sequences=3,
        return_dict_in_generate=True,
        output_scores=True,
        max_new_tokens=20,
    )
    return {
        "ids": output.sequences,
        "sequences_scores": output.sequences_scores,
        "beam_indices": output.beam_indices,
        **scores_of(output),
    }


@script
def t5_beams_batch(load, t):
    ids, mask = padded(t, [DOG, MAN])
    model = load("Seq2SeqLM", T5)
    return {"ids": model.generate(ids, attention_mask=mask, num_beams=3, early_stopping=True, max_new_tokens=20)}


@script
def t5_beams_length_penalty(load, t):
    model = load("Seq2SeqLM", T5)
    return {
        "long": model.generate(t([MAN]), num_beams=4, length_penalty=2.0, early_stopping="never", max_new_tokens=20),
        "short": model.generate(t([MAN]), num_beams=4, length_penalty=-1.0, no_repeat_ngram_size=2, max_new_tokens=20),
    }


@script
def t5_scores_and_logits(load, t):
    output = load("Seq2SeqLM", T5).generate(
        t([DOG]), max_new_tokens=6, output_scores=True, output_logits=True, return_dict_in_generate=True
    )
    logits = {f"logits{i}": step for i, step in enumerate(output.logits)}
    return {"ids": output.sequences, **scores_of(output), **logits}


@script
def t5_encoder_outputs_given(load, t):
    model = load("Seq2SeqLM", T5)
    ids, mask = padded(t, [DOG, MAN])
    memory = model.get_encoder()(input_ids=ids, attention_mask=mask)
    out = model.generate(encoder_outputs=memory, attention_mask=mask, max_new_tokens=20)
    return {"ids": out, "memory": memory.last_hidden_state[0][: len(DOG)]}


@script
def t5_decoder_input_ids(load, t):
    return {"ids": load("Seq2SeqLM", T5).generate(t([DOG]), decoder_input_ids=t([[0, 13, 25]]), max_new_tokens=12)}


@script
def t5_forward_with_labels_shifted(load, t):
    output = load("Seq2SeqLM", T5)(input_ids=t([DOG]), decoder_input_ids=t([[0, 13, 111, 501]]))
    return {"logits": output.logits, "memory": output.encoder_last_hidden_state}


@script
def t5_processors(load, t):
    output = load("Seq2SeqLM", TINY_T5).generate(
        t([[5, 9, 13, 17, 1]]),
        repetition_penalty=1.3,
        min_new_tokens=4,
        bad_words_ids=[[7], [8, 9]],
        suppress_tokens=[3, 4],
        max_new_tokens=12,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return {"ids": output.sequences, **scores_of(output)}


@script
def t5_left_padding(load, t):
    ids, mask = padded(t, [DOG, MAN], left=True)
    return {"ids": load("Seq2SeqLM", T5).generate(ids, attention_mask=mask, max_new_tokens=24)}


# ---- BART ----

NEWS = [[2, 31, 42, 53, 64, 75, 86, 2], [2, 19, 28, 2]]


@script
def bart_greedy(load, t):
    return {"ids": load("Seq2SeqLM", BART).generate(t([NEWS[0]]), max_new_tokens=16)}


@script
def bart_batch(load, t):
    ids, mask = padded(t, NEWS)
    return {"ids": load("Seq2SeqLM", BART).generate(ids, attention_mask=mask, max_new_tokens=16)}


@script
def bart_summary_with_beams(load, t):
    model = load("Seq2SeqLM", BART)
    out = model.generate(t([NEWS[0]]), num_beams=4, min_length=6, max_length=20, no_repeat_ngram_size=3)
    return {"ids": out}


@script
def bart_forced_tokens(load, t):
    model = load("Seq2SeqLM", BART)
    out = model.generate(t([NEWS[0]]), forced_bos_token_id=50, forced_eos_token_id=2, max_new_tokens=9)
    return {"ids": out}


@script
def bart_beam_scores(load, t):
    output = load("Seq2SeqLM", BART).generate(
        t([NEWS[0]]),
        num_beams=3,
        num_return_sequences=3,
        repetition_penalty=1.2,
        renormalize_logits=True,
        max_new_tokens=10,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return {"ids": output.sequences, "sequences_scores": output.sequences_scores, **scores_of(output)}


@script
def bart_forward(load, t):
    return {"logits": load("Seq2SeqLM", BART)(t([NEWS[0]]), decoder_input_ids=t([[2, 5, 6, 7]])).logits}


@script
def bart_encoder_outputs_with_beams(load, t):
    model = load("Seq2SeqLM", BART)
    memory = model.get_encoder()(t([NEWS[0]]))
    return {"ids": model.generate(encoder_outputs=memory, num_beams=2, max_new_tokens=10)}


# ---- GPT-2 ----


@script
def gpt2_greedy(load, t):
    return {"ids": load("CausalLM", GPT2).generate(t([[5, 9, 13, 17]]), max_new_tokens=20, pad_token_id=2)}


@script
def gpt2_max_length(load, t):
    return {"ids": load("CausalLM", GPT2).generate(t([[5, 9, 13, 17]]), max_length=14, min_length=12)}


@script
def gpt2_left_padding(load, t):
    ids, mask = padded(t, [[5, 9, 13, 17, 21], [44, 45]], left=True)
    return {"ids": load("CausalLM", GPT2).generate(input_ids=ids, attention_mask=mask, max_new_tokens=16)}


@script
def gpt2_beams(load, t):
    model = load("CausalLM", GPT2)
    out = model.generate(
        t([[5, 9, 13, 17]]),
        num_beams=5,
        num_return_sequences=5,
        no_repeat_ngram_size=2,
        early_stopping=True,
        max_new_tokens=16,
    )
    return {"ids": out}


@script
def gpt2_sampling_scores(load, t):
    """Random numbers differ; what they are drawn from does not: the scores of the first step."""
    output = load("CausalLM", GPT2).generate(
        t([[5, 9, 13, 17]]),
        do_sample=True,
        temperature=0.7,
        top_k=20,
        top_p=0.9,
        repetition_penalty=1.2,
        num_return_sequences=3,
        max_new_tokens=4,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return {"first": output.scores[0][:3], "shape": t(list(output.sequences.shape))}


@script
def gpt2_sampling_the_best(load, t):
    model = load("CausalLM", GPT2)
    return {"ids": model.generate(t([[5, 9, 13, 17]]), do_sample=True, top_k=1, temperature=0.8, max_new_tokens=20)}


@script
def gpt2_sequence_bias(load, t):
    model = load("CausalLM", GPT2)
    bias = {(77,): -5.0, (5, 9): 4.0, (60,): 6.0}
    return {"ids": model.generate(t([[5, 9, 13, 17]]), sequence_bias=bias, repetition_penalty=1.5, max_new_tokens=16)}


@script
def gpt2_several_end_tokens(load, t):
    model = load("CausalLM", GPT2)
    out = model.generate(t([[5, 9, 13, 17]]), eos_token_id=[2, 60, 61, 62, 63, 64], pad_token_id=0, max_new_tokens=30)
    return {"ids": out}


@script
def gpt2_forward(load, t):
    ids, mask = padded(t, [[5, 9, 13, 17, 21], [44, 45, 46]])
    logits = load("CausalLM", GPT2)(ids, attention_mask=mask).logits
    return {"first": logits[0], "second": logits[1][:3]}


# ---- Llama ----


@script
def llama_greedy(load, t):
    return {"ids": load("CausalLM", LLAMA).generate(t([[1, 395, 285, 264]]), max_new_tokens=24)}


@script
def llama_left_padding_batch(load, t):
    ids, mask = padded(t, [[1, 395, 285, 264, 700], [1, 300], [1, 829, 15]], left=True)
    return {"ids": load("CausalLM", LLAMA).generate(ids, attention_mask=mask, max_new_tokens=16)}


@script
def llama_beams_left_padding(load, t):
    ids, mask = padded(t, [[1, 395, 285, 264, 700], [1, 300]], left=True)
    output = load("CausalLM", LLAMA).generate(
        ids, attention_mask=mask, num_beams=3, max_new_tokens=12, output_scores=True, return_dict_in_generate=True
    )
    return {"ids": output.sequences, "sequences_scores": output.sequences_scores, **scores_of(output)}


@script
def llama_scores(load, t):
    output = load("CausalLM", LLAMA).generate(
        t([[1, 395, 285, 264]]),
        max_new_tokens=8,
        repetition_penalty=1.1,
        no_repeat_ngram_size=2,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return {"ids": output.sequences, "raw": output.logits[7], **scores_of(output)}


@script
def llama_sampling_with_min_p_and_typical_p(load, t):
    output = load("CausalLM", LLAMA).generate(
        t([[1, 395, 285, 264]]),
        do_sample=True,
        top_k=0,
        min_p=0.02,
        typical_p=0.9,
        temperature=1.3,
        max_new_tokens=3,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return {"first": output.scores[0]}


@script
def llama_decay_and_begin_suppress(load, t):
    output = load("CausalLM", TINY_LLAMA).generate(
        t([[1, 30, 31]]),
        exponential_decay_length_penalty=(3, 1.4),
        begin_suppress_tokens=[50, 51, 52],
        max_new_tokens=14,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return {"ids": output.sequences, **scores_of(output)}


@script
def llama_prompt_lookup(load, t):
    prompt = [1, 395, 285, 264, 700, 395, 285, 264]
    return {"ids": load("CausalLM", LLAMA).generate(t([prompt]), prompt_lookup_num_tokens=4, max_new_tokens=16)}


@script
def llama_streamer(load, t):
    class Streamer:
        """transformers' BaseStreamer: put() gets the prompt, then token by token."""

        def __init__(self):
            self.seen, self.ended = [], 0

        def put(self, value):
            self.seen += [int(i) for i in value.reshape(-1)]

        def end(self):
            self.ended += 1

    streamer = Streamer()
    out = load("CausalLM", LLAMA).generate(t([[1, 395, 285, 264]]), streamer=streamer, max_new_tokens=10)
    return {"ids": out, "seen": t([streamer.seen]), "ended": t([streamer.ended])}


# ---- BERT ----

PAIR = [[2, 31, 42, 53, 3, 75, 86, 3], [2, 19, 28, 3]]


@script
def bert_hidden_states(load, t):
    ids, mask = padded(t, PAIR)
    output = load("", BERT)(input_ids=ids, attention_mask=mask)
    second = output.last_hidden_state[1][:4]
    return {"first": output.last_hidden_state[0], "second": second, "pooled": output.pooler_output}


@script
def bert_token_types(load, t):
    types = t([[0, 0, 0, 0, 0, 1, 1, 1]])
    output = load("", BERT)(t([PAIR[0]]), token_type_ids=types)
    return {"rows": output[0], "pooled": output[1]}


@script
def bert_masked_words_and_labels(load, t):
    rows = load("MaskedLM", "tests/golden/arch/bert_mlm")(t([PAIR[0]])).logits
    labels = load("TokenClassification", "tests/golden/arch/bert_token")(t([PAIR[0]])).logits
    ids, mask = padded(t, [[2, 310, 420, 530, 3], [2, 19, 3]])
    classes = load("SequenceClassification", POLARITY)(input_ids=ids, attention_mask=mask).logits
    return {"rows": rows, "labels": labels, "classes": classes}
