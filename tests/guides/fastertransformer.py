# SPDX-License-Identifier: Apache-2.0
"""The guides of GPT-J and T5 in fastertransformer_backend, branch dev/t5_gptj_blog."""
import csv
import json
import shutil

import synthetic
from guide import Oracle, Repository, byte_texts, constant, expect, rows, run_client, serving

END = 50256  # GPT-2's end of text, which pads too


def run(table, checkout, work, models):
    gptj(table, checkout, work, models)
    t5(table, checkout, work, models)
    t5_ids(table, checkout, work)
    table.note("tools/benchmark.py, tools/*.sh", "not clients: they start tritonserver, in containers and on GPUs")


# ---- GPT-J ----


def gptj(table, checkout, work, models):
    tools, here = checkout / "tools", work / "gptj-client"
    vocabulary = checkout / "all_models/gptj/preprocessing/1"
    folder = models.gptj or synthetic.gptj(work / "gptj", vocabulary)
    oracle = Oracle(folder)
    repository = Repository(checkout / "all_models/gptj", work / "gptj-models")
    repository.put("fastertransformer/config.pbtxt", "/data/models/GPT-J/EleutherAI/gptj-model/c-model/4-gpu/", str(folder))
    client = Client(here, oracle)
    here.mkdir()
    table.section("fastertransformer_backend, all_models/gptj", repository.changed())
    with serving(repository.path):
        for arguments in ("", "-beam 2", "-topk 4 -topp 0.9", "-w -n 2"):
            table.add("tools/identity_test.py", arguments, lambda a=arguments: client.identity(tools, a))
        for arguments in ("", "-beam 2", "-topk 4 -topp 0.9 --return_log_probs"):
            table.add("tools/end_to_end_test.py", arguments, lambda a=arguments: client.end_to_end(tools, a))
        for name in ("sample_request", "sample_request_single", "sample_request_runtime_top_k", "sample_request_ensemble"):
            table.add("tools/issue_request.py", f"tools/requests/{name}.json", lambda n=name: client.issue(tools, n))
        table.add("tools/evaluate_lambada.py", "--n-gram-disabled, two sentences of our own",
                  lambda: client.lambada(tools, vocabulary))


def options_of(arguments):
    """The decoding options of a client's command line, as `proa run` calls them; seed 0 is what they all send."""
    words, options = arguments.split(), {"style": "ft", "seed": 0, "top_k": 1, "top_p": 0.0, "end_ids": [END]}
    for flag, name, kind in (("-topk", "top_k", int), ("-topp", "top_p", float), ("-beam", "beams", int)):
        if flag in words:
            options[name] = kind(words[words.index(flag) + 1])
    if options.get("beams", 1) > 1:
        options["length_penalty"] = 1.0
    return options


def sequences_of(result):
    return [beam["ids"] for beam in result["beams"]] if "beams" in result else [result["ids"]]


def check_rows(got, prompts, results):
    """Each row is the prompt, what `proa run` says, and end tokens up to the longest row."""
    wanted = [prompt + ids for prompt, result in zip(prompts, results) for ids in sequences_of(result)]
    expect(len(got) == len(wanted), f"{len(got)} sequences, expected {len(wanted)}")
    for i, (row, ids) in enumerate(zip(got, wanted)):
        expect(row[: len(ids)] == ids and set(row[len(ids) :]) <= {END}, f"sequence {i} is {row}, proa run says {ids}")
    return wanted


class Client:
    """Runs the GPT-J clients in a folder and compares what they got."""

    def __init__(self, folder, oracle):
        self.folder, self.oracle = folder, oracle

    def identity(self, tools, arguments):
        """It leaves the last answer in a file: 8 tokens of each prompt, then 24 new ones."""
        ran = run_client(tools / "identity_test.py", *arguments.split(), folder=self.folder)
        expect("[INFO] execution time" in ran.out, ran.out[-200:])
        options = options_of(arguments)
        got = [[int(one) for one in line.split()] for line in (self.folder / "triton_out").read_text().splitlines()]
        prompts = [row[:8] for row in got[:: options.get("beams", 1)]]
        results = self.oracle([{"ids": ids, "max_tokens": 24, **options} for ids in prompts])
        return f"{len(check_rows(got, prompts, results))} sequences of ids equal proa run's"

    def words(self, texts):
        """A column of CSV lines as lists of ids, as a word list has them."""
        lines = [next(csv.reader([text])) for [text] in texts]
        return [[self.oracle.tokenizer.encode(word).ids for word in words if word] for words in lines]

    def texts_request(self, prompts, tokens, bad, stop, options):
        return [
            {"prompt": prompt, "max_tokens": tokens, **options,
             **({"banned_words": b} if b else {}), **({"stop_words": s} if s else {})}
            for [prompt], b, s in zip(prompts, self.words(bad), self.words(stop))
        ]

    def end_to_end(self, tools, arguments):
        """It calls the three models one by one, then the ensemble; texts go in, so proa run tokenizes for itself."""
        script = tools / "end_to_end_test.py"
        ran = run_client(script, *arguments.split(), folder=self.folder)
        prompts = constant(script, "input0")
        words = constant(script, "bad_words_list"), constant(script, "stop_words_list")
        results = self.oracle(self.texts_request(prompts, constant(script, "OUTPUT_LEN"), *words, options_of(arguments)))
        tokenizer = self.oracle.tokenizer
        ids = [tokenizer.encode(prompt).ids for [prompt] in prompts]
        beams = options_of(arguments).get("beams", 1)
        got = rows(ran.section("After fastertransformer"))[: len(prompts) * beams]
        wanted = check_rows(got, ids, results)
        for title in ("After postprocessing", "After ensemble"):
            texts = byte_texts(ran.section(title))
            expect(len(texts) == len(wanted), f"{len(texts)} texts {title.lower()}")
            for text, one in zip(texts, wanted):
                whole = tokenizer.decode(one, skip_special_tokens=False)
                expect(text.replace("<|endoftext|>", "") == whole.replace("<|endoftext|>", ""), f"{text!r}, proa run says {whole!r}")
        return f"{len(wanted)} sequences of ids and texts equal proa run's"

    def issue(self, tools, name):
        """A request from a file; what it asks for is what proa run is asked for."""
        ran = run_client(tools / "issue_request.py", tools / "requests" / f"{name}.json", folder=self.folder)
        sent = {one["name"]: one["data"] for one in json.loads((tools / "requests" / f"{name}.json").read_text())["request"]}
        requests, prompts = self.requests_of(sent), sent.get("input_ids")
        results = self.oracle(requests)
        if prompts:
            wanted = check_rows(rows(ran.out.split("output_ids:")[1].split("sequence_length:")[0]), prompts, results)
            return f"{len(wanted)} sequences of ids equal proa run's"
        texts = byte_texts(ran.out.split("OUTPUT_0:")[1])
        for text, request, result in zip(texts, requests, results, strict=True):
            whole = request["prompt"] + self.oracle.tokenizer.decode(result["ids"], skip_special_tokens=False)
            expect(text.replace("<|endoftext|>", "") == whole.replace("<|endoftext|>", ""), f"{text!r}, proa run says {whole!r}")
        return f"{len(texts)} texts equal proa run's"

    def requests_of(self, sent):
        column = {name: [row[0] for row in sent[name]] for name in ("runtime_top_k", "runtime_top_p", "random_seed", "end_id")}
        requests = [
            {"style": "ft", "top_k": k, "top_p": p, "seed": seed, "end_ids": [end]}
            for k, p, seed, end in zip(*column.values())
        ]
        if "INPUT_0" in sent:
            words = sent["INPUT_2"], sent["INPUT_3"]
            return [
                {**of_text, **request, "max_tokens": length}
                for of_text, request, [length] in zip(self.texts_request(sent["INPUT_0"], 1, *words, {}), requests, sent["INPUT_1"])
            ]
        return [{**request, "ids": ids, "max_tokens": n} for request, ids, [n] in zip(requests, sent["input_ids"], sent["request_output_len"])]

    def lambada(self, tools, vocabulary):
        """The data set is not in the checkout: two sentences in its format, whose last token is to be said."""
        sentences = ["The sea was calm and the ship went on", "It was a dark and stormy night"]
        for file in ("gpt2-vocab.json", "gpt2-merges.txt"):
            shutil.copy(vocabulary / file, self.folder)
        (self.folder / "lambada_test.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in sentences))
        ran = run_client(tools / "evaluate_lambada.py", "--n-gram-disabled", folder=self.folder)
        ids = [self.oracle.tokenizer.encode(one).ids for one in sentences]
        results = self.oracle([{"ids": one[:-1], "max_tokens": 1, **options_of("")} for one in ids])
        right = sum(result["ids"][0] == one[-1] for result, one in zip(results, ids))
        expect(f"last token accuracy: {right / len(ids) * 100:5.2f}%" in ran.out, ran.out)
        return f"its accuracy is proa run's: {right} of {len(ids)}"


# ---- T5 ----


def t5(table, checkout, work, models):
    """The client names its tokenizer t5-small and looks for it in the folder where it runs: a link leads to the model's."""
    here, utils = work / "t5-client", checkout / "tools/t5_utils"
    repository = Repository(checkout / "all_models/t5", work / "t5-models")
    repository.put("fastertransformer/config.pbtxt", "../all_models/t5/fastertransformer/1/", str(models.t5))
    here.mkdir()
    (here / "t5-small").symlink_to(models.t5)
    for language in ("en", "de"):
        lines = (utils / f"test.{language}").read_text().splitlines(keepends=True)
        (here / f"test.{language}").write_text("".join(lines[: models.lines or None]))
    lines = f"the first {models.lines} lines of test.en and test.de" if models.lines else "all lines of test.en and test.de"
    table.section("fastertransformer_backend, all_models/t5", repository.changed() + f"; t5-small is a link to the model; {lines}")
    with serving(repository.path):
        for arguments in ("--batch_size 32", "--batch_size 32 --beam_width 4"):
            table.add("tools/t5_utils/t5_end_to_end_test.py", arguments, lambda a=arguments: translate(checkout, here, models.t5, a))


def translate(checkout, here, folder, arguments):
    arguments = ["--source", "test.en", "--target", "test.de", *arguments.split()]
    ran = run_client(checkout / "tools/t5_utils/t5_end_to_end_test.py", *arguments, folder=here)
    expect("BLEU score" in ran.out, ran.out[-300:])
    options = {"style": "ft", "max_tokens": 128, "seed": 0, "top_k": 1, "top_p": 0.0}
    if "--beam_width" in arguments:
        options |= {"beams": int(arguments[arguments.index("--beam_width") + 1]), "length_penalty": 1.0}
    lines = (here / "test.en").read_text().splitlines()
    sources = ["translate English to German: " + line.replace(" ", "").replace("▁", " ").strip() for line in lines]
    results = Oracle(folder)([{"prompt": one, **options} for one in sources])
    wanted = "".join((one["beams"][0] if "beams" in one else one)["text"] for one in results)
    got = (here / "ft_triton.txt").read_text()
    same = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    expect(got == wanted, f"at character {same}: {got[same - 20:same + 40]!r}, proa run says {wanted[same - 20:same + 40]!r}")
    return f"{len(lines)} translations equal proa run's, {ran.out.split('BLEU score: ')[1].split(',')[0]} BLEU"


def t5_ids(table, checkout, work):
    """The ids of this request need T5's whole vocabulary."""
    folder = synthetic.t5(work / "t5-random")
    repository = Repository(checkout / "all_models/t5", work / "t5-ids-models")
    repository.put("fastertransformer/config.pbtxt", "../all_models/t5/fastertransformer/1/", str(folder))

    def check():
        name = "sample_request_single_t5.json"
        ran = run_client(checkout / "tools/issue_request.py", checkout / "tools/requests" / name, folder=work)
        sent = {one["name"]: one["data"] for one in json.loads((checkout / "tools/requests" / name).read_text())["request"]}
        options = {"style": "ft", "max_tokens": 128, "seed": 0, "top_k": 1, "top_p": 1.0, "end_ids": [1]}
        wanted = Oracle(folder).one(ids=sent["input_ids"][0], **options)["ids"]
        got = rows(ran.out.split("output_ids:")[1].split("sequence_length:")[0])[0]
        expect(got == wanted, f"{got}, proa run says {wanted}")
        return "1 sequence of ids equals proa run's"

    table.section("fastertransformer_backend, all_models/t5, with T5's whole vocabulary", repository.changed())
    with serving(repository.path):
        table.add("tools/issue_request.py", "tools/requests/sample_request_single_t5.json", check)
