# SPDX-License-Identifier: Apache-2.0
"""models.py FOLDER - run by a Python that has torch: writes a repository of traced, scripted and compiled models, and what
torch itself answers, for test_torch_models.py, whose Python needs no torch.

FOLDER/repository/NAME/{config.pbtxt,1/model.pt}; FOLDER/cases.json: for each model the requests and the answers,
tensors as a type, a shape and bytes in base64, lists of strings as {"strings": [...]}."""
import base64
import json
import os
import pathlib
import sys
import warnings

import torch
from torch import Tensor, nn

warnings.filterwarnings("ignore")
torch.manual_seed(7)
TYPES = {
    torch.bool: "BOOL", torch.uint8: "UINT8", torch.int8: "INT8", torch.int16: "INT16", torch.int32: "INT32",
    torch.int64: "INT64", torch.float16: "FP16", torch.float32: "FP32", torch.float64: "FP64", torch.bfloat16: "BF16",
    torch.uint16: "UINT16", torch.uint32: "UINT32", torch.uint64: "UINT64",
}


def packed(value, batch):
    """A tensor or a list of strings as JSON. With a batch, what has no other dimension has one of 1 outside."""
    if isinstance(value, list):
        return {"strings": value, "shape": [len(value)] + [1] * (batch > 0)}
    dense = value.detach().contiguous()
    raw = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return {"type": TYPES[value.dtype], "shape": list(value.shape) + [1] * (batch > 0 and value.dim() == 1), "bytes": base64.b64encode(raw).decode()}


def copied(inputs):
    """For code that writes to its inputs."""
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in inputs.items()}


def flat(result):
    """Results in depth-first order."""
    if isinstance(result, Tensor) or (isinstance(result, list) and result and isinstance(result[0], str)):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return [leaf for part in parts for leaf in flat(part)]


class Repository:
    def __init__(self, folder):
        self.folder = folder / "repository"
        self.cases = []

    def config(self, name, inputs, outputs, batch, more):
        """inputs, outputs: {name: an example}; dims are open but for the rank."""
        text = f'backend: "pytorch"\nmax_batch_size: {batch}\n{more}\n'
        for kind, tensors in (("input", inputs), ("output", outputs)):
            for tensor, value in tensors.items():
                strings = isinstance(value, list)
                rank = (1 if strings else value.dim()) - (batch > 0)
                dims = "[ " + ", ".join(["-1"] * rank) + " ]" if rank else "[ 1 ] reshape { shape: [ ] }"
                type_name = "STRING" if strings else TYPES[value.dtype]
                text += f'{kind} {{ name: "{tensor}" data_type: TYPE_{type_name} dims: {dims} }}\n'
        (self.folder / name / "1").mkdir(parents=True)
        (self.folder / name / "config.pbtxt").write_text(text)
        return self.folder / name / "1" / "model.pt"

    def add(self, name, module, inputs, call, outputs=None, batch=0, more="", also=(), trace=None, tolerance=0.0):
        """inputs: {name: example}; call(module, inputs) runs it; trace: its example arguments, None: it is scripted.
        outputs: names, or OUTPUT__N. also: further requests."""
        module.eval()
        with torch.inference_mode():
            # torch's answers are of the same program: the file's
            program = torch.jit.script(module) if trace is None else torch.jit.trace(
                module, trace, strict=False, check_trace=False)
            results = flat(call(program, copied(inputs)))
            names = outputs or [f"OUTPUT__{i}" for i in range(len(results))]
            path = self.config(name, inputs, dict(zip(names, results)), batch, more)
            program.save(str(path))
            for request in (inputs, *also):
                answer = dict(zip(names, flat(call(program, copied(request)))))
                self.cases.append({"model": name, "tolerance": tolerance, "inputs": {k: packed(v, batch) for k, v in request.items()},
                                   "outputs": {k: packed(v, batch) for k, v in answer.items()}})


def positional(module, inputs):
    return module(*inputs.values())


def as_dict(module, inputs):
    return module(inputs)


class Call(nn.Module):
    """A module of a function, for tracing."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def random(dtype, *shape):
    if dtype.is_floating_point:
        return torch.randn(*shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 50, shape).to(dtype)


def traced(r, name, function, *examples, batch=0, also=(), names=None, **more):
    keys = names or [f"INPUT__{i}" for i in range(len(examples))]
    r.add(name, Call(function), dict(zip(keys, examples)), positional, batch=batch,
          also=[dict(zip(keys, a)) for a in also], trace=tuple(examples), **more)


def add_types(r):
    """Each type goes in and out."""
    for dtype, name in TYPES.items():
        x = random(dtype, 3, 4)
        traced(r, f"type_{name.lower()}", lambda x: torch.stack([x, x]), x, also=[(random(dtype, 1, 2),)])


def add_arities(r):
    f = [random(torch.float32, 2, 3) for _ in range(6)]
    for n in range(1, 7):
        traced(r, f"inputs_{n}", lambda *x: sum(a * (i + 1) for i, a in enumerate(x)), *f[:n], batch=4 * (n % 2),
               tolerance=1e-6)
        traced(r, f"outputs_{n}", lambda x, n=n: tuple(x * i for i in range(n)), f[0], batch=4 * (n % 2))


def add_results(r):
    x, y = random(torch.float32, 2, 5), random(torch.int64, 2, 5)
    traced(r, "tuple_mixed", lambda x, y: (x.sum(1), y + 1, x > 0), x, y, batch=8)
    traced(r, "tuple_nested", lambda x, y: (x, (y, (x * 2, y * 2))), x, y)
    traced(r, "list_result", lambda x, y: [x, x + y], x, y)
    traced(r, "dict_result", lambda x, y: {"sum": x + y, "mask": y > 3}, x, y, outputs=["sum", "mask"])
    traced(r, "dict_paths", lambda x: {"b": (x, x + 1), "a": (x * 2, x * 3)}, x,
           outputs=["RESULT[b][0]", "RESULT[b][1]", "RESULT[a][0]", "RESULT[a][1]"])
    traced(r, "dict_index", lambda x, y: {"b": x, "a": y}, x, y)
    traced(r, "config_order", lambda x, y: (x * 3, y * 3), x, y, names=["left", "right"], outputs=["third", "fourth"])
    traced(r, "identity", lambda x: x, x, batch=4, also=[(random(torch.float32, 1, 9),)])
    traced(r, "view", lambda x: (x.t(), x[:, 1:3], x), x)
    traced(r, "empty", lambda x: x[:0], x)
    traced(r, "empty_input", lambda x: (x, x.sum(1)), x, also=[(torch.zeros(0, 5),)])
    traced(r, "in_place", lambda x: x.add_(1), x.clone())
    traced(r, "constant", lambda x: (x.new_ones(3), torch.tensor([1.5, 2.5])), x)
    traced(r, "split", lambda x: x.split(2, 1), x[:, :4], batch=4)


class Names(nn.Module):
    def forward(self, ids: Tensor, mask: Tensor, scale: Tensor):
        return ids * mask, mask * scale


class Mapping(nn.Module):
    def forward(self, x: dict[str, Tensor]):
        return {"out": x["a"] + x["b"], "twice": x["a"] * 2}


class ScriptMapping(nn.Module):
    def forward(self, batch: dict[str, Tensor], bias: Tensor) -> dict[str, Tensor]:
        return {"out": batch["a"] + bias, "n": batch["b"]}


class Containers(nn.Module):
    def forward(self, many: list[Tensor], pair: tuple[Tensor, Tensor]) -> Tensor:
        return many[0] + many[1] + pair[0] * pair[1]


class Defaults(nn.Module):
    def forward(self, x: Tensor, times: int = 3, bias: Tensor | None = None) -> Tensor:
        return x * times if bias is None else x * times + bias


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for i in range(x.size(0)):
            total += x * i if bool(x[i].sum() > 0) else -x
        return total


class Strings(nn.Module):
    def forward(self, texts: list[str], x: Tensor) -> tuple[list[str], Tensor]:
        return [t + "!" for t in texts], torch.tensor([len(t) for t in texts])


class Labels(nn.Module):
    def forward(self, x: Tensor) -> list[str]:
        return ["odd" if int(x[i, 0]) % 2 == 1 else "even" for i in range(x.size(0))]


class Counter(nn.Module):
    """Its state may not be sent before it changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.total * 1 + x


def add_arguments(r):
    a, b = random(torch.float32, 2, 3), random(torch.float32, 2, 3)
    order = {"scale": a, "ids": b, "mask": a + 1}
    r.add("forward_names", Names(), order, lambda m, i: m(i["ids"], i["mask"], i["scale"]), batch=4, trace=(b, a + 1, a))
    r.add("index_swapped", Names(), {"c__2": a, "b__1": b, "a__0": a}, lambda m, i: m(i["a__0"], i["b__1"], i["c__2"]))
    r.add("dictionary", Mapping(), {"a": a, "b": b}, as_dict, outputs=["out", "twice"], batch=4, trace=({"a": a, "b": b},))
    r.add("dictionary_script", ScriptMapping(), {"batch[a]": a, "batch[b]": b, "bias": b},
          lambda m, i: m({"a": i["batch[a]"], "b": i["batch[b]"]}, i["bias"]), outputs=["out", "n"])
    r.add("containers", Containers(), {"many[1]": a, "many[0]": b, "pair[0]": a, "pair[1]": b},
          lambda m, i: m([i["many[0]"], i["many[1]"]], (i["pair[0]"], i["pair[1]"])))
    r.add("defaults", Defaults(), {"x": a}, positional)
    r.add("defaults_given", Defaults(), {"x": a, "times": torch.tensor([2])}, lambda m, i: m(i["x"], int(i["times"])))
    r.add("defaults_skipped", Defaults(), {"x": a, "bias": b}, lambda m, i: m(i["x"], 3, i["bias"]))
    r.add("branches", Branches(), {"INPUT__0": a}, positional, also=[{"INPUT__0": random(torch.float32, 5, 1)}], tolerance=1e-6)
    texts = {"texts": ["a", "", "ünï"], "x": torch.zeros(3)}
    r.add("strings", Strings(), texts, positional)
    r.add("strings_batch", Strings(), {"texts": ["one", "two"], "x": torch.zeros(2, 1)}, positional, batch=4)
    r.add("labels", Labels(), {"INPUT__0": random(torch.int64, 4, 1)}, positional, batch=8)
    r.add("counter", Counter(), {"INPUT__0": torch.ones(3)}, positional)


class Block(nn.Module):
    """One layer of BERT, whose parts are torch's own."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, mask):
        b, n, w = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = self.norm1(x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(b, n, w)))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, words=100, width=64, layers=3, heads=4):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, input_ids, attention_mask):
        x = self.norm(self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device)))
        mask = attention_mask.bool()[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x[:, 0]), x


def bert_of_transformers():
    """The library's own BERT, where it is installed; else the one above."""
    try:
        from transformers import BertConfig, BertForSequenceClassification
    except ImportError:
        return Bert()
    config = BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
                        max_position_embeddings=64, num_labels=1, return_dict=False)
    return BertForSequenceClassification(config)


def add_nets(r):
    ids, mask = torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.int64)
    mask[1, 7:] = 0
    more = [{"input_ids": torch.randint(0, 100, (n, 12)), "attention_mask": torch.ones(n, 12, dtype=torch.int64)} for n in (1, 5)]
    for name, module in (("bert", bert_of_transformers()), ("bert_block", Bert())):
        r.add(name, module, {"input_ids": ids, "attention_mask": mask}, positional, batch=16, also=more, trace=(ids, mask),
              more="dynamic_batching { }", tolerance=1e-5)
    image = torch.randn(2, 3, 16, 16)
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    r.add("conv", conv, {"INPUT__0": image}, positional, batch=4, trace=(image,), tolerance=1e-5)
    r.add("lstm", nn.LSTM(6, 5, batch_first=True), {"INPUT__0": torch.randn(2, 7, 6)}, positional, trace=(torch.randn(2, 7, 6),),
          tolerance=1e-5)
    bag = nn.EmbeddingBag(50, 6)
    r.add("embedding_bag", bag, {"INPUT__0": torch.randint(0, 50, (3, 4))}, positional, batch=4, trace=(torch.randint(0, 50, (3, 4)),),
          tolerance=1e-6)


class Aoti(nn.Module):
    def forward(self, x, options: dict[str, Tensor], *, bias):
        return {"AAA": x + options["u"], "BBB": (x * 2, options["v"] + bias)}


def add_packages(r):
    """Compiled ahead of time: needs a C++ compiler. A dynamic batch, then everything fixed."""
    x, u, v, bias = (torch.randn(2, 6) for _ in range(4))
    model, args, kwargs = Aoti(), (x, {"u": u, "v": v}), {"bias": bias}
    rows = torch.export.Dim("rows", min=1, max=16)
    shapes = {"dynamic": {"x": {0: rows}, "options": {"u": {0: rows}, "v": {0: rows}}, "bias": {0: rows}}, "static": None}
    inputs = {"ARGS[0]": x, "ARGS[1][u]": u, "ARGS[1][v]": v, "KWARGS[bias]": bias}
    for kind, shape in shapes.items():
        results = dict(zip(("RESULT[AAA]", "RESULT[BBB][0]", "RESULT[BBB][1]"), flat(model(*args, **kwargs))))
        path = r.config(f"package_{kind}", inputs, results, 16 if shape else 0, 'platform: "torch_aoti"')
        exported = torch.export.export(model, args, kwargs, dynamic_shapes=shape)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path.with_suffix(".pt2")))
        r.cases.append({"model": f"package_{kind}", "tolerance": 1e-6, "inputs": {k: packed(t, 0) for k, t in inputs.items()},
                        "outputs": {k: packed(t, 0) for k, t in results.items()}})


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 100):
            raise RuntimeError("the sum is too large")
        return x


class RaisesAtLoad(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.w

    @torch.jit.export
    def __getstate__(self):
        return (torch.zeros(1), self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]):
        self.w = state[0]
        self.training = state[1]
        raise RuntimeError("no state for you")


def add_broken(r):
    """Files and configurations that are wrong, each with what its error says; and a model that serves beside them."""
    x = {"INPUT__0": torch.randn(2, 3)}
    script = torch.jit.script(Raises())
    good = r.config("broken_not", x, {"OUTPUT__0": x["INPUT__0"]}, 0, "")
    script.save(str(good))
    raw = good.read_bytes()
    for name, content in {"half": raw[: len(raw) // 2], "head": raw[:100], "empty": b"", "text": b"not a model\n" * 9,
                          "flipped": raw[:200] + bytes(b ^ 255 for b in raw[200:400]) + raw[400:]}.items():
        r.config(f"broken_{name}", x, {"OUTPUT__0": x["INPUT__0"]}, 0, "").write_bytes(content)
    torch.save({"w": torch.ones(3)}, r.config("broken_weights", x, {"OUTPUT__0": x["INPUT__0"]}, 0, ""))
    torch.jit.script(RaisesAtLoad()).save(str(r.config("broken_state", x, {"OUTPUT__0": x["INPUT__0"]}, 0, "")))
    for name, inputs, outputs in (
        ("input_index", {"INPUT__5": x["INPUT__0"]}, ["OUTPUT__0"]), ("input_twice", {"a__0": x["INPUT__0"], "b__0": x["INPUT__0"]}, ["OUTPUT__0"]),
        ("input_string", {"INPUT__0": ["a"]}, ["OUTPUT__0"]), ("output_index", x, ["OUTPUT__3"]),
    ):
        script.save(str(r.config(f"broken_{name}", inputs, {o: x["INPUT__0"] for o in outputs}, 0, "")))
    script.save(str(r.config("broken_type", x, {"OUTPUT__0": torch.zeros(2, 3, dtype=torch.int32)}, 0, "")))
    torch.jit.trace(Call(lambda x: x.sum()), (x["INPUT__0"],)).save(
        str(r.config("broken_scalar", x, {"OUTPUT__0": torch.zeros(1)}, 0, "")))
    script.save(str(r.config("broken_parameter", x, {"OUTPUT__0": x["INPUT__0"]}, 0,
                             'parameters { key: "INFERENCE_MODE" value { string_value: "perhaps" } }')))
    script.save(str(r.config("broken_gpu", x, {"OUTPUT__0": x["INPUT__0"]}, 0, "instance_group { kind: KIND_GPU gpus: [ 63 ] }")))
    r.config("broken_file", x, {"OUTPUT__0": x["INPUT__0"]}, 0, "")
    r.config("broken_package", x, {"OUTPUT__0": x["INPUT__0"]}, 0, 'platform: "torch_aoti"').with_suffix(".pt2").write_bytes(raw)


def main():
    folder = pathlib.Path(sys.argv[1])
    for part in sys.argv[2:]:
        r = Repository(folder / part)
        {"broken": lambda r: add_broken(r), "packages": lambda r: add_packages(r),
         "models": lambda r: [add(r) for add in (add_types, add_arities, add_results, add_arguments, add_nets)]}[part](r)
        (folder / part / "cases.json").write_text(json.dumps({"torch": torch.__version__, "cases": r.cases}))


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(pathlib.Path(sys.argv[1]) / "inductor"))
    main()
