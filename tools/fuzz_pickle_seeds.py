#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the pickle fuzz target: what torch.save and OpenNMT-py write, in small, and each kind of lie.

usage: tools/fuzz_pickle_seeds.py [FOLDER]      default: tests/fuzz/corpus/pickle

Needs nothing but Python 3: modules of the right names stand in for torch, onmt and torchtext. Seeds that begin as a
pickle are data.pkl of a zip file that the target makes, with storages "0" of 64 bytes and "1" of 16; the others are
whole files.
"""

import collections
import io
import pathlib
import pickle
import struct
import sys
import types


def module(name):
    if "." in name:
        module(name.rpartition(".")[0])
    m = sys.modules.get(name)
    if m is None:
        m = sys.modules[name] = types.ModuleType(name)
    return m


def named(module_name, name, base=object):
    made = type(name, (base,), {"__module__": module_name})
    setattr(module(module_name), name, made)
    return made


def function(module_name, name):
    def f(*args):
        raise AssertionError("never called")
    f.__module__, f.__qualname__, f.__name__ = module_name, name, name
    setattr(module(module_name), name, f)
    return f


REBUILD = function("torch._utils", "_rebuild_tensor_v2")
REBUILD_V3 = function("torch._utils", "_rebuild_tensor_v3")
PARAMETER = function("torch._utils", "_rebuild_parameter")
FROM_TYPE = function("torch._tensor", "_rebuild_from_type_v2")
FLOAT, HALF, COMPLEX = (named("torch", f"{n}Storage") for n in ("Float", "Half", "ComplexFloat"))
UNTYPED = named("torch.storage", "UntypedStorage")
SIZE = named("torch", "Size", tuple)
NAMESPACE = named("argparse", "Namespace")
FIELD, VOCAB = named("torchtext.data.field", "Field"), named("torchtext.vocab", "Vocab")
MULTI = named("onmt.inputters.text_dataset", "TextMultiField")
BFLOAT16 = function("torch", "bfloat16")


class Storage:
    def __init__(self, kind, key, elements, view=None):
        self.id = ("storage", kind, key, "cpu", elements) + ((view,) if view else ())


class Call:
    """Pickles as the call of a function."""

    def __init__(self, f, *args):
        self.f, self.args = f, args

    def __reduce__(self):
        return self.f, self.args


def tensor(shape, stride=None, offset=0, kind=FLOAT, key="0", elements=16, view=None):
    if stride is None:
        stride, n = [], 1
        for size in reversed(shape):
            stride.insert(0, n)
            n *= size
    return Call(REBUILD, Storage(kind, key, elements, view), offset, tuple(shape), tuple(stride), False,
                collections.OrderedDict())


class Pickler(pickle._Pickler):
    def persistent_id(self, obj):
        return obj.id if isinstance(obj, Storage) else None


def dumps(obj, protocol=2):
    out = io.BytesIO()
    Pickler(out, protocol).dump(obj)
    return out.getvalue()


def thing(cls, **state):
    made = cls.__new__(cls)
    made.__dict__.update(state)
    return made


def state_dict():
    d = collections.OrderedDict(a=tensor([2, 3]), b=tensor([4, 2], [1, 4]))
    d["c"] = Call(PARAMETER, tensor([], offset=3), True, collections.OrderedDict())
    d["d"] = tensor([2, 0, 2])
    return d


def opennmt(version):
    words = ["<unk>", "<blank>", "<s>", "</s>", "a", "b"]
    options = thing(NAMESPACE, enc_layers=1, rnn_size=8, dropout=[0.1], src=None, share=True, train_from="x")
    vocab = {"src": words, "tgt": words + ["c"]}
    if version == 2:
        fields = [("src", thing(FIELD, vocab=thing(VOCAB, itos=words, freqs=collections.Counter(words))))]
        vocab = {"src": thing(MULTI, fields=fields), "tgt": thing(MULTI, fields=fields)}
    if version == 1:
        vocab = [("src", thing(VOCAB, itos=words)), ("tgt", thing(VOCAB, itos=words))]
    return {"model": state_dict(), "generator": {"0.weight": tensor([2, 2]), "0.bias": tensor([2])}, "vocab": vocab,
            "opt": options, "optim": None}


def legacy(obj, storages):
    out = dumps(0x1950A86A20F9469CFC6C) + dumps(1001) + dumps({"little_endian": True}) + dumps(obj)
    out += dumps([key for key, _ in storages])
    return out + b"".join(struct.pack("<q", len(data) // 4) + data for _, data in storages)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def cycle():
    value = []
    value.append(value)
    return {"a": tensor([1]), "b": value}


P = b"\x80\x02"
SEEDS = {
    "good-2": dumps(state_dict()), "good-3": dumps(state_dict(), 3), "good-4": dumps(state_dict(), 4),
    "good-5": dumps(state_dict(), 5),
    "good-inner": dumps({"epoch": 1.5, "state_dict": state_dict(), "big": 1 << 70, "bytes": b"x", "set": {1, 2}}, 4),
    "good-half": dumps({"h": tensor([2, 2], kind=HALF, key="1", elements=8)}),
    "good-untyped": dumps({"u": Call(REBUILD_V3, Storage(UNTYPED, "1", 16), 2, (2, 3), (3, 1), False, {}, BFLOAT16)}),
    "good-size": dumps({"a": Call(REBUILD, Storage(FLOAT, "0", 16), 0, Call(SIZE, (2, 3)), (3, 1), False, {})}),
    "good-type": dumps({"a": Call(FROM_TYPE, REBUILD, FLOAT, (Storage(FLOAT, "0", 16), 0, (2,), (1,), False, {}), {})}),
    "good-expanded": dumps({"a": tensor([1 << 20, 1 << 20], [0, 0])}),
    "good-opennmt-1": dumps(opennmt(1)), "good-opennmt-2": dumps(opennmt(2)), "good-opennmt-3": dumps(opennmt(3)),
    "good-legacy": legacy({"a": tensor([2, 2], key="7", elements=4)}, [("7", bytes(16))]),
    "good-legacy-view": legacy({"a": tensor([2], key="7", elements=4, view=("9", 1, 2))}, [("7", bytes(16))]),
    "bad-legacy-short": legacy({"a": tensor([2, 2], key="7", elements=4)}, [("7", bytes(16))])[:-1],
    "bad-legacy-unknown": legacy({"a": tensor([2, 2], key="7", elements=4)}, [("8", bytes(16))]),
    "bad-beyond": dumps({"a": tensor([17])}), "bad-offset": dumps({"a": tensor([1], offset=16)}),
    "bad-strides": dumps({"a": tensor([2, 2], [1])}), "bad-overflow": dumps({"a": tensor([1 << 62, 4], [1 << 62, 1])}),
    "bad-negative": dumps({"a": tensor([-1])}), "bad-rank": dumps({"a": tensor([1] * 9)}),
    "bad-key": dumps({"a": tensor([1], key="2")}), "bad-elements": dumps({"a": tensor([1], elements=1 << 60)}),
    "bad-complex": dumps({"a": tensor([1], kind=COMPLEX)}), "bad-empty": dumps({}),
    "bad-global": dumps({"a": tensor([1]), "b": Call(eval, "1")}), "bad-cycle": dumps(cycle()),
    "bad-deep": dumps({"a": tensor([1]), "b": nested(80)}), "bad-cut": dumps(state_dict())[:-20],
    "bad-memo": P + b"h\x05.", "bad-memo-far": P + b"Nr\xff\xff\xff\xff.", "bad-pop": P + b"0.", "bad-mark": P + b"t.",
    "bad-items": P + b"]NNs.", "bad-pairs": P + b"}(Nu.", "bad-length": P + b"X\xff\xff\xff\x7f.", "bad-op": P + b"P1\n.",
    "bad-protocol": b"\x80\x09N.", "bad-two": P + b"NN.", "bad-call": P + b"NNR.",
    "bad-name": dumps({"a\0b": tensor([1])}), "bad-zip": b"PK\3\4" + bytes(60),
}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/pickle")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
