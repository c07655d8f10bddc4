# SPDX-License-Identifier: Apache-2.0
"""BERT with a regression head and random weights, in three forms that compute the same: a Hugging Face folder, ONNX,
TorchScript. The last two take token ids, padded to [rows, length], and the length of each row [rows, 1].

The layers are those of Devlin et al., BERT (2018), with the tensor names of Hugging Face transformers."""

import json
import math

import numpy as np

# name: hidden, layers, heads, feed-forward, vocabulary
SHAPES = {
    "small": (128, 2, 2, 512, 8000),
    "base": (768, 12, 12, 3072, 30522),
    "large": (1024, 24, 16, 4096, 30522),
}
POSITIONS = 512
EPSILON = 1e-12


def random_weights(shape, seed=1):
    """Tensors by name. Matrices are [outputs, inputs]. The deviation keeps the size of what the layers pass on, so that
    scores differ from text to text."""
    hidden, layers, _, ffn, vocabulary = SHAPES[shape]
    rng = np.random.default_rng(seed)
    deviation = np.float32(hidden**-0.5)
    weights = {}

    def add(name, *dims):
        weights[name] = rng.standard_normal(dims, np.float32) * deviation

    def add_norm(name):
        weights[name + ".weight"] = 1 + rng.standard_normal(hidden, np.float32) * deviation
        add(name + ".bias", hidden)

    def add_linear(name, outputs, inputs):
        add(name + ".weight", outputs, inputs)
        add(name + ".bias", outputs)

    add("bert.embeddings.word_embeddings.weight", vocabulary, hidden)
    add("bert.embeddings.position_embeddings.weight", POSITIONS, hidden)
    add("bert.embeddings.token_type_embeddings.weight", 2, hidden)
    add_norm("bert.embeddings.LayerNorm")
    for i in range(layers):
        layer = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            add_linear(layer + "attention.self." + name, hidden, hidden)
        add_linear(layer + "attention.output.dense", hidden, hidden)
        add_norm(layer + "attention.output.LayerNorm")
        add_linear(layer + "intermediate.dense", ffn, hidden)
        add_linear(layer + "output.dense", hidden, ffn)
        add_norm(layer + "output.LayerNorm")
    add_linear("bert.pooler.dense", hidden, hidden)
    add_linear("classifier", 1, hidden)
    return weights


# ---- a Hugging Face folder ----


def write_safetensors(path, weights):
    header, at = {}, 0
    for name, tensor in weights.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in weights.values():
            tensor.tofile(file)


def write_config(folder, shape):
    hidden, layers, heads, ffn, vocabulary = SHAPES[shape]
    config = {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "problem_type": "regression",
        "id2label": {"0": "LABEL_0"},
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "layer_norm_eps": EPSILON,
        "max_position_embeddings": POSITIONS,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "pad_token_id": 0,
        "type_vocab_size": 2,
        "vocab_size": vocabulary,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_tokenizer(folder, source, vocabulary):
    """That of another BERT, with unused entries up to the size of the vocabulary."""
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    for i in range(len(vocab), vocabulary):
        vocab[f"[unused{i}]"] = i
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())


# ---- ONNX ----


class Graph:
    """Nodes and initializers of a graph under construction; every method returns the name of its result."""

    def __init__(self, onnx, weights):
        self.onnx, self.weights, self.nodes, self.initializers, self.constants = onnx, weights, [], [], {}

    def node(self, op, *inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def tensor(self, name, array):
        self.initializers.append(self.onnx.numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def constant(self, values, dtype=np.float32):
        key = (str(values), np.dtype(dtype).name)
        if key not in self.constants:
            self.constants[key] = self.tensor(f"constant_{len(self.constants)}", np.array(values, dtype))
        return self.constants[key]

    def weight(self, name):
        return self.tensor(name, self.weights[name])

    def linear(self, x, name):
        matrix = self.tensor(name + ".weight", self.weights[name + ".weight"].T)
        return self.node("Add", self.node("MatMul", x, matrix), self.weight(name + ".bias"))

    def norm(self, x, name):
        return self.node("LayerNormalization", x, self.weight(name + ".weight"), self.weight(name + ".bias"),
                         axis=-1, epsilon=EPSILON)

    def gelu(self, x):
        erf = self.node("Erf", self.node("Div", x, self.constant(math.sqrt(2))))
        return self.node("Mul", self.node("Mul", x, self.node("Add", erf, self.constant(1))), self.constant(0.5))


def onnx_embeddings(g):
    """The embedded tokens, and what is added to the attention of each: 0, or a large negative number for padding."""
    length = g.node("Gather", g.node("Shape", "input_ids"), g.constant(1, np.int64))
    positions = g.node("Range", g.constant(0, np.int64), length, g.constant(1, np.int64))
    lengths = g.node("Cast", "input_lengths", to=g.onnx.TensorProto.INT64)
    mask = g.node("Unsqueeze", g.node("Less", positions, lengths), g.constant([1, 2], np.int64))
    bias = g.node("Where", mask, g.constant(0), g.constant(np.finfo(np.float32).min))
    words = g.node("Gather", g.weight("bert.embeddings.word_embeddings.weight"), "input_ids")
    places = g.node("Gather", g.weight("bert.embeddings.position_embeddings.weight"), positions)
    kind = g.tensor("token_type", g.weights["bert.embeddings.token_type_embeddings.weight"][0])
    x = g.node("Add", g.node("Add", words, kind), places)
    return g.norm(x, "bert.embeddings.LayerNorm"), bias


def onnx_layer(g, x, bias, layer, heads, size):
    def split(name, order):
        rows = g.linear(x, layer + "attention.self." + name)
        rows = g.node("Reshape", rows, g.constant([0, 0, heads, size], np.int64))
        return g.node("Transpose", rows, perm=order)

    query, key, value = split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]), split("value", [0, 2, 1, 3])
    scores = g.node("Div", g.node("MatMul", query, key), g.constant(math.sqrt(size)))
    share = g.node("Softmax", g.node("Add", scores, bias), axis=-1)
    context = g.node("Transpose", g.node("MatMul", share, value), perm=[0, 2, 1, 3])
    context = g.node("Reshape", context, g.constant([0, 0, heads * size], np.int64))
    context = g.linear(context, layer + "attention.output.dense")
    x = g.norm(g.node("Add", context, x), layer + "attention.output.LayerNorm")
    inner = g.gelu(g.linear(x, layer + "intermediate.dense"))
    return g.norm(g.node("Add", g.linear(inner, layer + "output.dense"), x), layer + "output.LayerNorm")


def write_onnx(path, weights, shape):
    import onnx
    import onnx.numpy_helper

    hidden, layers, heads, _, _ = SHAPES[shape]
    g = Graph(onnx, weights)
    x, bias = onnx_embeddings(g)
    for i in range(layers):
        x = onnx_layer(g, x, bias, f"bert.encoder.layer.{i}.", heads, hidden // heads)
    first = g.node("Gather", x, g.constant(0, np.int64), axis=1)
    g.linear(g.node("Tanh", g.linear(first, "bert.pooler.dense")), "classifier")
    g.nodes[-1].output[0] = "scores"
    value, types = onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = onnx.helper.make_graph(
        g.nodes, "bert",
        [value("input_ids", types.INT32, ["rows", "length"]), value("input_lengths", types.INT32, ["rows", 1])],
        [value("scores", types.FLOAT, ["rows", 1])], g.initializers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path.with_suffix(".onnx.data").unlink(missing_ok=True)  # it would be appended to
    onnx.save_model(model, str(path), save_as_external_data=True, location=path.name + ".data")


# ---- TorchScript ----


def write_torchscript(path, weights, shape):
    import torch

    hidden, layers, heads, _, _ = SHAPES[shape]
    functional = torch.nn.functional

    class Bert(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, tensor in weights.items():
                self.register_buffer(name.replace(".", "_"), torch.from_numpy(tensor))
            # a trace keeps the device of a tensor that forward makes; a buffer moves with the module
            self.register_buffer("positions", torch.arange(POSITIONS))

        def of(self, name):
            return getattr(self, name.replace(".", "_"))

        def linear(self, x, name):
            return functional.linear(x, self.of(name + ".weight"), self.of(name + ".bias"))

        def norm(self, x, name):
            return functional.layer_norm(x, [hidden], self.of(name + ".weight"), self.of(name + ".bias"), EPSILON)

        def layer(self, x, mask, layer):
            def split(name):
                return self.linear(x, layer + "attention.self." + name).unflatten(-1, [heads, -1]).transpose(1, 2)

            context = functional.scaled_dot_product_attention(split("query"), split("key"), split("value"), mask)
            context = context.transpose(1, 2).flatten(2)
            context = self.linear(context, layer + "attention.output.dense")
            x = self.norm(context + x, layer + "attention.output.LayerNorm")
            inner = functional.gelu(self.linear(x, layer + "intermediate.dense"))
            return self.norm(self.linear(inner, layer + "output.dense") + x, layer + "output.LayerNorm")

        def forward(self, input_ids, input_lengths):
            positions = self.positions[: input_ids.shape[1]]
            mask = (positions < input_lengths)[:, None, None, :]
            embeddings = "bert.embeddings."
            x = self.of(embeddings + "word_embeddings.weight")[input_ids.long()]
            x = x + self.of(embeddings + "token_type_embeddings.weight")[0]
            x = self.norm(x + self.of(embeddings + "position_embeddings.weight")[positions], embeddings + "LayerNorm")
            for i in range(layers):
                x = self.layer(x, mask, f"bert.encoder.layer.{i}.")
            return self.linear(torch.tanh(self.linear(x[:, 0], "bert.pooler.dense")), "classifier")

    ids = torch.zeros([2, 5], dtype=torch.int32)
    lengths = torch.tensor([[5], [3]], dtype=torch.int32)
    with torch.no_grad():
        torch.jit.trace(Bert().eval(), (ids, lengths)).save(str(path))


# ---- all of them ----


def make(folder, shape, tokenizer):
    """Writes every form that the installed packages can make; the tokenizer is that of another BERT's folder."""
    weights = random_weights(shape)
    write_safetensors(folder / "model.safetensors", weights)
    write_config(folder, shape)
    write_tokenizer(folder, tokenizer, SHAPES[shape][4])
    for package, write, name in (("onnx", write_onnx, "model.onnx"), ("torch", write_torchscript, "model.pt")):
        try:
            write(folder / name, weights, shape)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            print(f"bert: without the package {package} there is no {name}")
    print(f"bert: {sum(tensor.size for tensor in weights.values())} parameters")
