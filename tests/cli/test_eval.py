# SPDX-License-Identifier: Apache-2.0
"""`proa eval`: perplexity, BLEU, accuracy, and the comparison with reference outputs itself."""
import gzip
import json
import math
import random
import shutil
import subprocess
import sys

import pytest
from harness import BERT, GOLDEN, LM, PROA, ROOT, T5, fails, ok, ok_json, proa, shared_model

sacrebleu = pytest.importorskip("sacrebleu")
DATA = GOLDEN / "data"
TEXT = DATA / "classics-validation.txt.gz"
NAMES = ["llama", "llama3", "mistral", "qwen2", "qwen3", "gpt2", "gptj", "bloom", "mpt", "gemma2", "t5", "t5_v1_1", "bert", "bert_regress", "bert_mlm"]


def passes(name, env):
    out = ok_json("eval", GOLDEN / "arch" / name, "--golden", GOLDEN / "arch" / name, "--dtype", "f32", env=env)
    assert out["passed"] and len(out["cases"]) >= 1 and out["difference"] < 1e-4


@pytest.mark.parametrize("name", sorted(folder.name for folder in (GOLDEN / "arch").iterdir()))
def test_golden_architectures(name):
    passes(name, {})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_golden_architectures_by_each_kernel_table(name, isa):
    passes(name, {"PROA_ISA": isa})


def test_golden_language_model():
    out = ok_json("eval", LM, "--golden", GOLDEN / "trained/classics-10m.json", "--data", TEXT, "--dtype", "exact")
    assert out["passed"] and len(out["cases"]) == 8 and len(out["nll"]) == 4 and out["nll_skipped"] == 0
    assert out["nll_difference"] < 1e-4 and out["score_difference"] < 1e-4
    assert all(c["prompt_same"] and c["text_same"] and c["greedy_same"] == 64 for c in out["cases"])


def test_golden_translator():
    out = ok_json("eval", T5, "--golden", GOLDEN / "trained/m30k-t5.json", "--dtype", "exact")
    assert out["passed"] and len(out["cases"]) == 20
    assert sum(c["beams"] for c in out["cases"]) == 20 * 9  # 1 greedy, 4 of 4 beams, 4 of 8 beams


@pytest.mark.parametrize("name", ["classics-3m", "classics-28m"])
@pytest.mark.parametrize("options, limit", [(["--dtype", "exact"], 1e-3), ([], 5e-3), (["--dtype", "bf16"], 5e-3), (["--quant", "int8"], 0.02),
                                            (["--quant", "int4"], 0.05)])
def test_golden_models_that_do_not_ship(name, options, limit):
    """Four bits cost the smallest model most: 0.0565 in the worst of four passages, 0.0499 nats over the whole text."""
    if name == "classics-3m" and options == ["--quant", "int4"]:
        limit = 0.06
    run = proa("eval", shared_model(name), "--golden", GOLDEN / f"trained/{name}.json", "--data", TEXT, "--json", *options)
    out = json.loads(run.stdout)
    assert out["nll_difference"] < limit
    assert run.returncode == (0 if out["passed"] else 1)
    assert out["passed"] or options != ["--dtype", "exact"]


def test_likelihoods_without_their_text_are_counted():
    out = ok_json("eval", LM, "--golden", GOLDEN / "trained/classics-10m.json", "--limit", 1, "--dtype", "exact")
    assert out["nll"] == [] and out["nll_skipped"] == 4 and len(out["cases"]) == 1


@pytest.fixture
def bent(tmp_path):
    """A golden folder in which one number can be bent."""
    shutil.copytree(GOLDEN / "arch/llama", tmp_path / "llama")
    path = tmp_path / "llama/golden.json"

    def bend(change):
        golden = json.loads((GOLDEN / "arch/llama/golden.json").read_text())
        change(golden["cases"][1])
        path.write_text(json.dumps(golden))
        run = proa("eval", tmp_path / "llama", "--golden", tmp_path / "llama", "--json")
        assert run.returncode in (0, 1)
        out = json.loads(run.stdout)
        assert out["passed"] == (run.returncode == 0)
        return out
    return bend


def test_a_wrong_logit_is_found(bent):
    def change(case):
        case["logits_last"][17] += 0.01
    out = bent(change)
    assert not out["passed"] and [c["passed"] for c in out["cases"]] == [True, False, True]
    assert 5e-4 < out["cases"][1]["difference"] < 2e-2


def test_a_wrong_token_is_found_with_its_place(bent, tmp_path):
    def change(case):
        case["greedy"][5] = (case["greedy"][5] + 1) % 200
    out = bent(change)
    case = out["cases"][1]
    assert not case["passed"] and case["greedy_same"] == 5 and case["gap"] > 0
    text = proa("eval", tmp_path / "llama", "--golden", tmp_path / "llama")
    assert text.returncode == 1 and "FAIL" in text.stdout and "case 1: greedy token 5 is" in text.stdout
    assert text.stderr.startswith("proa: ") and len(text.stderr.splitlines()) == 1


def test_a_wrong_log_probability_is_found(bent):
    def change(case):
        case["greedy_logprobs"][3] += 0.01
    assert not bent(change)["passed"]


def test_missing_columns_are_found(bent):
    def change(case):
        case["logits_first"].pop()
    out = bent(change)
    assert not out["passed"] and out["cases"][1]["difference"] is None


def test_a_wrong_beam_and_score_are_found(tmp_path):
    golden = json.loads((GOLDEN / "arch/t5/golden.json").read_text())
    for key, value in (("ids", [0, 5, 6]), ("score", -1.0)):
        bad = json.loads(json.dumps(golden))
        bad["cases"][0]["beam4_lp1.0"][key] = value
        (tmp_path / "golden.json").write_text(json.dumps(bad))
        fails("eval", GOLDEN / "arch/t5", "--golden", tmp_path)


@pytest.mark.parametrize("row", ["marian_banned", "mbart_forced"])
def test_a_forced_end_token_hides_where_beams_were_cut(tmp_path, row):
    """These hypotheses end with the token that is forced at the last step, so the file says how many steps there were."""
    golden = json.loads((GOLDEN / f"arch/{row}/golden.json").read_text())
    fine = ok_json("eval", GOLDEN / "arch" / row, "--golden", GOLDEN / "arch" / row)
    assert fine["passed"] and all(case["beams"] == case["beams_same"] == 4 for case in fine["cases"])
    for wrong in (0, -1, 1 << 40):
        (tmp_path / "golden.json").write_text(json.dumps({**golden, "max_new_tokens": wrong}))
        fails("eval", GOLDEN / "arch" / row, "--golden", tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cases":[{}]}', '{"cases":[{"input_ids":[-1]}]}', "{",
                                  '{"cases":[{"input_ids":[1],"greedy":"x"}]}', '{"cases":[1]}'])
def test_a_golden_file_that_is_none(tmp_path, text):
    (tmp_path / "g.json").write_text(text)
    run = proa("eval", GOLDEN / "arch/llama", "--golden", tmp_path / "g.json")
    assert run.returncode in (0, 1)
    if '"greedy":"x"' not in text:
        assert run.returncode == 1 and len(run.stderr.splitlines()) == 1


def test_perplexity_over_windows(tmp_path):
    """The mean over windows is what the logits of each window say."""
    text = gzip.open(TEXT, "rt", encoding="utf-8").read()[2000:3200]
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    out = ok_json("eval", LM, "--data", tmp_path / "t.txt", "--window", 64)
    ids = [json.loads(ok("run", LM, text, "--max-tokens", 1, "--json"))["prompt_tokens"]][0]
    assert out["tokens"] == ids - 1 and out["window"] == 64 and out["windows"] == math.ceil((ids - 1) / 63)
    assert math.isclose(out["perplexity"], math.exp(out["nll"]), rel_tol=1e-6)
    longer = ok_json("eval", LM, "--data", tmp_path / "t.txt")
    assert longer["nll"] < out["nll"]  # more context, better guesses
    assert 3 < out["nll"] < 6
    assert "perplexity" in ok("eval", LM, "--data", tmp_path / "t.txt")


def test_perplexity_counts_by_hand(tmp_path):
    (tmp_path / "t.txt").write_text("It was a dark and stormy night")
    rows = ok_json("run", LM, "It was a dark and stormy night", "--logits")["logits"]
    ids = json.loads((GOLDEN / "trained/classics-10m.json").read_text())["greedy"][0]["prompt_ids"]
    nll = 0
    for row, token in zip(rows, ids[1:]):
        top = max(row)
        nll -= row[token] - top - math.log(sum(math.exp(x - top) for x in row))
    out = ok_json("eval", LM, "--data", tmp_path / "t.txt")
    assert out["tokens"] == len(ids) - 1 and math.isclose(out["nll"], nll / (len(ids) - 1), rel_tol=1e-5)


@pytest.mark.parametrize("window", [1, 2000])
def test_window_bounds(window):
    assert f"--window {window}" in fails("eval", LM, "--data", TEXT, "--window", window)


def translate(tmp_path, beams, dtype):
    out = tmp_path / "hyp.txt"
    result = ok_json("eval", T5, "--dtype", dtype, "--source", DATA / "test_2016_flickr.en.gz", "--target",
                     DATA / "test_2016_flickr.de.gz", "--prefix", "translate English to German: ", "--output", out, "--max-tokens", 56, "--beams", beams,
                     timeout=600)
    hyp = out.read_text(encoding="utf-8").split("\n")[:-1]
    ref = gzip.open(DATA / "test_2016_flickr.de.gz", "rt", encoding="utf-8").read().split("\n")[:-1]
    golden = (GOLDEN / f"trained/hyp/m30k-t5.hyp.test_2016_flickr.en-de.beam{beams}.txt").read_text(encoding="utf-8")
    golden = golden.split("\n")[:-1]
    same = sum(a == b for a, b in zip(hyp, golden, strict=True)) / len(golden)
    return result, sacrebleu.corpus_bleu(hyp, [ref]), same


@pytest.mark.parametrize("beams, expected, dtype, least", [(4, 36.72, "exact", 0.99), (1, 36.04, "auto", 0.9)])
def test_translation(tmp_path, beams, expected, dtype, least):
    ours, theirs, same = translate(tmp_path, beams, dtype)
    assert abs(ours["bleu"] - theirs.score) < 1e-9
    assert all(abs(a - b) < 1e-9 for a, b in zip(ours["precisions"], theirs.precisions))
    assert ours["hypothesis_tokens"] == theirs.sys_len and ours["reference_tokens"] == theirs.ref_len
    assert ours["lines"] == 1000 and abs(ours["bleu"] - expected) < 0.1
    assert same >= least


def test_opennmt_translation(tmp_path):
    """OpenNMT-py's own file, its SentencePiece model and its vocabulary; the reference's greedy translations."""
    out = tmp_path / "hyp.txt"
    result = ok_json("eval", shared_model("m30k-opennmt"), "--source", DATA / "test_2016_flickr.en.gz", "--target",
                     DATA / "test_2016_flickr.de.gz", "--output", out, "--dtype", "f32", timeout=600)
    golden = (GOLDEN / "trained/hyp/m30k-opennmt.hyp.test_2016_flickr.greedy.txt").read_text(encoding="utf-8").splitlines()
    same = sum(a == b for a, b in zip(out.read_text(encoding="utf-8").splitlines(), golden, strict=True))
    assert abs(result["bleu"] - 36.80) < 0.1 and same >= 990


def test_opennmt_example(tmp_path):
    example = ROOT / "examples/translate-opennmt/translate.py"
    sys.path.insert(0, str(example.parent))
    undo = __import__("translate").undo_pieces
    assert undo("\u2581A \u2581d og \u2581runs .") == "A dog runs."
    for name in ("en", "de"):
        lines = gzip.open(DATA / f"test_2016_flickr.{name}.gz", "rt", encoding="utf-8").read().splitlines()[:40]
        pieces = [" ".join("\u2581" + word for word in line.split()) for line in lines]
        (tmp_path / f"pieces.{name}").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    run = subprocess.run([sys.executable, example, shared_model("m30k-opennmt"), tmp_path / "pieces.en", tmp_path / "pieces.de",
                          "--pieces", "--dtype", "f32,bf16", "--beams", "2", "--least", "25", "--proa", PROA],
                         capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["dtype", "f32", "bf16"]
    for model, source, text in ((tmp_path / "none", "en", "proa: cannot open model"), (T5, "none", "translate.py: [Errno 2]")):
        run = subprocess.run([sys.executable, example, model, tmp_path / f"pieces.{source}", tmp_path / "pieces.de", "--proa", PROA],
                             capture_output=True, text=True, timeout=60)
        assert run.returncode == 1 and run.stderr.startswith(text) and run.stderr.count("\n") == 1, run.stderr


def test_translation_needs_as_many_targets(tmp_path):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    line = fails("eval", T5, "--source", tmp_path / "a", "--target", tmp_path / "b")
    assert "has 2 lines" in line and line.endswith("b' 1")


def test_accuracy(tmp_path):
    out = ok_json("eval", BERT, "--labels", DATA / "polarity-test.tsv", "--output", tmp_path / "scores")
    assert abs(out["accuracy"] - 0.779) < 5e-4 and out["lines"] == 1062
    golden = [float(line.split("\t")[1]) for line in (DATA / "polarity-test.tsv").read_text(encoding="utf-8").splitlines()]
    ours = [float(line) for line in (tmp_path / "scores").read_text().splitlines()]
    differences = sorted(abs(a - b) for a, b in zip(ours, golden, strict=True))
    assert differences[-3] < 1e-5
    assert differences[-1] < 2e-3  # the reference cut the two longest lines at 64 tokens


def test_labels_that_are_none(tmp_path):
    for text, words in (("no tab here\n", "a label, a tab and a text"), ("x\ttext\n", "label 'x'"), ("", "is empty")):
        (tmp_path / "l").write_text(text)
        assert words in fails("eval", BERT, "--labels", tmp_path / "l")


# BLEU by itself: tests/cli/bleu_of.c is our code without a model.

BLEU_OF = PROA.parent / "tests/cli_bleu_of"
HARD = ["", " ", "Hello, world!", "1,000.5 - 3-4 a.b ... .. , ,,", "&quot;x&quot; &amp;lt; &lt;b&gt; &", "<skipped>a<skipped>",
        "über-groß – “quoted” it’s don't", "a\u00a0b\u3000c\u2028d\x1ce", "x.\u4e2d.5 5.\u4e2d", "-5 5- 5-5 --", "(a)[b]{c}~`^_=+*/\\|@#$%",
        "日本語。テスト", "مرحبا، بالعالم", "🙂👍🏽 ok", "e\u0301.", "…a…", "\u0085a\u0085", "a.\u00a0b", "9.a a.9 9.9 .9. 9..9"]


def bleu_of(hyp, ref, tmp_path):
    (tmp_path / "h").write_bytes("".join(line + "\n" for line in hyp).encode())
    (tmp_path / "r").write_bytes("".join(line + "\n" for line in ref).encode())
    run = subprocess.run([BLEU_OF, tmp_path / "h", tmp_path / "r"], capture_output=True, text=True, check=True)
    return [float(x) for x in run.stdout.split()]


def same_bleu(hyp, ref, tmp_path):
    theirs = sacrebleu.corpus_bleu(hyp, [ref])
    ours = bleu_of(hyp, ref, tmp_path)
    expected = [theirs.score, theirs.bp, theirs.sys_len, theirs.ref_len, *theirs.precisions]
    assert all(abs(a - b) < 1e-9 for a, b in zip(ours, expected, strict=True)), (ours, expected, hyp, ref)


def test_bleu_of_hard_lines(tmp_path):
    for line in HARD:
        same_bleu([line], [line], tmp_path)
        same_bleu([line + " more words here"], [line], tmp_path)
    same_bleu(HARD, HARD[::-1], tmp_path)


def test_bleu_of_random_lines(tmp_path):
    r = random.Random(5)
    atoms = list("abc.,-&;<>019 '\"()/") + ["&quot;", "&amp;", "&lt;", "&gt;", "the", "dog", " ", " ", "é", "中", "\u00a0", "<skipped>"]
    for _ in range(60):
        hyp, ref = (["".join(r.choices(atoms, k=r.randrange(30))) for _ in range(8)] for _ in range(2))
        ref = [h if r.random() < 0.4 else x for h, x in zip(hyp, ref)]
        same_bleu(hyp, ref, tmp_path)


def test_bleu_of_short_corpora(tmp_path):
    """No 4-grams, no matches, nothing at all: where smoothing and the early ends are."""
    for hyp, ref in ((["a"], ["a"]), (["a b c"], ["a b c"]), (["a b c d"], ["d c b a"]), (["x"], ["y"]), ([""], ["a"]),
                     (["a"], [""]), (["a b c d e"], ["a b c d e f g h"]), (["the the the the"], ["the cat"])):
        same_bleu(hyp, ref, tmp_path)


def test_binary_is_the_one_that_was_built():
    assert PROA.exists() and BLEU_OF.exists()
