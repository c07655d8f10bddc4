# SPDX-License-Identifier: Apache-2.0
"""Decoding options through the program: each does what it says, bad values name themselves, lines equal single runs."""
import json
import math
import os
import re
import subprocess

import pytest
from harness import BERT, GOLDEN, LM, PROA, ROOT, T5, fails, ok, ok_json, proa

IT_WAS = [1, 812, 316]  # the ids of "It was"
DOG = "translate English to German: A dog runs on the beach."
TIMES = ("first_token_s", "tokens_per_s", "line")


def many(model, requests, *args):
    """Runs them all in one batch as JSON lines."""
    text = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in requests) + "\n"
    out = ok("run", model, "--input", "-", "--json", *args, stdin=text).splitlines()
    assert len(out) == len(requests)
    return [json.loads(line) for line in out]


def lm(**options):
    """One run of "It was" with these options, 12 tokens unless said; True is a flag."""
    options = {"max_tokens": 12, "ignore_eos": True, **options}
    args = []
    for name, value in options.items():
        args.append("--" + name.replace("_", "-"))
        if value is not True:
            args.append(value)
    return ok_json("run", LM, "It was", *args)


def drop_times(out):
    return {key: value for key, value in out.items() if key not in TIMES}


def seed_of(seed, i):
    """proa.h: SplitMix64 of seed and i."""
    if i == 0:
        return seed
    mask = (1 << 64) - 1
    z = (seed + i * 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def softmax(row):
    top = max(row)
    e = [math.exp(x - top) for x in row]
    total = sum(e)
    return [x / total for x in e]


@pytest.fixture(scope="module")
def greedy():
    return lm(return_logits=True, logprobs=True)


@pytest.fixture(scope="module")
def first(greedy):
    """Probabilities of the first new token."""
    return softmax(greedy["logits"][0])


def draws(**options):
    """First new tokens of 300 seeds."""
    lines = [{"ids": IT_WAS, "max_tokens": 1, "seed": s, "temperature": 1, **options} for s in range(300)]
    return [r["ids"][0] for r in many(LM, lines)]


# How long.

def test_max_tokens_and_min_tokens():
    assert len(lm(max_tokens=3)["ids"]) == 3
    assert len(ok_json("run", LM, "It was", "--ignore-eos")["ids"]) == 128  # the command's own default
    assert len(ok_json("run", LM, "It was", "--ignore-eos", "--max-tokens", 0)["ids"]) > 900
    short = ok_json("run", T5, DOG)
    longer = ok_json("run", T5, DOG, "--min-tokens", len(short["ids"]) + 5)
    assert short["finish"] == "end" and short["ids"][-1] == 1
    assert len(longer["ids"]) > len(short["ids"]) + 4 and 1 not in longer["ids"][: len(short["ids"]) + 5]


def test_end_ids_and_ignore_eos(greedy):
    third = greedy["ids"][2]
    out = ok_json("run", LM, "It was", "--max-tokens", 12, "--end-ids", f"7 {third}")
    assert out["finish"] == "end" and out["ids"] == greedy["ids"][: greedy["ids"].index(third) + 1]
    assert ok_json("run", T5, DOG, "--ignore-eos", "--max-tokens", 40)["new_tokens"] == 40


# Which token.

def test_temperature_changes_the_distribution(greedy, first):
    cold, hot = draws(temperature=0.05), draws(temperature=3)
    best = greedy["ids"][0]
    assert first[best] == max(first)
    assert sum(t == best for t in cold) > sum(t == best for t in hot)
    assert len(set(hot)) > 200 > len(set(cold))
    assert lm(temperature=0)["ids"] == greedy["ids"]


def test_filters_keep_what_they_say(first):
    order = sorted(range(len(first)), key=lambda t: -first[t])
    mass, nucleus = 0, set()
    for t in order:
        nucleus.add(t)
        mass += first[t]
        if mass >= 0.3:
            break
    for options, kept in (({"top_k": 5}, set(order[:5])), ({"top_p": 0.3}, nucleus),
                          ({"min_p": 0.3}, {t for t in order if first[t] >= 0.3 * first[order[0]]})):
        seen = set(draws(**options))
        assert seen <= kept and len(seen) > 1, (options, seen - kept)
    assert not set(draws()) <= set(order[:50])


def test_typical_keeps_the_typical(first):
    entropy = -sum(p * math.log(p) for p in first if p > 0)
    order = sorted((t for t in range(len(first)) if first[t] > 0), key=lambda t: abs(-math.log(first[t]) - entropy))
    mass, kept = 0, set()
    for t in order:
        kept.add(t)
        mass += first[t]
        if mass >= 0.2:
            break
    assert set(draws(typical_p=0.2)) <= kept


def test_top_p_decays_and_is_set_back(greedy):
    """In style ft: after the first token top-p is so small that only the likeliest token is left."""
    args = {"style": "ft", "temperature": 1, "top_p": 0.99, "top_p_decay": 1e-5, "top_p_min": 1e-5, "seed": 4}
    out = lm(**args, top_logprobs=1)
    assert out["ids"][1:] == [top[0][0] for top in out["top_logprobs"][1:]]
    plain = lm(**{**args, "top_p_decay": 1})
    reset = lm(**args, top_p_reset_id=out["ids"][0])  # for the second token it is as at first, and then small again
    assert out["ids"][0] == plain["ids"][0] and out["ids"][1] != plain["ids"][1]
    assert reset["ids"][:2] == plain["ids"][:2] and reset["ids"][2:] != plain["ids"][2:]


# Penalties, bans, words.

def test_repetition_presence_and_frequency():
    plain = lm(max_tokens=60)["ids"]
    for option, value in (("repetition_penalty", 1.5), ("presence_penalty", 100), ("frequency_penalty", 100)):
        ids = lm(max_tokens=60, **{option: value})["ids"]
        assert len(set(ids)) > len(set(plain)), option
    assert len(set(lm(max_tokens=60, presence_penalty=1000)["ids"])) == 60  # nothing comes twice
    assert len(set(lm(max_tokens=60, frequency_penalty=1000)["ids"])) == 60


def test_no_repeat_ngram():
    def pairs(ids):
        return list(zip(ids, ids[1:], strict=False))

    plain, without = lm(max_tokens=120)["ids"], lm(max_tokens=120, no_repeat_ngram=2)["ids"]
    assert len(set(pairs(plain))) < len(pairs(plain))
    assert len(set(pairs(without))) == len(pairs(without))


def test_logit_bias(greedy):
    best = greedy["ids"][0]
    assert lm(logit_bias=json.dumps({best: -1e6}))["ids"][0] != best
    assert set(lm(logit_bias='{"300": 1000}')["ids"]) == {300}


def test_words(greedy):
    ids = greedy["ids"]
    banned = lm(banned_words=json.dumps([[ids[0]], [ids[3]]]))["ids"]
    assert not {ids[0], ids[3]} & set(banned)
    pair = lm(banned_words=json.dumps([ids[1:3]]))["ids"]
    assert pair[:2] == ids[:2] and pair[2] != ids[2]
    allowed = lm(allowed_words="[[300, 301], [302]]")["ids"]
    assert set(allowed) <= {300, 301, 302}
    assert all(b == 301 for a, b in zip(allowed, allowed[1:], strict=False) if a == 300)
    stopped = lm(stop_words=json.dumps([ids[2:4]]))
    assert stopped["ids"] == ids[:4] and stopped["finish"] == "stop"


def test_banned_text():
    plain = lm(max_tokens=30)["text"]
    word = next(w for w in plain.split() if w.isalpha() and len(w) > 3)
    for option in ("banned_strings", "banned_words"):
        assert word not in lm(max_tokens=30, **{option: word})["text"].split()


@pytest.mark.parametrize("option", ["--stop", "--stop-strings", "--stop-words"])
def test_stop_strings_are_never_shown_in_part(option):
    """Every piece of the text as a stop string, across tokens: what streams ends right before it."""
    whole = ok_json("run", LM, "It was", "--max-tokens", 20)["text"]
    for at, length in ((3, 1), (5, 4), (8, 7), (11, 9), (14, 2)):
        stop = whole[at:at + length]
        want = whole[:whole.index(stop)]
        out = ok_json("run", LM, "It was", "--max-tokens", 20, option, stop)
        assert out["text"] == want and out["finish"] == "stop"
        streamed = ok("run", LM, "It was", "--max-tokens", 20, option, stop)
        assert streamed in (want, want + "\n")
    held = whole[5:9] + "\x07 never comes"  # begins like the text and does not go on so: it is shown in the end
    assert ok_json("run", LM, "It was", "--max-tokens", 20, option, held)["text"] == whole


def test_several_stop_strings():
    whole = ok_json("run", LM, "It was", "--max-tokens", 20)["text"]
    out = ok_json("run", LM, "It was", "--max-tokens", 20, "--stop", "\x07", "--stop", whole[6:10])
    assert out["text"] == whole[:whole.index(whole[6:10])]
    assert drop_times(ok_json("run", LM, "It was", "--max-tokens", 20, "--stop", json.dumps(["\x07", whole[6:10]]))) \
        == drop_times(out)


# How many.

def test_n_equals_runs_with_the_derived_seeds():
    # seeds of the command line and of JSON have 63 bits
    seed = next(s for s in range(1000) if all(seed_of(s, i) < 1 << 63 for i in range(4)))
    common = {"max_tokens": 16, "temperature": 0.9, "top_p": 0.95}
    out = lm(n=4, seed=seed, logprobs=True, top_logprobs=2, **common)
    assert len(out["sequences"]) == 4 and out["new_tokens"] == 64
    assert out["ids"] == out["sequences"][0]["ids"] and out["text"] == out["sequences"][0]["text"]
    for i, sequence in enumerate(out["sequences"]):
        alone = lm(seed=seed_of(seed, i), logprobs=True, top_logprobs=2, **common)
        for key in ("ids", "text", "finish", "logprobs", "top_logprobs", "logprob_sum"):
            assert alone[key] == sequence[key], (i, key)
        assert sequence["score"] == pytest.approx(sequence["logprob_sum"] / 16, rel=1e-6)
    assert len({tuple(s["ids"]) for s in out["sequences"]}) == 4


def test_best_of_returns_the_likeliest():
    common = {"seed": 5, "temperature": 1, "max_tokens": 10}
    all_of_them = lm(n=6, **common)["sequences"]
    best = lm(n=2, best_of=6, logprobs=True, **common)
    assert len(best["sequences"]) == 2 and best["ids"] == best["sequences"][0]["ids"]
    ranked = sorted(all_of_them, key=lambda s: -s["score"])
    for got, want in zip(best["sequences"], ranked, strict=False):
        assert got["ids"] == want["ids"] and got["score"] == pytest.approx(want["score"], rel=1e-6)
        assert sum(got["logprobs"]) == pytest.approx(want["logprob_sum"], rel=1e-4)
    one = lm(best_of=6, **common)
    assert one["ids"] == ranked[0]["ids"] and len(one["sequences"]) == 1


def test_n_for_people():
    text = ok("run", LM, "It was", "--n", 3, "--temperature", 1, "--max-tokens", 6, "--seed", 2)
    out = ok_json("run", LM, "It was", "--n", 3, "--temperature", 1, "--max-tokens", 6, "--seed", 2)
    parts = re.split(r"^--- \d ---\n", text, flags=re.M)
    assert re.findall(r"^--- (\d) ---$", text, flags=re.M) == ["1", "2", "3"] and parts[0] == ""
    for part, sequence in zip(parts[1:], out["sequences"], strict=True):
        assert part in (sequence["text"], sequence["text"] + "\n")


# Beams.

def test_beam_options():
    two = ok_json("run", T5, DOG, "--beams", 4, "--beams-returned", 2)
    four = ok_json("run", T5, DOG, "--beams", 4)
    assert [b["ids"] for b in two["beams"]] == [b["ids"] for b in four["beams"]][:2] and len(four["beams"]) == 4
    none = ok_json("run", T5, DOG, "--beams", 4, "--length-penalty", 0)["beams"]
    assert all(a["score"] < b["score"] for a, b in zip(none, four["beams"], strict=True))  # sums, not means
    for early in ("true", "false", "never"):
        assert len(ok_json("run", T5, DOG, "--beams", 4, "--early-stopping", early)["beams"]) == 4
    groups = ok_json("run", T5, DOG, "--beams", 4, "--beam-groups", 4, "--diversity-penalty", 5)["beams"]
    assert len({b["ids"][0] for b in groups}) > len({b["ids"][0] for b in four["beams"]})


@pytest.mark.parametrize("style", ["hf", "ft", "trtllm"])
def test_beam_styles(style):
    """--beam-style is --style; the penalty's default is 1 in hf and 0 elsewhere, where a score is a plain sum."""
    out = ok_json("run", T5, DOG, "--beams", 3, "--beam-style", style, "--logprobs")
    again = ok_json("run", T5, DOG, "--beams", 3, "--style", style, "--logprobs")
    assert drop_times(out) == drop_times(again)
    divisor = len(out["ids"]) if style == "hf" else 1
    assert out["beams"][0]["score"] == pytest.approx(out["logprob_sum"] / divisor, rel=1e-3)
    scores = [b["score"] for b in out["beams"]]
    assert scores == sorted(scores, reverse=True)
    if style != "hf":
        wide = ok_json("run", T5, DOG, "--beams", 3, "--style", style, "--diversity-rate", -20)
        assert wide["beams"] != out["beams"]


def test_contrastive_search(greedy):
    out = lm(penalty_alpha=0.6, top_k=4, max_tokens=40)
    assert out["ids"] != lm(max_tokens=40)["ids"] and len(out["ids"]) == 40
    assert lm(penalty_alpha=1e-7, top_k=4)["ids"] == greedy["ids"]


# What else to tell.

def test_logprobs_of_all_kinds(greedy):
    out = lm(logprobs=True, top_logprobs=3, prompt_logprobs=True, return_hidden=True)
    assert out["ids"] == greedy["ids"] and out["logprobs"] == greedy["logprobs"]
    assert out["logprob_sum"] == pytest.approx(sum(out["logprobs"]), rel=1e-6)
    for row, id_, logprob, top in zip(greedy["logits"], out["ids"], out["logprobs"], out["top_logprobs"], strict=True):
        p = softmax(row)
        best = sorted(range(len(p)), key=lambda t: -p[t])[:3]
        assert [t for t, _ in top] == best and top[0] == [id_, pytest.approx(logprob, abs=1e-6)]
        assert all(x == pytest.approx(math.log(p[t]), abs=1e-4) for t, x in top)
    assert len(out["hidden"]) == 12 and len({len(h) for h in out["hidden"]}) == 1
    assert len(out["prompt_logprobs"]) == 3 and out["prompt_logprobs"][0] is None
    assert [len(t) for t in out["prompt_top_logprobs"][1:]] == [3, 3]
    rows = ok_json("run", LM, "--logits", "--ids", "1 812 316")["logits"]
    for row, id_, logprob in zip(rows, IT_WAS[1:], out["prompt_logprobs"][1:], strict=False):
        assert logprob == pytest.approx(math.log(softmax(row)[id_]), abs=1e-4)
    assert max(abs(a - b) for a, b in zip(rows[-1], greedy["logits"][0], strict=True)) < 1e-4


def test_what_is_not_asked_for_is_not_there():
    assert set(lm()) == {"ids", "text", "finish", "prompt_tokens", "new_tokens", "first_token_s", "tokens_per_s"}


def test_score_is_the_sum_of_prompt_logprobs():
    text = "It was the best of times, it was the worst of times."
    score = ok_json("run", LM, "--score", text)
    prompt = ok_json("run", LM, text, "--prompt-logprobs", "--max-tokens", 1)["prompt_logprobs"]
    assert score["logprobs"] == prompt and len(score["ids"]) == len(prompt) == score["tokens"] + 1
    assert score["sum"] == pytest.approx(sum(prompt[1:]), rel=1e-6)
    assert score["mean"] == pytest.approx(score["sum"] / score["tokens"], rel=1e-6)
    assert score["perplexity"] == pytest.approx(math.exp(-score["mean"]), rel=1e-6)
    assert drop_times(ok_json("run", LM, text, "--score")) == score == ok_json("run", LM, "--score", "--ids",
                                                                             " ".join(map(str, score["ids"])))
    shown = dict(line.split() for line in ok("run", LM, "--score", text).splitlines())
    assert float(shown["sum"]) == pytest.approx(score["sum"], abs=1e-5) and int(shown["tokens"]) == score["tokens"]
    assert float(shown["perplexity"]) == pytest.approx(score["perplexity"], abs=1e-3)
    worse = ok_json("run", LM, "--score", "times of it worst the best was.")
    assert worse["mean"] < score["mean"]


def test_score_of_a_translation():
    out = ok_json("run", T5, DOG, "--logprobs")
    score = ok_json("run", T5, "--score", out["text"], DOG)
    assert score["ids"] == [0, *out["ids"]]
    assert score["sum"] == pytest.approx(out["logprob_sum"], rel=1e-4)
    by_ids = ok_json("run", T5, DOG, "--score", "--decoder-ids", " ".join(map(str, score["ids"])))
    assert by_ids["logprobs"] == score["logprobs"]
    assert ok_json("run", T5, "--score", "Eine Katze schläft.", DOG)["sum"] < score["sum"]


def test_score_of_lines(tmp_path):
    texts = ["It was the best of times.", "Call me", "x"]
    (tmp_path / "in").write_text("\n".join(texts) + "\n")
    alone = [ok_json("run", LM, "--score", text) for text in texts]
    lines = [json.loads(line) for line in ok("run", LM, "--score", "--input", tmp_path / "in", "--json").splitlines()]
    assert [drop_times(line) for line in lines] == alone
    for line, score in zip(ok("run", LM, "--input", tmp_path / "in", "--score").splitlines(), alone, strict=True):
        total, mean, perplexity, tokens = line.split("\t")
        assert float(total) == pytest.approx(score["sum"], abs=1e-5) and int(tokens) == score["tokens"]
        assert float(mean) == pytest.approx(score["mean"], abs=1e-5) and float(perplexity) > 1
    target = ok_json("run", T5, DOG)["text"]
    [line] = many(T5, [{"prompt": DOG, "target": target}], "--score")
    assert drop_times(line) == ok_json("run", T5, "--score", target, DOG)


# Files of JSON lines.

LINES = [
    {"prompt": "It was"},
    "Call me",
    {"prompt": "It was", "temperature": 0.9, "seed": 11, "top_k": 40},
    {"ids": IT_WAS, "max_tokens": 5, "logprobs": True},
    {"prompt": "The sea", "beams": 3},
    {"prompt": "The sea", "beams": 2, "style": "trtllm", "length_penalty": 0.5},
    {"prompt": "It was", "n": 3, "temperature": 1, "top_p": 0.9},
    {"prompt": "It was", "stop_strings": ["the", "qqq"], "max_tokens": 40},
    {"prompt": "It was", "repetition_penalty": 1.3, "no_repeat_ngram": 3, "logit_bias": {"262": -5}},
    {"prompt": "It was", "penalty_alpha": 0.5, "top_k": 3},
    {"prompt": "It was", "banned_words": [[262], [264, 639]], "top_logprobs": 2, "prompt_logprobs": True},
    {"prompt": "", "ignore_eos": True, "max_tokens": 3},
]


def as_args(line):
    args = ["--max-tokens", 9] if isinstance(line, str) or "max_tokens" not in line else []
    if isinstance(line, str):
        return [line, *args]
    for name, value in line.items():
        if name == "prompt":
            args.insert(0, value)
        elif name == "ids":
            args += ["--ids", " ".join(map(str, value))]
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            args += ["--" + name.replace("_", "-")] + ([] if value is True else [text])
    return args


def test_json_lines_equal_single_runs():
    together = many(LM, LINES, "--max-tokens", 9)
    assert [out["line"] for out in together] == list(range(1, len(LINES) + 1))
    for line, out in zip(LINES, together, strict=True):
        assert drop_times(out) == drop_times(ok_json("run", LM, *as_args(line))), line


def test_lines_take_the_command_line_for_what_they_leave_open():
    a, b = many(LM, [{"prompt": "It was"}, {"prompt": "It was", "stop_strings": ["qqq"], "max_tokens": 4}],
                "--max-tokens", 6, "--stop", "a")
    assert a["finish"] == "stop" and b["finish"] == "length" and len(b["ids"]) == 4  # a list replaces a list
    a, b = many(LM, [{"prompt": "It was"}, {"prompt": "It was", "temperature": 0}], "--temperature", 5, "--max-tokens", 8)
    assert a["ids"] != b["ids"] == ok_json("run", LM, "It was", "--max-tokens", 8)["ids"]


def test_encoder_decoder_lines():
    start, forced = many(T5, [{"prompt": DOG}, {"prompt": DOG, "decoder_ids": [0, 13]}])
    assert start["ids"] == ok_json("run", T5, DOG)["ids"]
    assert forced["ids"] == ok_json("run", T5, DOG, "--decoder-ids", "0 13")["ids"]


def test_lines_without_a_tokenizer():
    [out] = many(GOLDEN / "arch/llama", [{"ids": [1, 2, 3]}], "--max-tokens", 4, "--ignore-eos")
    assert len(out["ids"]) == 4
    text = ok("run", GOLDEN / "arch/llama", "--input", "-", "--max-tokens", 4, "--ignore-eos", stdin='{"ids":[1,2,3]}\n')
    assert [int(x) for x in text.split()] == out["ids"]


@pytest.mark.parametrize("line, words", [
    ("{", ["not JSON"]),
    ('{"prompt": "x"} y', ["not JSON"]),
    ('{"promt": "x"}', ["unknown option 'promt'"]),
    ('{"prompt": "x", "max_token": 3}', ["unknown option 'max_token'", "did you mean 'max_tokens'?"]),
    ('{"prompt": "x", "top_p": 1.5}', ["'top_p' is 1.5", "0 to 1"]),
    ('{"prompt": "x", "top_k": "5"}', ["'top_k' must be a number"]),
    ('{"prompt": "x", "ignore_eos": 1}', ["'ignore_eos' must be true or false"]),
    ('{"prompt": "x", "ids": [1]}', ["either 'prompt' or 'ids'"]),
    ('{"max_tokens": 3}', ["either 'prompt' or 'ids'"]),
    ('{"prompt": 5}', ["'prompt' must be a string"]),
    ('{"ids": []}', ["'ids' must be a list of token ids"]),
    ('{"ids": [1, 2.5]}', ["'ids' has at 1 no token id"]),
    ('{"ids": [1, 99999]}', ["99999", "0 to 8191"]),
    ('{"prompt": "x", "target": "y"}', ["unknown option 'target'"]),
    ('{"prompt": "x", "beams": 2, "logprobs": true}', ["'beams' and 'logprobs'"]),
    ('{"prompt": "x", "beams": 2, "beam_groups": 2, "temperature": 1}', ["'beam_groups' 2 and 'temperature' 1 contradict"]),
    ('{"prompt": "x", "banned_words": [[9000]]}', ["banned_words", "9000", "0 to 8191"]),
    ('{"prompt": "x", "stop_strings": [""]}', ["'stop_strings' has an empty string"]),
])
def test_a_bad_line_names_itself_and_leaves_the_others(line, words):
    run = proa("run", LM, "--input", "-", "--json", "--max-tokens", 2, stdin=f"It was\n{line}\nIt was\n")
    out = [json.loads(text) for text in run.stdout.splitlines()]
    assert run.returncode == 1 and len(out) == 3 and out[0]["ids"] == out[2]["ids"]
    last = run.stderr.splitlines()[-1]
    assert "1 of 3 lines failed" in last and "standard input:2:" in last
    assert all(word in last and word in out[1]["error"] for word in words), (last, out[1])
    assert ("did you mean" in last) == ("max_token\"" in line)


# What is refused.

@pytest.mark.parametrize("args, words", [
    (["--temperature", "-1"], ["--temperature -1 is outside 0..10000"]),
    (["--temperature", "inf"], ["--temperature inf is outside"]),
    (["--top-p", "1.01"], ["--top-p 1.01 is outside 0..1"]),
    (["--top_p", "nan"], ["--top-p 'nan' is not a number (0..1)"]),
    (["--min-p", "-0.1"], ["--min-p -0.1 is outside 0..1"]),
    (["--top-k", "-1"], ["--top-k -1 is outside 0..2097152"]),
    (["--top-k", "2.5"], ["--top-k '2.5' is not a whole number"]),
    (["--repetition-penalty", "0"], ["'repetition_penalty' is 0, must be 0.0001 to 10000"]),
    (["--top-p-decay", "0"], ["'top_p_decay' is 0, must be above 0 to 1"]),
    (["--beams", "257"], ["--beams 257 is outside 0..256"]),
    (["--n", "5000"], ["--n 5000 is outside 0..4096"]),
    (["--n"], ["--n needs a value"]),
    (["--style", "vllm"], ["--style 'vllm' is none of hf|ft|trtllm"]),
    (["--beam-style", "vllm"], ["--beam-style 'vllm' is none of hf|ft|trtllm"]),
    (["--early-stopping", "maybe"], ["none of false|true|never"]),
    (["--logprobs=1"], ["--logprobs takes no value"]),
    (["--stop", ""], ["'stop_strings' has an empty string"]),
    (["--stop-words", "[[]]"], ["'stop_words'", "none of them empty"]),
    (["--stop-words", "[[1,"], ["'stop_words'", "[[1,"]),
    (["--banned-words", "[5]"], ["'banned_words'"]),
    (["--logit-bias", "5:1"], ["'logit_bias'", "5:1"]),
    (["--logit-bias", '{"x": 1}'], ["'logit_bias' has the key 'x'"]),
    (["--end-ids", "1 x"], ["'end_ids'"]),
    (["--end-ids", " ".join(map(str, range(17)))], ["'end_ids' has 17 ids, at most 16"]),
    (["--best-of", "2", "--n", "3"], ["'best_of' 2 and 'n' 3 contradict"]),
    (["--beams", "4", "--n", "2"], ["'beams' 4 and 'n' 2 contradict"]),
    (["--beams", "4", "--beams-returned", "5"], ["'beams_returned' 5 and 'beams' 4 contradict"]),
    (["--beams", "4", "--beam-groups", "3"], ["'beam_groups' 3 and 'beams' 4 contradict"]),
    (["--penalty-alpha", "0.5"], ["'penalty_alpha' 0.5 and 'top_k' 0 contradict"]),
    (["--style", "ft", "--repetition-penalty", "2", "--presence-penalty", "1"], ["'repetition_penalty' 2"]),
    (["--beams", "2", "--return-logits"], ["'beams' and 'return_logits' do not go together"]),
    (["--top-q", "1"], ["unknown option '--top-q'", "did you mean '--top-"]),
    (["--repetition", "1"], ["did you mean '--repetition-penalty'?"]),
    (["--score", "x", "--logits"], ["--score does not go with --logits"]),
    (["--score=x", "--decoder-ids", "1"], ["--score TEXT does not go with --decoder-ids"]),
])
def test_wrong_on_the_command_line(args, words):
    line = fails("run", LM, "x", *args, status=2)
    assert all(word in line for word in words), line


@pytest.mark.parametrize("args, words", [
    ([LM, "x", "--banned-words", "[[9000]]"], ["banned_words", "9000", "0 to 8191"]),
    ([LM, "x", "--allowed-words", "[[9000]]"], ["allowed_words", "9000", "0 to 8191"]),
    ([LM, "x", "--end-ids", "9000"], ["end_ids", "9000", "0 to 8191"]),
    ([LM, "x", "--logit-bias", '{"9000": 1}'], ["logit_bias", "9000", "0 to 8191"]),
    ([LM, "x", "--n", "8", "--sequences", "4"], ["8 sequences at once, at most 4", "--sequences"]),
    ([GOLDEN / "arch/llama", "--ids", "1", "--stop", "x"], ["stop_strings", "tokenizer"]),
    ([LM, "x", "--score", "y"], ["takes no prompt beside it"]),
    ([T5, "--score", "Ein Hund"], ["needs the source"]),
    ([T5, DOG, "--score"], ["needs the target"]),
    ([BERT, "x", "--score"], ["--score needs a model that generates"]),
    ([BERT, "x", "--beams", "4"], ["generates nothing: option", "'beams'"]),
    ([BERT, "x", "--max-tokens", "4"], ["generates nothing: option", "'max_tokens'"]),
    ([LM, "x", "--logits", "--temperature", "1"], ["--logits generates nothing", "'temperature'"]),
])
def test_wrong_for_the_model(args, words):
    line = fails("run", *args)
    assert all(word in line for word in words), line
    assert proa("run", *args, "--json").stdout == ""


# The table.

def test_every_option_is_an_option_in_help_and_in_the_header():
    header = (ROOT / "include/proa/proa.h").read_text()
    block = header[header.index("#define PROA_OPTION_LIST"):header.index("typedef enum proa_option {")]
    names = re.findall(r"\bX\((\w+)\)", block)
    help_text = ok("run", "--help")
    table = [line.split()[0] for line in ok("help", "decoding").splitlines()]
    assert table == ["option", *names] and len(names) > 30
    for name in names:
        assert f"--{name.replace('_', '-')}" in help_text
    fails("help", "decoding", "--html", status=2)


def test_the_documents_table_is_the_programs():
    page = (ROOT / "docs/decoding.md").read_text(encoding="utf-8")
    _, rest = page.split("`proa help decoding --markdown` -->\n")
    table, _ = rest.split("<!-- end of the table -->")
    assert table == ok("help", "decoding", "--markdown"), "tools/decoding-doc writes it anew"


def test_the_tool_that_writes_the_table(tmp_path):
    """It changes nothing between the markers but the table, which is up to date."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    script = tmp_path / "tools/decoding-doc"
    script.write_text((ROOT / "tools/decoding-doc").read_text())
    page = (ROOT / "docs/decoding.md").read_text(encoding="utf-8")
    (tmp_path / "docs/decoding.md").write_text(page.replace("| `n` |", "| `m` |"), encoding="utf-8")
    subprocess.run(["sh", script], check=True, env={**os.environ, "PROA": str(PROA)})
    assert (tmp_path / "docs/decoding.md").read_text(encoding="utf-8") == page


def proofs_in(topic):
    """The goldens that the table of a topic in docs/models.md names. But for these it is the program's."""
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    _, rest = page.split(f"`proa help {topic} --markdown` -->\n")
    table = rest.partition("<!-- end of the table -->")[0]
    lines = [line.rsplit("|", 2) for line in table.splitlines()]
    assert "".join(f"{own}|\n" for own, _, _ in lines) == ok("help", topic, "--markdown"), "tools/decoding-doc writes it anew"
    return [name for _, proofs, _ in lines[2:] for name in proofs.strip().split(", ")]


def test_the_documents_tables_of_models_are_the_programs():
    goldens = proofs_in("models") + proofs_in("heads")
    assert sorted(goldens) == sorted(p.name for p in (GOLDEN / "arch").iterdir()), "each golden proves one line, each line has one"
    fails("help", "heads", "--html", status=2)
    rows = [line.split()[0] for line in ok("help", "models").splitlines()]
    assert rows == sorted(rows) and "llama" in rows
    fails("help", "models", "--html", status=2)


def test_the_documents_name_each_text_model_of_multimodal_classes():
    """Types that belong to one class alone end in _text, and are not listed."""
    source = (ROOT / "src/model/multimodal.c").read_text(encoding="utf-8")
    types = {t for t in re.findall(r'TEXT_MODEL\("(\w+)"', source) if not t.endswith("_text") or t == "gemma3_text"}
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    listed = page.partition("`thinker_config`):")[2].partition("and those of")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == types and len(types) > 20
