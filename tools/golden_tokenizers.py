#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizers: small tokenizers in files other than tokenizer.json, and what the programs that such
files are of make of fixed strings.

    tools/golden_tokenizers.py [NAME...]      (needs tiktoken 0.14, transformers 4.57.3 with tokenizers 0.22, subword-nmt)

golden.txt has the format of tools/golden_text.py. tests/unit/text/test_golden_folders.c reads all folders.
"""
import base64
import importlib.metadata
import io
import itertools
import json
import pathlib
import random
import struct
import sys
import tempfile
import unicodedata

import tiktoken
import tiktoken_ext.openai_public as public
import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "tests/golden/tokenizers"
sys.path.insert(0, str(ROOT / "tests/text"))
sys.path.insert(0, str(ROOT / "tools"))
from golden_text import escape, fnv  # noqa: E402
from oracle_strings import strings, texts  # noqa: E402

COUNT, SHOWN = 200, 40


def golden(name, made_by, encode, decode, extra=()):
    """encode: text -> ids with special tokens; decode: these ids -> text without special tokens."""
    lines = [f"# {made_by}; made by tools/golden_tokenizers.py"]
    for i, raw in enumerate(list(strings(COUNT)) + [s.encode() for s in extra]):
        ids = encode(raw.decode("utf-8", "replace"))
        line = f"{escape(raw)}\t{len(ids)} {fnv(struct.pack(f'<{len(ids)}i', *ids))} {fnv(decode(ids).encode())}"
        lines.append(line + (": " + " ".join(map(str, ids)) if i < SHOWN or i >= COUNT else ""))
    (OUT / name / "golden.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def write(name, file, content):
    (OUT / name).mkdir(parents=True, exist_ok=True)
    (OUT / name / file).write_bytes(content.encode() if isinstance(content, str) else content)


# ---- tiktoken ----

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = "|".join([r"[\p{Han}]+",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def ranks_of(pattern, size=700):
    """Bytes in another order than their values, trained merges, then strings of few letters in random order: most pieces
    can be made in several ways, and equal ranks meet."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    chars = {c: b for b, c in byte_chars().items()}
    pieces = sorted(tok.get_vocab().items(), key=lambda p: p[1])
    out = list(dict.fromkeys(bytes(chars[c] for c in piece) for piece, _ in pieces))
    more = [bytes(s) for n in (2, 3, 4) for s in itertools.product(b"ab", repeat=n)] + [b" " * n for n in range(2, 9)]
    random.Random(1).shuffle(more)
    return {piece: rank for rank, piece in enumerate(out + [m for m in more if m not in out])}


def byte_chars():
    """GPT-2's character for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(0x100 + i) for i, b in enumerate(other)}


def tiktoken_folder(name, file, pattern, specials, prefix=(), nfc=False, config=None, hole=None):
    """specials: name -> id after the last rank; hole: a rank that no piece has (p50k's endoftext)."""
    ranks = ranks_of(pattern)
    if hole is not None:
        at = len(ranks) + hole
        ranks = {piece: rank + (rank >= at) for piece, rank in ranks.items()}
    end = max(ranks.values()) + 1
    special = {s: end + at for s, at in specials.items()}
    write(name, file, "".join(f"{base64.b64encode(p).decode()} {r}\n" for p, r in ranks.items()))
    if config is not None:
        added = {str(i): {"content": s, "special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
                 for s, i in special.items()}
        write(name, "tokenizer_config.json", json.dumps(config | {"added_tokens_decoder": added}, ensure_ascii=False, indent=1) + "\n")
    enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    before = [special[s] for s in prefix]
    extra = [f"a{s}b {s}" for s in list(specials)[:20]] + ["aab abba bbbb", "a" * 23, "ab" * 9 + "b" * 11, " " * 21 + "aba", "ﬁ Å Å e\u0301"]
    golden(name, f"tiktoken {tiktoken.__version__}",
           lambda t: before + enc.encode(unicodedata.normalize("NFC", t) if nfc else t, allowed_special="all"),
           lambda ids: enc.decode([i for i in ids if i not in special.values()]), extra)


def openai(name, file, size):
    """The pattern and the special tokens of tiktoken itself; size: of the public vocabulary."""
    public.load_tiktoken_bpe = lambda *_, **__: {}
    e = public.ENCODING_CONSTRUCTORS[name]()
    return lambda: tiktoken_folder("tiktoken_" + name, file, e["pat_str"], {s: i - size for s, i in e["special_tokens"].items()},
                                   hole=-24 if name == "p50k_base" else None)


def llama3():
    names = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(4)]
    names += ["<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(5, 251)]
    tiktoken_folder("tiktoken_llama3", "tokenizer.model", LLAMA3, {s: i for i, s in enumerate(names)}, prefix=names[:1])


def qwen():
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
    tiktoken_folder("tiktoken_qwen", "qwen.tiktoken", LLAMA3.replace("{1,3}", ""), {s: i for i, s in enumerate(names)}, nfc=True)


def glm4():
    names = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
    tiktoken_folder("tiktoken_glm4", "tokenizer.model", LLAMA3, {s: i for i, s in enumerate(names)}, prefix=["[gMASK]", "<sop>"],
                    config={"tokenizer_class": "ChatGLM4Tokenizer"})


def kimi():
    names = {"[BOS]": 0, "[EOS]": 1, "<|im_end|>": 2, "<|im_user|>": 3, "<|im_assistant|>": 4, "[UNK]": 250, "[PAD]": 255}
    tiktoken_folder("tiktoken_kimi", "tiktoken.model", KIMI, names, config={"tokenizer_class": "TikTokenTokenizer"})


# ---- vocab.json with merges.txt, vocab.txt ----


def byte_bpe(specials, size=600):
    """The texts of vocab.json and merges.txt; specials: the first pieces."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=specials,
                                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tok.to_str())["model"]
    vocab = json.dumps(dict(sorted(model["vocab"].items(), key=lambda p: p[1])), ensure_ascii=False)
    return vocab, "#version: 0.2\n" + "\n".join(" ".join(m) for m in model["merges"]) + "\n"


def transformers_folder(name, files, extra):
    import transformers
    for file, content in files.items():
        write(name, file, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    tok = transformers.AutoTokenizer.from_pretrained(str(OUT / name), use_fast=True)
    golden(name, f"transformers {transformers.__version__} {type(tok).__name__}, tokenizers {tokenizers.__version__}",
           lambda t: tok(t)["input_ids"], lambda ids: tok.backend_tokenizer.decode(ids, skip_special_tokens=True), extra)


def bpe_folder(name, specials, extra, **files):
    vocab, merges = byte_bpe(specials)
    files = {file.replace("__", "."): content for file, content in files.items()}
    return lambda: transformers_folder(name, {"vocab.json": vocab, "merges.txt": merges} | files, extra)


def added(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "__type": "AddedToken"} | flags


def bert_folder():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(texts(), trainers.WordPieceTrainer(vocab_size=700, show_progress=False, limit_alphabet=200,
                                                               special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    pieces = [p for p, _ in sorted(tok.get_vocab().items(), key=lambda p: p[1])]
    transformers_folder("bert_files", {
        "vocab.txt": "\n".join(pieces) + "\n", "config.json": {"model_type": "bert"}, "tokenizer_config.json": {"do_lower_case": False},
        "added_tokens.json": {"Hello": len(pieces) + 1, "<x>": len(pieces)},
        "special_tokens_map.json": {"mask_token": added("[MASK]", lstrip=True), "additional_special_tokens": ["<x>"]}},
        ["a [MASK] b<x>Hello", "Hello[SEP] x [CLS]"])


def esm_folder():
    """Amino acids, which the class finds wherever they are in a text."""
    import transformers
    pieces = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
    write("esm_files", "vocab.txt", "\n".join(pieces))
    write("esm_files", "tokenizer_config.json", json.dumps({"tokenizer_class": "EsmTokenizer"}) + "\n")
    tok = transformers.EsmTokenizer(str(OUT / "esm_files/vocab.txt"))
    golden("esm_files", f"transformers {transformers.__version__} EsmTokenizer", lambda t: tok(t)["input_ids"],
           lambda ids: tok.decode(ids, skip_special_tokens=True),
           ["MKTAYIAKQRQISFVKSHFSRQ", "M K T <mask> V", "MK<mask>LL<null_1>x yA", "ABa1 <cls>", "<unk>J"])


# ---- subword-nmt ----


def codes_folder(name, vocabulary, size=500, fast=False):
    """fast: as fastBPE writes codes, with a count and without a version."""
    import collections
    import importlib.metadata
    import io
    import re
    from subword_nmt import apply_bpe, learn_bpe
    codes = io.StringIO()
    learn_bpe.learn_bpe([" ".join(t.split()) + "\n" for t in texts()], codes, size, min_frequency=2)
    codes = codes.getvalue()
    bpe = apply_bpe.BPE(io.StringIO(codes))
    count = collections.Counter(p for t in texts() for p in bpe.segment_tokens(t.split()))
    pieces = ["<unk>", "<blank>", "<s>", "</s>"] + [p for p, n in count.most_common() if n > 3 and p not in ("th@@", "<pad>", "<unk>", "<s>", "</s>")]
    lines = codes.splitlines()
    written = "".join(f"{c} {1000 - i}\n" for i, c in enumerate(lines[1:])) if fast else codes + lines[1] + "\n"
    write(name, "bpecodes" if fast else "bpe.codes", written)
    if fast:  # a NUL ends a key of vocab.json
        pieces = [p for p in pieces if "\0" not in p]
    if vocabulary == "vocab.txt":
        write(name, vocabulary, "".join(f"{p}\t{count[p]}\n" for p in pieces))
    else:
        write(name, vocabulary, json.dumps({p: i for i, p in enumerate(pieces)}, ensure_ascii=False) + "\n")
    ids = {p: i for i, p in enumerate(pieces)}
    special = {ids[s] for s in ("<blank>", "<s>", "</s>")}
    golden(name, f"subword-nmt {importlib.metadata.version('subword-nmt')}",
           lambda t: [ids.get(p, 0) for p in bpe.segment_tokens(t.split())],
           lambda x: re.sub("(@@ )|(@@ ?$)", "", " ".join(pieces[i] for i in x if i not in special)),
           ["the other <s> thing</s> <unk> <blank>", "weather thther th t h", "a" * 40, "@@ x@@ @@"])


# ---- a SentencePiece model with fairseq's ids ----

SPM_RULES = "".join(f"{c}\t20\n" for c in ("9", "A", "B", "C", "D", "85", "A0", "2003", "2028", "3000")) + "FF21\t41\n"


def spm_bytes(kind, own_ids=False):
    """A model of 500 pieces; its rules make blanks of all white space. own_ids: it has fairseq's special tokens itself."""
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        rules.write_text(SPM_RULES)
        lines = [t.replace("\n", " ").replace("\0", "") for t in texts()]
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([t for t in lines if t.strip()]), model_writer=model, model_type=kind,
                                                 vocab_size=500, hard_vocab_limit=False, normalization_rule_tsv=str(rules), num_threads=1,
                                                 character_coverage=0.99, minloglevel=2,
                                                 **({"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3} if own_ids else {}))
    # the trainer writes the path of the rules; an equal file must come out each time
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.normalization_rule_tsv = "rules.tsv"
    if own_ids:
        proto.pieces.add(piece="<mask>", score=0, type=sentencepiece_model_pb2.ModelProto.SentencePiece.CONTROL)
    return proto.SerializeToString(deterministic=True), [p.piece for p in proto.pieces]


def fairseq_folder(name, kind, extra, vocabulary=False, **config):
    """The slow tokenizer of the class, whose files these are. Without added_tokens_decoder the class adds its tokens.
    Pieces are decoded by sentencepiece: the class also strips blanks at both ends."""
    def run():
        import transformers
        model, pieces = spm_bytes(kind, own_ids="Barthez" in config["tokenizer_class"])
        write(name, "sentencepiece.bpe.model", model)
        n = len(pieces)
        if vocabulary:
            words = pieces[3:]
            random.Random(2).shuffle(words)
            write(name, "vocab.json", json.dumps({p: i for i, p in enumerate(["<s>", "<pad>", "</s>", "<unk>"] + words[5:])}, ensure_ascii=False) + "\n")
        if vocabulary:  # as the public folders have it
            from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as codes
            config["additional_special_tokens"] = [f"__{c}__" for c in codes["m2m100"]]
        if name == "nllb_files":  # transformers 4 puts the mask first where the file does not say the order
            from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES
            names = ["<s>", "<pad>", "</s>", "<unk>"]
            config["added_tokens_decoder"] = {str(i): added(t, special=True) for i, t in enumerate(names)} | {
                str(n + 1 + i): added(t, special=True) for i, t in enumerate(FAIRSEQ_LANGUAGE_CODES)} | {
                str(n + 1 + len(FAIRSEQ_LANGUAGE_CODES)): added("<mask>", special=True, lstrip=True)}
        write(name, "tokenizer_config.json", json.dumps(config, ensure_ascii=False, indent=1) + "\n")
        tok = getattr(transformers, config["tokenizer_class"]).from_pretrained(str(OUT / name))
        golden(name, f"transformers {transformers.__version__} {type(tok).__name__}, sentencepiece {importlib.metadata.version('sentencepiece')}",
               lambda t: tok(t)["input_ids"],
               lambda ids: tok.sp_model.decode_pieces(tok.convert_ids_to_tokens(ids, skip_special_tokens=True)), extra)
    return run


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
FOLDERS = {
    "gpt2_files": bpe_folder("gpt2_files", ["<|endoftext|>"], ["a<|endoftext|>b <|endoftext|> c"], config__json={"model_type": "gpt2"}),
    "roberta_files": bpe_folder("roberta_files", ROBERTA, ["a <mask> b<s>c</s> <unk>", "<pad><mask>"], config__json={"model_type": "roberta"}),
    "bart_files": bpe_folder("bart_files", ROBERTA, ["a <mask> b<s>c</s> <unk>", "[X] <mask>"], tokenizer_config__json={
        "tokenizer_class": "BartTokenizer", "add_prefix_space": True, "mask_token": added("<mask>", rstrip=True), "cls_token": "<s>"},
        added_tokens__json={"[X]": 600}),
    "opt_files": bpe_folder("opt_files", ["<s>", "<pad>", "</s>", "<unk>"], ["a</s>b <pad> c<s>"], tokenizer_config__json={
        "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": False, "bos_token": added("</s>", normalized=True),
        "eos_token": added("</s>", normalized=True), "unk_token": added("</s>", normalized=True), "pad_token": added("<pad>", normalized=True)},
        special_tokens_map__json={"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}),
    "codegen_files": bpe_folder("codegen_files", ["<|endoftext|>"], ["a  b   c\t\td<|endoftext|>", " " * 9 + "x"], tokenizer_config__json={
        "tokenizer_class": "CodeGenTokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
        added_tokens__json={" " * n: 600 + 9 - n for n in range(9, 1, -1)} | {"\t\t": 608}),
    "qwen2_files": bpe_folder("qwen2_files", [], ["a<|im_start|>b <|im_end|> Å e\u0301<tool>x<|endoftext|>", "12345 It'S"], tokenizer_config__json={
        "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "unk_token": None, "bos_token": None, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "added_tokens_decoder": {"600": added("<|endoftext|>", special=True), "601": added("<|im_start|>", special=True),
                                 "602": added("<|im_end|>", special=True), "603": added("<tool>", special=False)}}),
    "bert_files": bert_folder,
    "esm_files": esm_folder,
    "xlmr_files": fairseq_folder("xlmr_files", "unigram", ["a <mask> b<s>c</s> <unk>", "<pad> the"], tokenizer_class="XLMRobertaTokenizer"),
    "camembert_files": fairseq_folder("camembert_files", "unigram", ["a <mask> b</s> <unk>", "<pad> the"], tokenizer_class="CamembertTokenizer"),
    "xglm_files": fairseq_folder("xglm_files", "unigram", ["a <s> b</s> <unk>", "<madeupword3> the"], tokenizer_class="XGLMTokenizer"),
    "barthez_files": fairseq_folder("barthez_files", "unigram", ["a <mask> b</s> <unk>", "<pad> the"], tokenizer_class="BarthezTokenizer"),
    "mbart_files": fairseq_folder("mbart_files", "unigram", ["the ro_RO dog", "<mask> en_XX"], tokenizer_class="MBartTokenizer", src_lang="de_DE"),
    "mbart50_files": fairseq_folder("mbart50_files", "unigram", ["the sl_SI dog", "<mask> en_XX"], tokenizer_class="MBart50Tokenizer"),
    "nllb_files": fairseq_folder("nllb_files", "bpe", ["the deu_Latn dog", "<mask> zul_Latn"], tokenizer_class="NllbTokenizer", src_lang="fra_Latn"),
    "m2m100_files": fairseq_folder("m2m100_files", "bpe", ["the __de__ dog", "</s> __zu__"], vocabulary=True, tokenizer_class="M2M100Tokenizer", src_lang="fr"),
    "subword_nmt": lambda: codes_folder("subword_nmt", "vocab.txt"),
    "subword_nmt_fast": lambda: codes_folder("subword_nmt_fast", "vocab.json", fast=True),
    "tiktoken_llama3": llama3,
    "tiktoken_qwen": qwen,
    "tiktoken_glm4": glm4,
    "tiktoken_kimi": kimi,
    "tiktoken_r50k_base": openai("r50k_base", "r50k_base.tiktoken", 50256),
    "tiktoken_p50k_base": openai("p50k_base", "p50k_base.tiktoken", 50281),
    "tiktoken_cl100k_base": openai("cl100k_base", "cl100k_base.tiktoken", 100256),
    "tiktoken_o200k_base": openai("o200k_base", "o200k_base.tiktoken", 199998),
    "tiktoken_o200k_harmony": openai("o200k_harmony", "o200k_harmony.tiktoken", 199998),
}


def main():
    for name in sys.argv[1:] or FOLDERS:
        (OUT / name).mkdir(parents=True, exist_ok=True)
        FOLDERS[name]()


if __name__ == "__main__":
    main()
