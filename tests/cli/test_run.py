# SPDX-License-Identifier: Apache-2.0
"""`proa run`: the JSON contract, the references through it, streaming, files of prompts."""
import gzip
import json
import math
import os
import pty
import shutil
import signal
import socket
import subprocess

import pytest
from harness import BERT, GOLDEN, LM, PROA, T5, fails, ok, ok_json, proa

ARCH = GOLDEN / "arch"
LMS = ["llama", "llama3", "mistral", "qwen2", "qwen3", "gpt2", "gptj", "bloom", "mpt", "gemma2"]


def ids_text(ids):
    return " ".join(map(str, ids))


def close(rows, golden, tolerance=1e-4):
    """Largest difference over the reference's largest absolute value."""
    if not isinstance(golden[0], list):
        rows, golden = [rows], [golden]
    assert [len(r) for r in rows] == [len(g) for g in golden]
    largest = max(abs(x) for g in golden for x in g)
    return max(abs(x - y) for r, g in zip(rows, golden) for x, y in zip(r, g)) <= tolerance * largest


@pytest.mark.parametrize("name", LMS)
def test_greedy_contract(name, arch_cases):
    for case in arch_cases[name]["cases"]:
        out = ok_json("run", ARCH / name, "--ids", ids_text(case["input_ids"]), "--max-tokens", 24, "--ignore-eos",
                      "--logprobs")
        assert out["ids"] == case["greedy"]
        assert len(out["logprobs"]) == 24
        assert all(abs(a - b) < 1e-3 for a, b in zip(out["logprobs"], case["greedy_logprobs"]))
        assert isinstance(out["text"], str)
        assert out["finish"] == "length" and out["new_tokens"] == 24
        assert out["prompt_tokens"] == len(case["input_ids"])
        assert out["first_token_s"] > 0 and out["tokens_per_s"] > 0


@pytest.mark.parametrize("name", LMS)
def test_logits_contract(name, arch_cases):
    for case in arch_cases[name]["cases"]:
        rows = ok_json("run", ARCH / name, "--logits", "--ids", ids_text(case["input_ids"]))["logits"]
        assert len(rows) == len(case["input_ids"])
        assert close(rows[0], case["logits_first"]) and close(rows[-1], case["logits_last"])


@pytest.mark.parametrize("name", ["t5", "t5_v1_1"])
def test_encoder_decoder_contract(name, arch_cases):
    for case in arch_cases[name]["cases"]:
        ids = ids_text(case["input_ids"])
        rows = ok_json("run", ARCH / name, "--logits", "--ids", ids, "--decoder-ids",
                       ids_text(case["decoder_input_ids"]))["logits"]
        assert close(rows, case["logits"])
        greedy = ok_json("run", ARCH / name, "--ids", ids, "--max-tokens", 20)
        assert greedy["ids"] == case["beam1_lp1.0"]["ids"][1:]  # the start token is the prompt's
        for penalty in ("0.6", "1.0", "2.0"):
            golden = case[f"beam4_lp{penalty}"]
            out = ok_json("run", ARCH / name, "--ids", ids, "--max-tokens", 20, "--beams", 4, "--length-penalty", penalty)
            assert len(out["beams"]) == 4
            assert out["beams"][0]["ids"] == golden["ids"][1:]
            assert abs(out["beams"][0]["score"] - golden["score"]) < 1e-4
            assert out["ids"] == out["beams"][0]["ids"]
            scores = [b["score"] for b in out["beams"]]
            assert scores == sorted(scores, reverse=True)


def test_encoder_contracts(arch_cases):
    for case in arch_cases["bert"]["cases"]:
        out = ok_json("run", ARCH / "bert", "--logits", "--ids", ids_text(case["input_ids"]))
        assert close(out["hidden"], case["last_hidden_state"]) and close(out["pooled"], case["pooler"])
        assert "logits" not in out
    for case in arch_cases["bert_regress"]["cases"]:
        out = ok_json("run", ARCH / "bert_regress", "--logits", "--ids", ids_text(case["input_ids"]))
        assert len(out["logits"]) == 1 and close(out["logits"][0], case["logits"])
    for case in arch_cases["bert_mlm"]["cases"]:
        out = ok_json("run", ARCH / "bert_mlm", "--logits", "--ids", ids_text(case["input_ids"]))
        assert close(out["logits"], case["logits"])


def test_zero_shot_classification():
    """A pair of texts to an encoder-decoder that classifies."""
    golden = json.loads((ARCH / "bart_cls/zero_shot.json").read_text())
    for case in golden["cases"]:
        for label, ids, logits in zip(case["labels"], case["input_ids"], case["logits"]):
            out = ok_json("run", ARCH / "bart_cls", case["text"], "--pair", golden["hypothesis"].format(label))
            assert out["prompt_tokens"] == len(ids) and close(out["logits"][0], logits)
    lines = ok("run", ARCH / "bart_cls", case["text"], "--pair", golden["hypothesis"].format(label)).splitlines()
    assert [line.split()[0] for line in lines] == ["contradiction", "neutral", "entailment"]


def test_ids_take_commas_and_spaces():
    spaces = ok_json("run", LM, "--ids", "1 812 316 262", "--max-tokens", 4, "--ignore-eos")
    commas = ok_json("run", LM, "--ids=1,812,  316,262", "--max-tokens=4", "--ignore-eos")
    assert spaces["ids"] == commas["ids"] and len(spaces["ids"]) == 4


def test_text_agrees_with_the_reference():
    for case in json.loads((GOLDEN / "trained/classics-10m.json").read_text())["greedy"][:3]:
        out = ok_json("run", LM, case["prompt"], "--max-tokens", len(case["ids"]), "--ignore-eos", "--dtype", "exact")
        assert out["ids"] == case["ids"] and out["text"] == case["text"]


def test_beam_log_probabilities_add_up_to_the_score():
    out = ok_json("run", T5, "translate English to German: A dog runs.", "--beams", 3, "--logprobs")
    assert len(out["logprobs"]) == len(out["ids"])
    assert math.isclose(sum(out["logprobs"]) / len(out["ids"]), out["beams"][0]["score"], rel_tol=1e-4, abs_tol=1e-4)


def test_streamed_text_is_the_whole_text():
    whole = ok_json("run", LM, "The sea was", "--max-tokens", 20)["text"]
    run = proa("run", LM, "The sea was", "--max-tokens", 20)
    assert run.returncode == 0 and run.stdout == whole + ("" if whole.endswith("\n") else "\n")
    assert "20 tokens" in run.stderr and "prompt" in run.stderr
    assert ok("run", LM, "The sea was", "--max-tokens", 20, "--no-stream") == run.stdout


def test_text_streams_as_it_comes():
    """Each piece is written when it is there: a socket that keeps messages apart shows that, however late it is read."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, subprocess.Popen([PROA, "run", LM, "It was", "--max-tokens", "600", "--ignore-eos"], stdout=there,
                                stderr=subprocess.DEVNULL):
        there.close()
        pieces = list(iter(lambda: here.recv(1 << 16), b""))
    assert len(pieces) > 300 and max(map(len, pieces)) < 100


def test_prompt_from_standard_input_is_the_same():
    said = ok_json("run", LM, "Call me", "--max-tokens", 8)
    assert ok_json("run", LM, "--max-tokens", 8, stdin="Call me\n")["ids"] == said["ids"]


def test_seed_decides_the_sample():
    args = ("run", LM, "It was", "--max-tokens", 12, "--temperature", 1, "--top-k", 50, "--top-p", 0.9)
    assert ok_json(*args, "--seed", 7)["ids"] == ok_json(*args, "--seed", 7)["ids"]
    assert len({tuple(ok_json(*args, "--seed", s)["ids"]) for s in range(4)}) > 1


def test_threads_do_not_change_the_result():
    one, two = (ok_json("run", LM, "It was", "--max-tokens", 16, "--logprobs", "--threads", n) for n in (1, 2))
    assert one["ids"] == two["ids"] and one["logprobs"] == two["logprobs"]


def test_threads_do_not_change_translations(tmp_path):
    lines = "".join(f"translate English to German: A dog number {n} runs on the beach with a man and a ball.\n" for n in range(60))
    (tmp_path / "in").write_text(lines)
    said = []
    for n in (1, 2, 3):
        ok("run", T5, "--input", tmp_path / "in", "--output", tmp_path / "out", "--json", "--logprobs", "--max-tokens", 12, "--threads", n)
        said.append([(line["ids"], line["logprobs"]) for line in map(json.loads, (tmp_path / "out").read_text().splitlines())])
    assert said[0] == said[1] == said[2] and len(said[0]) == 60


def test_empty_prompt_and_prompt_of_spaces():
    assert len(ok_json("run", LM, "", "--max-tokens", 4, "--ignore-eos")["ids"]) == 4
    assert len(ok_json("run", LM, "     ", "--max-tokens", 4, "--ignore-eos")["ids"]) == 4
    assert ok_json("run", T5, "")["prompt_tokens"] >= 1


def test_top_tokens_as_a_table():
    lines = ok("run", LM, "--logits", "--ids", "1 812").splitlines()
    assert len(lines) == 2 and lines[0].split()[0] == "0" and lines[1].split()[1] == "812"


def test_scores_of_an_encoder():
    good, bad = (float(ok("run", BERT, text)) for text in ("a warm and funny film", "dull , lifeless and boring"))
    assert good > 0.5 > bad


# Files of prompts.

@pytest.fixture(scope="module")
def corpus():
    with gzip.open(GOLDEN / "data/test_2016_flickr.en.gz", "rt", encoding="utf-8") as f:
        return ["translate English to German: " + line.rstrip("\n") for line in f]


@pytest.fixture(scope="module")
def english(corpus):
    return corpus[:60]


def test_file_equals_one_by_one(tmp_path, english):
    (tmp_path / "in").write_text("\n".join(english) + "\n", encoding="utf-8")
    run = proa("run", T5, "--input", tmp_path / "in", "--output", tmp_path / "out", "--max-tokens", 56, "--dtype", "exact")
    assert run.returncode == 0 and run.stdout == "" and "60 lines" in run.stderr
    out = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert len(out) == 60
    for i in (0, 7, 31, 59):
        assert ok("run", T5, english[i], "--max-tokens", 56, "--dtype", "exact").rstrip("\n") == out[i]
    golden = (GOLDEN / "trained/hyp/m30k-t5.hyp.test_2016_flickr.en-de.beam1.txt").read_text(encoding="utf-8").splitlines()
    assert sum(a == b for a, b in zip(out, golden)) == 60


def test_file_as_json_lines(tmp_path, english):
    """Packed input, no newline at the end, results on standard output, the same log-probabilities bit for bit."""
    with gzip.open(tmp_path / "in.gz", "wt", encoding="utf-8") as f:
        f.write("\n".join(english[:20]))
    lines = ok("run", T5, "--input", tmp_path / "in.gz", "--json", "--logprobs").splitlines()
    assert [json.loads(line)["line"] for line in lines] == list(range(1, 21))
    alone = ok_json("run", T5, english[13], "--logprobs")
    many = json.loads(lines[13])
    assert many["ids"] == alone["ids"] and many["logprobs"] == alone["logprobs"] and many["text"] == alone["text"]


def test_file_of_an_encoder(tmp_path):
    texts = ["a warm and funny film", "dull , lifeless and boring", "good"]
    out = ok("run", BERT, "--input", "-", stdin="\n".join(texts)).splitlines()
    for text, score in zip(texts, out, strict=True):
        assert float(score) == ok_json("run", BERT, text)["logits"][0][0]


def test_newlines_of_a_result_stay_on_its_line(tmp_path):
    (tmp_path / "in").write_text("It was a dark and stormy night\n")
    out = ok("run", LM, "--input", tmp_path / "in", "--max-tokens", 12)
    whole = ok_json("run", LM, "It was a dark and stormy night", "--max-tokens", 12)["text"]
    assert "\n" in whole and out == whole.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") + "\n"


def test_a_line_that_fails_keeps_the_others(tmp_path):
    (tmp_path / "in").write_text("It was\n" + "word " * 3000 + "\nIt was\n")
    run = proa("run", LM, "--input", tmp_path / "in", "--max-tokens", 5, "--json")
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 1 and len(lines) == 3
    assert lines[0]["ids"] == lines[2]["ids"] and "at most 1023" in lines[1]["error"]
    assert "1 of 3 lines failed" in run.stderr and ":2:" in run.stderr


def test_an_empty_file_gives_an_empty_file(tmp_path):
    (tmp_path / "in").write_text("")
    ok("run", LM, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text() == ""


def test_interrupt_ends_cleanly():
    with subprocess.Popen([PROA, "run", LM, "It was", "--max-tokens", "900", "--ignore-eos"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as p:
        p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        p.stdout.read()
        error = p.stderr.read()
        assert p.wait(timeout=20) == 130
    assert "proa: cancelled" in error and error.count("proa: ") == 1


def test_progress_only_on_a_terminal(tmp_path, corpus):
    (tmp_path / "in").write_text("\n".join(corpus[:250]), encoding="utf-8")
    args = [PROA, "run", T5, "--input", tmp_path / "in", "--output", tmp_path / "out", "--threads", "1"]
    assert "\r" not in proa(*args[1:]).stderr
    ours, theirs = pty.openpty()
    p = subprocess.Popen(args, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # Linux tells the end of a terminal so
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    assert p.wait() == 0
    assert b"lines/s" in seen and b"\x1b[K" in seen.rsplit(b"250 lines", 1)[0][-8:]  # cleared before the summary


def test_longer_steps_make_longer_inputs_of_an_embedder(tmp_path):
    """A pass has the whole input; rows of a causal model do not depend on what follows."""
    folder = tmp_path / "m"
    shutil.copytree(ARCH / "llama_embed", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 20000}))
    ids = [3 + i % 190 for i in range(16500)]
    assert "16384" in fails("run", folder, "--ids", ids_text(ids))
    long = ok_json("run", folder, "--ids", ids_text(ids), "--step-tokens", "16500")["hidden"]
    short = ok_json("run", folder, "--ids", ids_text(ids[:70]))["hidden"]
    assert len(long) == len(ids) and long[:70] == short
