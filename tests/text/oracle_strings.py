# SPDX-License-Identifier: Apache-2.0
"""The strings that tokenizers are compared on: fixed by a seed, the same everywhere."""
import random

SAMPLES = [
    "", " ", "  ", "\n", "\t\n\r ", "a", " a", "a ", "  a  b  ", "Hello, world!", "Zwei Männer gehen über die Straße.",
    "The quick brown fox jumps over the lazy dog, doesn't it? It's 12:30; we'll see 3,141.59 (or $100%)!",
    "你好，世界！今天天气怎么样？", "こんにちは世界。カタカナとひらがな、ー長音。", "안녕하세요 세계", "Привет, мир! Как дела?",
    "مرحبا بالعالم كيف حالك؟", "שלום עולם, מה שלומך?", "नमस्ते दुनिया क्षत्रिय", "สวัสดีชาวโลก", "Γειά σου Κόσμε ΟΔΟΣ ς",
    "İstanbul ISPARTA ıı ŞŞ", "ﬁ ﬂ ﬀ Ⅳ ① ½ ² ㎏ ｆｕｌｌｗｉｄｔｈ ＡＢＣ", "e\u0301 n\u0303 o\u0308\u0304 a\u0328\u0301", "Å Å Å",
    "👨‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 🧑🏿‍🚀", "a\u200db\u200cc\u200bd\u2060e\ufefff", "x\u00a0y\u2003z\u3000w\u202fv\u2028u\u2029t\u0085s",
    "\u202eright\u202c to \u2067left\u2069", "\x00\x01\x02\x07\x08\x0b\x0c\x0e\x1f\x7f\x80\x9f", "tab\tnew\nline\r\nend\r",
    "<s>", "</s>", "<unk>", "<pad> [CLS] [SEP] [MASK] [UNK]", "a<s>b</s> <mask>c", " <s> x </s> ", "<0x0A><0x41>", "▁▁ ▁a",
    "I'm you're he's we'd they'll don't I've 'tis 'S 'LL", "1234567890 ١٢٣ 一二三 ⅷ ²³", "snake_case camelCase kebab-case a.b.c/d\\e",
    "def f(x):\n    return x**2  # comment\n\n\n", "http://example.com/?q=1&r=%20#top user@example.com", "....,,,,!!!!????----____",
    "word" * 50, "ß" * 30, "\u0301" * 40, "あ" * 60, " " * 70, "\n" * 30, "  \n  \n \t", "a\n\n b", "\u0915\u094d\u0937\u0915\u094d",
    "각 각", "ﷺ ﷽", "Ǆ ǅ ǆ ſ K", "\U0001d400\U0001d7d8 \U00020000\U0002a6d6", "﻿bom", "�replaced�", "née café naïve coöperate",
]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "  \t\n", ".,;:!?'\"()[]{}-_/\\@#$%^&*+=<>|~`",
    "äöüßéèêçñøåæœłžščřğışİ", "абвгдежзийклмнопрстуфхцчшщъыьэюяЁ", "αβγδεζηθικλμνξοπρσςτυφχψωΆΈ", "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآ",
    "你好世界中文字符测试数据模型语言", "あいうえおかきくけこアイウエオー。、", "가나다라마바사아자차카타파하한국어", "กขคงจฉชซดตถทธนบปผฝพ", "अआइईउऊकखगघचछजझटठ्ािी",
    "\u0301\u0308\u0327\u0323\u20dd\u0331", "😀😁🎉🚀👍👩💻❤🏽\u200d\ufe0f🇩🇪", "\u200b\u200c\u200d\u2060\u00ad\u202a\u202e\ufeff", "\x00\x01\x08\x0b\x1b\x7f\x85\xa0",
    "ﬁﬂⅣ①½²㎏Ａｂ１㍿㌔", "\u3000\u2003\u2028\u2029\u202f\u1680", "▁Ġ<s></s>##", "the and ing ed is a of in to ",
]


def _random_string(rng):
    kind = rng.random()
    n = int(rng.choice([1, 3, 8, 20, 60, 150]) * rng.random()) + 1
    if kind < 0.25:  # words of one script with blanks
        alphabet = rng.choice(ALPHABETS)
        return "".join(rng.choice(alphabet) if rng.random() > 0.15 else " " for _ in range(n))
    if kind < 0.6:  # runs of several scripts
        return "".join("".join(rng.choice(a) for _ in range(rng.randint(1, 5))) for a in rng.choices(ALPHABETS, k=max(1, n // 4)))
    if kind < 0.75:  # pieces of the fixed samples
        return "".join(rng.choice(SAMPLES)[: rng.randint(1, 12)] for _ in range(rng.randint(1, 6)))
    if kind < 0.9:  # English and German words
        words = "A man woman child dog in the of and is riding bike beach Ein Mann Frau Hund auf dem Straße spielt don't it's 3.14 1999".split()
        return " ".join(rng.choice(words) for _ in range(max(1, n // 4))) + rng.choice(["", ".", "!", " ", "\n"])
    return "".join(rng.choice(rng.choice(ALPHABETS)) for _ in range(n))


def _broken(rng):
    raw = bytearray(_random_string(rng).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(raw))
        raw[at:at] = bytes(rng.choice([[0x80], [0xC3], [0xE2, 0x82], [0xF0, 0x9F, 0x98], [0xFF], [0xED, 0xA0, 0x80], [0xC0, 0xAF], [0xF4, 0x90]]))
    return bytes(raw)


def strings(count=2000, seed=7):
    """Bytes, some of them broken UTF-8; the oracle gets them decoded with errors="replace"."""
    rng = random.Random(seed)
    out = [s.encode() for s in SAMPLES]
    while len(out) < count:
        out.append(_broken(rng) if rng.random() < 0.1 else _random_string(rng).encode())
    return out


def long_strings():
    """100 kB without a space, of three kinds."""
    rng = random.Random(11)
    return [b"a" * 100_000, "".join(rng.choice("abcdefgh") for _ in range(100_000)).encode(), ("あ語ü" * 13_000).encode()]


def id_lists(vocab, count=400, seed=5):
    rng = random.Random(seed)
    return [[rng.randrange(vocab) for _ in range(rng.randint(0, 40))] for _ in range(count)]


def texts(count=3000, seed=3):
    """What tokenizers are trained on in the tests."""
    rng = random.Random(seed)
    return [s for s in (_random_string(rng) for _ in range(count)) if s.strip()] + SAMPLES
