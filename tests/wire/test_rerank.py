# SPDX-License-Identifier: Apache-2.0
"""Reranking, scores of pairs, pooling of embeddings, tokens and texts: operations that generate nothing."""
import json
import math
import random
import shutil
import struct

import pytest
import requests
from tokenizers import Tokenizer
from wire import ROOT, Server

DECODER, CROSS, DENSE = "classics-10m", "polarity-bert", 5
STATES = [ROOT / "tests/golden/arch" / name for name in ("embedding_gemma2", "jina_embeddings_v3_separation")]
QUERY, DOCUMENTS = "It was a dark night", ["He bought apples", "The night was dark", "A dark night it was"]


def dense_numbers(outputs, inputs):
    numbers = random.Random(outputs)
    return [[numbers.uniform(-1, 1) for _ in range(inputs)] for _ in range(outputs)], [numbers.uniform(-1, 1) for _ in range(outputs)]


def write_dense(folder, outputs, inputs, activation, biased):
    weight, bias = dense_numbers(outputs, inputs)
    tensors = {"linear.weight": ([outputs, inputs], sum(weight, []))} | ({"linear.bias": ([outputs], bias)} if biased else {})
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(
        {"in_features": inputs, "out_features": outputs, "bias": biased, "activation_function": activation}))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Beside the shipped models, folders of sentence-transformers: polarity-bert without its head."""
    made = tmp_path_factory.mktemp("sentence")
    for name, pooling, modules in (("cls", "pooling_mode_cls_token", ["Transformer", "Pooling"]),
                                   ("unit", "pooling_mode_mean_tokens", ["Transformer", "Pooling", "Normalize"]),
                                   ("max", "pooling_mode_max_tokens", ["Transformer", "Pooling"]),
                                   ("dense", "pooling_mode_mean_tokens", ["Transformer", "Pooling", "Dense"]),
                                   ("layers", "pooling_mode_mean_tokens", ["Transformer", "Pooling", "Dense", "Dense"])):
        folder = made / name
        shutil.copytree(ROOT / "models" / CROSS, folder)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({pooling: True}))
        paths = {"Transformer": "", "Pooling": "1_Pooling"}
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": i, "name": str(i), "path": paths.get(m, f"{i}_{m}"), "type": f"sentence_transformers.models.{m}"}
             for i, m in enumerate(modules)]))
    hidden = json.loads((ROOT / "models" / CROSS / "config.json").read_text())["hidden_size"]
    write_dense(made / "layers/2_Dense", DENSE, hidden, "torch.nn.modules.activation.Tanh", True)
    write_dense(made / "layers/3_Dense", 3, DENSE, "torch.nn.modules.linear.Identity", False)
    folders = [ROOT / "models" / name for name in (DECODER, CROSS)] + [ROOT / "tests/fuzz/repository/chat", *STATES]
    with Server(repositories=folders + sorted(made.iterdir())) as running:
        yield running


@pytest.fixture
def post(models):
    def run(path, status=200, **body):
        answer = requests.post(models.url(path), json=body, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()
    return run


def embed(post, model, text, **more):
    return post("/v1/embeddings", model=model, input=text, **more)["data"][0]["embedding"]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_rerank_by_vectors(post):
    answer = post("/rerank", model=DECODER, query=QUERY, documents=DOCUMENTS)
    query = embed(post, DECODER, QUERY)
    wanted = [cosine(query, embed(post, DECODER, text)) for text in DOCUMENTS]
    results = answer["results"]
    assert [r["index"] for r in results] == sorted(range(3), key=lambda i: -wanted[i])
    assert [r["relevance_score"] for r in results] == pytest.approx(sorted(wanted, reverse=True), abs=1e-6)
    assert [r["document"]["text"] for r in results] == [DOCUMENTS[r["index"]] for r in results]
    assert answer["usage"]["total_tokens"] > 15 and answer["model"] == DECODER
    best = post("/v1/rerank", model=DECODER, query=QUERY, documents=[{"text": t} for t in DOCUMENTS], top_n=1,
                return_documents=False)
    assert best["results"] == [{"index": results[0]["index"], "relevance_score": results[0]["relevance_score"]}]


def test_rerank_by_cross_encoder(post, models):
    answer = post("/v2/rerank", model=CROSS, query="a fine film", documents=["dull and long", "I loved it"])
    assert "document" not in answer["results"][0] and answer["meta"]["billed_units"] == {"search_units": 1}
    for result in answer["results"]:
        document = ["dull and long", "I loved it"][result["index"]]
        pair = post(f"/v2/models/{CROSS}/infer", inputs=[
            {"name": n, "datatype": "BYTES", "shape": [1], "data": [t]}
            for n, t in (("text_input", "a fine film"), ("text_pair", document), ("task", "classify"))])
        logit = next(o["data"][0] for o in pair["outputs"] if o["name"] == "logits")
        assert result["relevance_score"] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)
    scores = post("/score", model=CROSS, text_1="a fine film", text_2=["dull and long", "I loved it"])
    assert {d["index"]: d["score"] for d in scores["data"]} == {r["index"]: r["relevance_score"] for r in answer["results"]}
    assert scores["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]


def test_score_of_lists(post):
    one = post("/v1/score", model=DECODER, text_1=DOCUMENTS[0], text_2=DOCUMENTS[1])
    both = post("/v1/score", model=DECODER, text_1=DOCUMENTS[:2], text_2=[DOCUMENTS[1], DOCUMENTS[1]])
    assert [d["score"] for d in both["data"]] == pytest.approx([one["data"][0]["score"], 1], abs=1e-6)
    assert post("/v1/score", 400, model=DECODER, text_1=DOCUMENTS, text_2=DOCUMENTS[:2])["error"]["param"] == "text_1"


@pytest.mark.parametrize("body, param", [
    ({"query": "a"}, "documents"), ({"documents": ["a"]}, "query"), ({"query": "a", "documents": []}, "documents"),
    ({"query": ["a", "b"], "documents": ["c"]}, "query"), ({"query": 5, "documents": ["c"]}, "query"),
    ({"query": "a", "documents": [["c"]]}, "documents"), ({"query": "a", "documents": ["c"], "top_n": 0}, "top_n"),
    ({"query": "a", "documents": ["c"], "rank_fields": ["x"]}, "rank_fields"),
    ({"query": "a", "documents": ["c"] * 3000}, "documents")])
def test_bad_rerank(post, body, param):
    assert post("/rerank", 400, model=DECODER, **body)["error"]["param"] == param


def test_dimensions(post):
    whole, short = embed(post, CROSS, "good"), embed(post, CROSS, "good", dimensions=16)
    length = math.sqrt(sum(x * x for x in whole[:16]))
    assert short == pytest.approx([x / length for x in whole[:16]], rel=1e-5)
    plain = embed(post, CROSS, "good", dimensions=16, normalize=False)
    assert plain == pytest.approx(embed(post, CROSS, "good", normalize=False)[:16])
    assert sum(x * x for x in plain) != pytest.approx(1, abs=1e-3)
    assert post("/v1/embeddings", 400, model=CROSS, input="a", dimensions=257)["error"]["param"] == "dimensions"


def test_pooling(post):
    vectors = {p: embed(post, CROSS, "a good film", pooling=p) for p in ("mean", "cls", "last")}
    assert vectors["mean"] == embed(post, CROSS, "a good film") and vectors["mean"] != vectors["cls"] != vectors["last"]
    assert post("/v1/embeddings", 400, model=CROSS, input="a", pooling="max")["error"]["param"] == "pooling"
    assert "must be last" in post("/v1/embeddings", 400, model=DECODER, input="a", pooling="cls")["error"]["message"]


def test_pooling_of_the_folder(post):
    """What 1_Pooling and modules.json say is the default; what cannot be computed is refused, unless a request chooses."""
    assert embed(post, "cls", "a good film") == embed(post, CROSS, "a good film", pooling="cls")
    raw = embed(post, "unit", "a good film", normalize=False)
    assert raw == pytest.approx(embed(post, CROSS, "a good film"), rel=1e-5)
    for name, told in (("max", "pooling_mode_max_tokens"), ("dense", "sentence_transformers.models.Dense")):
        assert told in post("/v1/embeddings", 400, model=name, input="a")["error"]["message"]
        assert embed(post, name, "a good film", pooling="mean") == embed(post, CROSS, "a good film")


def test_dense_layers(post):
    """Two layers behind the pooling; a pooling in the request gives the vector without them."""
    mean = embed(post, CROSS, "a good film", pooling="mean", normalize=False)
    (first, bias), (second, _) = dense_numbers(DENSE, len(mean)), dense_numbers(3, DENSE)
    inner = [math.tanh(b + sum(w * x for w, x in zip(row, mean))) for row, b in zip(first, bias)]
    wanted = [sum(w * x for w, x in zip(row, inner)) for row in second]
    assert embed(post, "layers", "a good film", normalize=False) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    assert embed(post, "layers", "a good film", pooling="mean", normalize=False) == mean
    two = post("/v1/embeddings", model="layers", input=["a good film", "a bad film"], normalize=False)["data"]
    assert two[0]["embedding"] == pytest.approx(wanted, rel=1e-4, abs=1e-5) and len(two[1]["embedding"]) == 3


@pytest.mark.parametrize("folder", STATES, ids=lambda folder: folder.name)
def test_states(post, folder):
    """What is pooled are the class' own hidden states: behind a projection, which is wider, or with the adapter of a task."""
    case = json.loads((folder / "golden.json").read_text())["cases"][0]
    rows = case["last_hidden_state"]
    for pooling, wanted in (("mean", [sum(column) / len(rows) for column in zip(*rows)]), ("cls", rows[0]), ("last", rows[-1])):
        vector = embed(post, folder.name, case["input_ids"], pooling=pooling, normalize=False)
        assert vector == pytest.approx(wanted, rel=1e-4, abs=1e-3)


def test_tokenize(post):
    tokenizer = Tokenizer.from_file(str(ROOT / "models" / CROSS / "tokenizer.json"))
    with_special, without = (tokenizer.encode("a good film", add_special_tokens=s) for s in (True, False))
    answer = post("/tokenize", model=CROSS, prompt="a good film", return_token_strs=True)
    assert answer == {"count": len(with_special.ids), "max_model_len": 512, "tokens": with_special.ids,
                      "token_strs": with_special.tokens}
    answer = post("/tokenize", model=CROSS, prompt="a good film", add_special_tokens=False)
    assert answer["tokens"] == without.ids and answer["token_strs"] is None
    assert post("/tokenize", model=CROSS, prompt="", add_special_tokens=False)["tokens"] == []


def test_tokenize_chat(post):
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}
    told = post("/tokenize", **body)
    used = post("/v1/chat/completions", max_tokens=1, **body)["usage"]
    assert told["count"] == used["prompt_tokens"]
    text = post("/detokenize", model="chat", tokens=told["tokens"])["prompt"]
    assert "user\nHello" in text and text.rstrip().endswith("assistant")
    assert post("/tokenize", add_special_tokens=True, **body)["count"] == told["count"] + 1
    assert post("/tokenize", add_generation_prompt=False, **body)["count"] < told["count"]
    assert post("/tokenize", 400, prompt="a", **body)["error"]["param"] == "messages"


def test_detokenize(post):
    ids = post("/tokenize", model=DECODER, prompt="It was the best of times")["tokens"]
    assert post("/detokenize", model=DECODER, tokens=ids)["prompt"].endswith("It was the best of times")
    assert post("/detokenize", model=DECODER, tokens=[])["prompt"] == ""
    assert post("/detokenize", 400, model=DECODER, tokens=[-1])["error"]["param"] == "tokens"
    assert post("/detokenize", 400, model=DECODER, tokens="1")["error"]["param"] == "tokens"
    refused = post("/detokenize", 400, model=DECODER, tokens=[*ids, 99999999])["error"]["message"]
    assert "token id 99999999" in refused and "outside of the vocabulary (0 to 8191)" in refused
    assert post("/tokenize", 400, prompt="a")["error"]["param"] == "model"


def test_only_model():
    """A server of one model needs no name for these operations."""
    with Server(repositories=[ROOT / "models" / DECODER]) as one:
        assert requests.post(one.url("/tokenize"), json={"prompt": "It"}, timeout=60).json()["count"] == 2
        assert requests.get(one.url("/tokenize"), timeout=60).status_code == 405
