# SPDX-License-Identifier: Apache-2.0
"""Compares Proa's tokenizers with the PyPI packages `tokenizers` and `sentencepiece`, both ways.

Builds tokenizers of every kind with the oracle, runs both on the strings of oracle_strings.py through the driver
tests/text/tokdump.c (beside the program that $PROA names), and wants no difference. Run by pytest.
"""
import json
import os
import pathlib
import struct
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="needs the PyPI package tokenizers")
spm = pytest.importorskip("sentencepiece", reason="needs the PyPI package sentencepiece")
from oracle_strings import id_lists, long_strings, strings, texts  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = str(ROOT / "models")
TOKDUMP = pathlib.Path(os.environ.get("PROA", ROOT / "build/release/proa")).parent / "tests/text_tokdump"


class Dump:
    """The driver: one process for all tokenizers."""

    def __init__(self, program, paths):
        self.p = subprocess.Popen([program, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.p.stdin.close()
        assert self.p.wait() == 0

    def cpu_seconds(self):
        """What it has computed: no other program of the machine is in it."""
        with open(f"/proc/{self.p.pid}/stat", encoding="ascii", errors="replace") as stat:
            user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _u32(self):
        return struct.unpack("<I", self.p.stdout.read(4))[0]

    def _list(self):
        n = self._u32()
        if n == 0xFFFFFFFF:
            return "error: " + self.p.stdout.read(self._u32()).decode()
        return list(struct.unpack(f"<{n}i", self.p.stdout.read(4 * n)))

    def encode(self, which, text, special, pair=None):
        self.p.stdin.write(b"e" + struct.pack("<III", which, special | (2 if pair is not None else 0), len(text)) + text)
        if pair is not None:
            self.p.stdin.write(struct.pack("<I", len(pair)) + pair)
        self.p.stdin.flush()
        ids = self._list()
        return (ids, self._list()) if pair is not None and not isinstance(ids, str) else ids

    def decode(self, which, ids, skip):
        self.p.stdin.write(b"d" + struct.pack("<III", which, skip, len(ids)) + struct.pack(f"<{len(ids)}i", *ids))
        self.p.stdin.flush()
        n = self._u32()
        if n == 0xFFFFFFFF:
            return "error: " + self.p.stdout.read(self._u32()).decode()
        whole = self.p.stdout.read(n).decode()
        stream = self.p.stdout.read(self._u32()).decode()
        return whole if whole == stream else f"stream differs: {stream!r} whole: {whole!r}"


class Report:
    def __init__(self):
        self.lines = []

    def compare(self, what, ours, theirs, shown):
        if ours != theirs:
            self.lines.append(f"{what} of {shown!r:.300}\n    ours   {str(ours)[:400]}\n    oracle {str(theirs)[:400]}")

    def close(self):
        assert not self.lines, f"{len(self.lines)} differences:\n" + "\n".join(self.lines[:10])


# ---- tokenizers of every kind, trained or drawn by the oracle ----


def train(tok, **options):
    kind = {models.BPE: trainers.BpeTrainer, models.WordPiece: trainers.WordPieceTrainer, models.Unigram: trainers.UnigramTrainer,
            models.WordLevel: trainers.WordLevelTrainer}
    for model, trainer in kind.items():
        if isinstance(tok.model, model):
            tok.train_from_iterator(texts(), trainer(show_progress=False, **options))
    return tok


def gpt2_like():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tok, vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"])
    tok.add_tokens([AddedToken("riding", single_word=True), AddedToken("bike", lstrip=True, rstrip=True)])
    return tok


def llama2_like():
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    train(tok, vocab_size=1200, special_tokens=specials, limit_alphabet=120)
    data = json.loads(tok.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    data["model"]["byte_fallback"] = True
    tok = Tokenizer.from_str(json.dumps(data))
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tok


def gemma_like():
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    train(tok, vocab_size=1200, special_tokens=specials, limit_alphabet=120)
    data = json.loads(tok.to_str())
    data["added_tokens"] = data["added_tokens"][:4]
    tok = Tokenizer.from_str(json.dumps(data))
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tok.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)])
    return tok


def bloom_like():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False)
    return train(tok, vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<unk>", "<s>", "</s>", "<pad>"])


def llama3_like():
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    train(tok, vocab_size=1000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|begin_of_text|>", "<|eot_id|>"])
    first = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", first)])])
    return tok


def qwen_like():
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return train(tok, vocab_size=800, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|im_start|>", "<|im_end|>"])


def roberta_like():
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tok.decoder = decoders.ByteLevel()
    train(tok, vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tok


def clip_like():
    tok = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    tok.decoder = decoders.BPEDecoder("</w>")
    return train(tok, vocab_size=700, special_tokens=["<unk>"], limit_alphabet=150, end_of_word_suffix="</w>")


def prefix_bpe():
    tok = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tok.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")])
    tok.decoder = decoders.WordPiece(cleanup=False)
    return train(tok, vocab_size=600, special_tokens=["[UNK]"], limit_alphabet=90, continuing_subword_prefix="##")


def bert_like(lower, chinese=True, accents=None):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    train(tok, vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=200)
    if lower:
        tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tok.add_tokens([AddedToken("Hello", normalized=True), AddedToken("MÄNNER", normalized=True, single_word=True)])
    else:
        tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                           special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tok


def charsmap():
    """nmt_nfkc rules, from the shipped T5 tokenizer."""
    data = json.load(open(os.path.join(SHIPPED, "m30k-t5", "tokenizer.json"), encoding="utf-8"))
    steps = data["normalizer"]["normalizers"]
    return next(s for s in steps if s["type"] == "Precompiled")


def unigram_like(byte_fallback, scheme):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=not byte_fallback)
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    train(tok, vocab_size=900, special_tokens=specials, unk_token="<unk>", initial_alphabet=[])
    data = json.loads(tok.to_str())
    data["model"]["vocab"] = [p for p in data["model"]["vocab"] if len(p[0]) > 1 or p[0].isascii() or p[0] == "▁" or byte_fallback is None]
    data["model"]["byte_fallback"] = byte_fallback
    data["model"]["unk_id"] = 0
    data["added_tokens"] = data["added_tokens"][:3]
    data["normalizer"] = {"type": "Sequence", "normalizers": [charsmap()] + ([] if byte_fallback else [
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}])}
    tok = Tokenizer.from_str(json.dumps(data))
    tok.decoder = (decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]) if byte_fallback
                   else decoders.Metaspace(prepend_scheme=scheme))
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return tok


def wordlevel():
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.Punctuation("contiguous")])
    return train(tok, vocab_size=500, special_tokens=["<unk>"])


def splitter(behavior, invert, pattern):
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Strip(left=True, right=False)
    tok.pre_tokenizer = pre_tokenizers.Split(pattern, behavior, invert)
    tok.decoder = decoders.Sequence([decoders.Replace(Regex("[ab]+"), "_"), decoders.CTC(pad_token="<unk>", word_delimiter_token="e")])
    return train(tok, vocab_size=300, special_tokens=["<unk>"], limit_alphabet=80)


def byte_level_normalizer():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.ByteLevel()])
    tok.decoder = decoders.ByteLevel()
    train(tok, vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.add_tokens([AddedToken("Straße", normalized=True)])
    tok.add_special_tokens([AddedToken("<sep>", lstrip=True, rstrip=True, single_word=True)])
    return tok


def metaspace_first():
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tok.decoder = decoders.Metaspace(prepend_scheme="first")
    return train(tok, vocab_size=500, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=150)


def scripts():
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.UnicodeScripts()
    return train(tok, vocab_size=900, special_tokens=["<unk>"], limit_alphabet=400)


FAMILIES = {
    "gpt2": gpt2_like,
    "llama2": llama2_like,
    "llama3": llama3_like,
    "gemma": gemma_like,
    "bloom": bloom_like,
    "qwen": qwen_like,
    "roberta": roberta_like,
    "clip": clip_like,
    "bpe-prefix": prefix_bpe,
    "bert-uncased": lambda: bert_like(True),
    "bert-cased": lambda: bert_like(False),
    "bert-accents": lambda: bert_like(True, chinese=False, accents=False),
    "unigram": lambda: unigram_like(False, "always"),
    "unigram-bytes": lambda: unigram_like(True, "first"),
    "wordlevel": wordlevel,
    "byte-normalizer": byte_level_normalizer,
    "metaspace-first": metaspace_first,
    "scripts": scripts,
}
for _behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
    FAMILIES[f"split-{_behavior}"] = lambda b=_behavior: splitter(b, False, Regex(r"\w+|[^\w\s]"))
    FAMILIES[f"split-inverted-{_behavior}"] = lambda b=_behavior: splitter(b, True, " ")

PATTERNS = [r"\w+", r"[\w']+|\W", r"[^\W\d]+", r"[\W\d]+x?", r"[^\W]|[\W]", r"\w\B\w|\b.", r"\s+$", r"^\s*", r"[[:alpha:]]+|[[:punct:]]", r"[[:space:][:digit:]]+", r"[\p{L}&&[^\p{Latin}]]+",
            r"[a-z&&[^aeiou]]+", r"[^a-z&&[aeiou]]", r"[a[bc]d]+", r"\h+", r"(?m:e.)", r"\p{Letter}+|\p{Decimal_Number}", r"\p{^L}+", r"\p{Greek}+|\p{Cyrillic}",
            r"\u0041|\x{42}", r"(?<=a)b|b(?=c)", r"x*", r"(?:)", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r"[一-龥぀-ゟ゠-ヿ]+", r"(?i)straße|ÄÖ", r"\d{1,3}(?=(?:\d{3})*\b)"]


def pattern_like(pattern):
    """Where a pattern matches: WordLevel shows nothing, so BPE by characters with the matches replaced."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(Regex(pattern), "⟨⟩")
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "merged_with_next")
    return train(tok, vocab_size=400, special_tokens=["<unk>"], limit_alphabet=300, initial_alphabet=["⟨", "⟩"])


# ---- the comparison ----


def check_long(report, dump, special, oracle):
    for raw in long_strings():
        before = dump.cpu_seconds()
        ours = dump.encode(0, raw, special)
        took = dump.cpu_seconds() - before
        report.compare("encode 100 kB", ours, oracle(raw.decode()), raw[:20])
        report.compare("under 2 s for 100 kB without a space", took < 2.0, True, f"{took:.2f} s")


def check_tokenizer(path):
    tok, dump, report = Tokenizer.from_file(path), Dump(TOKDUMP, [path]), Report()
    for raw in strings():
        text = raw.decode("utf-8", "replace")
        for special in (True, False):
            theirs = tok.encode(text, add_special_tokens=special).ids
            report.compare(f"encode(special={special})", dump.encode(0, raw, special), theirs, text)
        for skip in (True, False):
            report.compare(f"decode(skip={skip})", dump.decode(0, theirs, skip), tok.decode(theirs, skip_special_tokens=skip), theirs)
    for ids in id_lists(tok.get_vocab_size()):
        for skip in (True, False):
            report.compare(f"decode(skip={skip})", dump.decode(0, ids, skip), tok.decode(ids, skip_special_tokens=skip), ids)
    some = strings()[10:160]
    for a, b in zip(some[::2], some[1::2]):
        for special in (True, False):
            both = tok.encode(a.decode("utf-8", "replace"), b.decode("utf-8", "replace"), add_special_tokens=special)
            report.compare("encode_pair", dump.encode(0, a, special, b), (both.ids, both.type_ids), (a, b))
    check_long(report, dump, True, lambda text: tok.encode(text).ids)
    dump.close()
    report.close()


def check_spm(path):
    sp, dump, report = spm.SentencePieceProcessor(model_file=path), Dump(TOKDUMP, [path]), Report()
    for raw in strings():
        text = raw.decode("utf-8", "replace")
        theirs = sp.encode(text)
        report.compare("encode", dump.encode(0, raw, False), theirs, text)
        report.compare("decode", dump.decode(0, theirs, False), sp.decode(theirs), theirs)
    for ids in id_lists(sp.get_piece_size()):
        report.compare("decode", dump.decode(0, ids, False), sp.decode(ids), ids)
    check_long(report, dump, False, sp.encode)
    dump.close()
    report.close()


SPM = {
    "unigram-nmt": dict(model_type="unigram", vocab_size=600),
    "unigram-bytes": dict(model_type="unigram", vocab_size=900, byte_fallback=True, character_coverage=0.98),
    "unigram-identity": dict(model_type="unigram", vocab_size=600, normalization_rule_name="identity", remove_extra_whitespaces=False,
                             character_coverage=0.98, user_defined_symbols=["<sep>", "ing", "bike  "]),
    "unigram-suffix": dict(model_type="unigram", vocab_size=600, treat_whitespace_as_suffix=True, normalization_rule_name="nfkc_cf"),
    "unigram-noprefix": dict(model_type="unigram", vocab_size=600, add_dummy_prefix=False, character_coverage=0.98),
    "bpe-nmt": dict(model_type="bpe", vocab_size=700, character_coverage=0.98),
    "bpe-bytes": dict(model_type="bpe", vocab_size=1000, byte_fallback=True, character_coverage=0.98, split_digits=True,
                      normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
    "bpe-symbols": dict(model_type="bpe", vocab_size=700, character_coverage=0.98, user_defined_symbols=["<sep>", "ing", "the"],
                        control_symbols=["<ctl>"], normalization_rule_name="nfkc", add_dummy_prefix=False),
}


@pytest.fixture(scope="session", autouse=True)
def driver():
    if not TOKDUMP.exists():
        pytest.skip(f"the driver {TOKDUMP} is not built")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "corpus.txt"
    path.write_text("\n".join(t.replace("\n", " ").replace("\0", "") for t in texts()), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["m30k-t5", "classics-10m", "polarity-bert"])
def test_shipped(name):
    check_tokenizer(os.path.join(SHIPPED, name, "tokenizer.json"))


@pytest.mark.parametrize("name", FAMILIES)
def test_tokenizer(name, tmp_path):
    path = str(tmp_path / "tokenizer.json")
    FAMILIES[name]().save(path)
    check_tokenizer(path)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern(pattern, tmp_path):
    path = str(tmp_path / "tokenizer.json")
    pattern_like(pattern).save(path)
    tok, dump, report = Tokenizer.from_file(path), Dump(TOKDUMP, [path]), Report()
    for raw in strings(600):
        report.compare("encode", dump.encode(0, raw, True), tok.encode(raw.decode("utf-8", "replace")).ids, raw)
    dump.close()
    report.close()


@pytest.mark.parametrize("name", SPM)
def test_sentencepiece(name, corpus, tmp_path):
    prefix = str(tmp_path / name)
    spm.SentencePieceTrainer.train(input=str(corpus), model_prefix=prefix, minloglevel=2, hard_vocab_limit=False, num_threads=1, **SPM[name])
    check_spm(prefix + ".model")


def test_sentencepiece_shipped():
    check_spm(os.path.join(SHIPPED, "m30k-t5", "spiece.model"))


def test_old_file_forms(tmp_path):
    """vocab.txt, and vocab.json with merges.txt, give the ids of the tokenizer.json that holds the same."""
    bert, gpt = tmp_path / "bert", tmp_path / "gpt"
    bert.mkdir(), gpt.mkdir()
    data = json.load(open(os.path.join(SHIPPED, "polarity-bert", "tokenizer.json"), encoding="utf-8"))
    vocab = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    (bert / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocab), encoding="utf-8")
    data = json.load(open(os.path.join(SHIPPED, "classics-10m", "tokenizer.json"), encoding="utf-8"))
    (gpt / "vocab.json").write_text(json.dumps(data["model"]["vocab"]))
    (gpt / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in data["model"]["merges"]), encoding="utf-8")
    (gpt / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": "<pad>", "unk_token": "<unk>"}')
    for folder, shipped, special in [(bert, "polarity-bert", True), (gpt, "classics-10m", False)]:
        tok, report = Tokenizer.from_file(os.path.join(SHIPPED, shipped, "tokenizer.json")), Report()
        dump = Dump(TOKDUMP, [str(folder)])
        for raw in strings(400):
            theirs = tok.encode(raw.decode("utf-8", "replace"), add_special_tokens=special).ids
            report.compare("encode", dump.encode(0, raw, special), theirs, raw)
            report.compare("decode", dump.decode(0, theirs, True), tok.decode(theirs), theirs)
        dump.close()
        report.close()
