# SPDX-License-Identifier: Apache-2.0
"""A model's generation_config.json: what `proa run` does when it is given no option."""
import json

import pytest
from harness import LM, T5, ok_json, proa

PROMPT = "It was the best of times, it was the"


@pytest.fixture
def model(tmp_path):
    """model(FOLDER, members): a copy of the folder by links, with its own generation_config.json."""
    def make(folder, **members):
        for file in folder.iterdir():
            if file.name != "generation_config.json":
                (tmp_path / file.name).symlink_to(file.resolve())
        described = json.loads((folder / "generation_config.json").read_text())
        (tmp_path / "generation_config.json").write_text(json.dumps({**described, **members}))
        return tmp_path
    return make


def run(folder, *options):
    return ok_json("run", folder, PROMPT, *options)


def test_max_length_counts_the_prompt(model):
    plain = run(LM, "--max-tokens", 40)
    out = run(model(LM, max_length=plain["prompt_tokens"] + 5))
    assert out["ids"] == plain["ids"][:5]


def test_max_new_tokens_wins(model):
    plain = run(LM, "--max-tokens", 40)
    assert run(model(LM, max_length=3, max_new_tokens=6))["ids"] == plain["ids"][:6]


def test_suppressed_tokens(model):
    plain = run(LM, "--max-tokens", 8)["ids"]
    folder = model(LM, max_new_tokens=8, suppress_tokens=[plain[2]], begin_suppress_tokens=[plain[0]])
    out = run(folder)["ids"]
    assert out[0] != plain[0] and plain[2] not in out
    assert out == run(LM, "--max-tokens", 8, "--suppress-tokens", str(plain[2]), "--begin-suppress-tokens", str(plain[0]))["ids"]
    assert run(folder, "--suppress-tokens", "[]", "--begin-suppress-tokens", "[]")["ids"] == plain


def test_sequence_bias(model):
    plain = run(LM, "--max-tokens", 6)["ids"]
    out = run(model(LM, max_new_tokens=6, sequence_bias=[[plain[:2], -50.0]]))["ids"]
    assert out[0] == plain[0] and out[1] != plain[1]


def test_several_sequences(model):
    out = run(model(LM, max_new_tokens=4, do_sample=True, num_return_sequences=3), "--seed", 5)
    assert len(out["sequences"]) == 3


def test_stop_strings(model):
    plain = run(LM, "--max-tokens", 30)["text"]
    word = plain.split()[3]
    out = run(model(LM, max_new_tokens=30, stop_strings=[word]))
    assert out["text"] == plain[:plain.index(word)]


def test_encoder_ngrams():
    text = "translate English to German: Peter and Peter and Peter."
    free = ok_json("run", T5, text)["ids"]
    out = ok_json("run", T5, text, "--encoder-no-repeat-ngram", 2)["ids"]
    source = ok_json("run", T5, text, "--encoder-no-repeat-ngram", 2)["ids"]
    assert out == source and out != free


def test_what_is_not_applied_is_named(model):
    result = proa("run", model(LM, max_new_tokens=2, guidance_scale=1.5, watermarking_config={"bias": 2.0}), PROMPT)
    assert result.returncode == 0
    for name in ("guidance_scale", "watermarking_config"):
        assert f"generation_config.json: '{name}' is not applied" in result.stderr
    quiet = proa("run", LM, PROMPT, "--max-tokens", 2)
    assert "not applied" not in quiet.stderr


def test_a_wrong_member_is_named(model):
    result = proa("run", model(LM, suppress_tokens="x"), PROMPT)
    assert result.returncode == 1
    assert "generation_config.json" in result.stderr and "option 'suppress_tokens' must be a list of token ids" in result.stderr
