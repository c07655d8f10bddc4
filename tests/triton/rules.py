# SPDX-License-Identifier: Apache-2.0
"""Differences that are on purpose. A rule names its line of docs/server.md: the first cell of a table's row there."""
import dataclasses
import json
import pathlib
import re
import struct
import typing

from clients import differences

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "server.md"


@dataclasses.dataclass
class Leaf:
    """One value that differs, in its case."""
    case: object
    path: str
    triton: object
    proa: object
    whole: tuple  # both answers


@dataclasses.dataclass
class Rule:
    line: str
    explains: typing.Callable[[Leaf], bool]
    used: int = 0


RULES = []


def rule(line):

    def add(explains):
        RULES.append(Rule(line, explains))
        return explains

    return add


def lines_of_document(path=DOCUMENT):
    """The first cells of all rows of tables."""
    cells = [line.split(" | ")[0].removeprefix("| ").strip() for line in path.read_text().splitlines() if line.startswith("| ")]
    return cells


def unknown_lines(path=DOCUMENT):
    """Lines that rules name and the document lacks, or has twice."""
    cells = lines_of_document(path)
    return [one.line for one in RULES if cells.count(one.line) != 1]


def explain(leaf):
    for one in RULES:
        if one.explains(leaf):
            one.used += 1
            return one
    return None


# ---- the rules ----


def status_of(answer):
    return answer.get("status")


def is_error(answer):
    return status_of(answer) not in (200, "OK")


def by_name(found):
    """Outputs with their data, in the order of their names."""
    if isinstance(found, dict):
        found = {key: by_name(value) for key, value in found.items()}
        if "outputs" in found:
            raw = found.get("raw_output_contents") or [""] * len(found["outputs"])
            pairs = sorted(zip(found["outputs"], raw), key=lambda pair: pair[0].get("name", ""))
            found["outputs"], found["raw_output_contents"] = [list(side) for side in zip(*pairs)] or [[], []]
        return found
    return [by_name(one) for one in found] if isinstance(found, list) else found


def as_float32(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except (TypeError, struct.error, OverflowError):
        return value


@rule("order of an ensemble's outputs")
def _(leaf):
    if "ens_two" not in leaf.case.name or "output" not in leaf.path and leaf.path != "binary" and "header-content-length" not in leaf.path:
        return False
    triton, proa = (by_name(one) for one in leaf.whole)
    return "outputs" in str(triton) and not [one for one in differences(triton, proa) if "output" in one[0]]


@rule("`Content-Type` of answers without a body, of errors and of health")
def _(leaf):
    return leaf.path == "headers.content-type" and leaf.triton in ("text/plain", None) and leaf.proa in ("application/json", None)


@rule("FP32 and FP16 in JSON")
def _(leaf):
    return isinstance(leaf.triton, (int, float)) and "fp32" in leaf.case.name and as_float32(leaf.triton) == as_float32(leaf.proa)


@rule("`sequence_id`, `sequence_start`, `sequence_end` in an ensemble's answers")
def _(leaf):
    nothing = {"sequence_id", "sequence_start", "sequence_end"}
    if "ens_" not in leaf.case.name:
        return False
    if leaf.path == "headers.inference-header-content-length":
        return nothing <= set(leaf.whole[0]["json"].get("parameters", ()))
    return leaf.proa is None and (leaf.path.rsplit(".", 1)[-1] in nothing or leaf.path.endswith("parameters") and set(leaf.triton) <= nothing)


@rule("readiness of a model or version that is not there")
def _(leaf):
    if leaf.case.kind == "scene":
        return leaf.path.startswith("ready.") and leaf.triton == 400 and leaf.proa in (404, 503)
    return "ready" in leaf.case.name.lower() and "not found" in str(leaf.whole[1]) and leaf.path in ("status", "json", "messages", "json.error")


@rule("answers of an ensemble that were given before an error")
def _(leaf):
    return "ens_decoupled" in leaf.case.name and "error" in str(leaf.triton) and "error" in str(leaf.proa) and leaf.path in ("messages", "events")


@rule("version of the server, its extensions")
def _(leaf):
    return leaf.path.split(".")[-1].split("[")[0] in ("version", "extensions") and leaf.case.name in ("GET /v2", "GET /v2/", "ServerMetadata {}")


@rule("`GET /`")
def _(leaf):
    return leaf.case.kind == "http" and leaf.case.path == "/"


@rule("percent escapes in paths")
def _(leaf):
    return leaf.case.kind == "http" and "%" in leaf.case.path and (leaf.triton == 404 or leaf.path == "json.error")


@rule("`response_stats` of statistics")
def _(leaf):
    return ".response_stats" in leaf.path and leaf.triton is None


@rule("JSON that does not parse, or has wrong types")
def _(leaf):
    words = re.compile("[Pp]ars(e|ing)|JSON (non-|error)|Invalid value for|attempt to (access|get)|failed to get request params")
    return leaf.case.kind == "http" and status_of(leaf.whole[0]) in (400, 500) and status_of(leaf.whole[1]) in (400, 500) and \
        leaf.path in ("status", "json.error") and bool(words.search(str(leaf.whole[0])))


@rule("errors of a model in generate")
def _(leaf):
    return leaf.case.name.startswith("generate") and leaf.path == "status" and leaf.triton == 400 and leaf.proa in (404, 500)


@rule("generate of a model that gives several replies")
def _(leaf):
    return leaf.case.name.startswith("generate ") and leaf.path == "status" and (leaf.triton, leaf.proa) == (200, 500) and \
        "decoupled" in leaf.case.name


@rule("`Content-Type` of errors by generate_stream")
def _(leaf):
    """The same text, as an event there and as an answer here."""
    if not leaf.case.name.startswith("generate_stream") or not is_error(leaf.whole[0]) or not is_error(leaf.whole[1]):
        return False
    triton, proa = leaf.whole[0].get("events"), leaf.whole[1].get("json")
    return triton is not None and proa is not None and (triton[:1] == [proa] or leaf.path in ("status", "headers.content-type"))


@rule("Python: errors of calls between models")
def _(leaf):
    return " bls" in leaf.case.name and leaf.path == "status" and leaf.triton in (400, 500, "INTERNAL") and leaf.proa in (404, 500, "NOT_FOUND")


@rule("the last answer of a decoupled ensemble, gRPC")
def _(leaf):
    return "ens_decoupled" in leaf.case.name and leaf.path.endswith("triton_final_response.bool_param") and leaf.proa is True


@rule("trace settings of an unknown model")
def _(leaf):
    return leaf.case.kind == "http" and leaf.case.path.endswith("/trace/setting") and leaf.path in ("status", "json.error")


@rule("`max_inflight_requests` in an ensemble's configuration")
def _(leaf):
    return leaf.path.endswith("ensemble_scheduling.max_inflight_requests") and leaf.triton is None


@rule("integers in JSON that do not fit their type")
def _(leaf):
    return leaf.path in ("status", "json.error") and "out of range of datatype" in str(leaf.whole[1].get("json"))


@rule("`id` in generate")
def _(leaf):
    """The model says in JSON what it saw: the id is among its parameters there."""
    if not leaf.case.name.startswith("generate") or " seen" not in leaf.case.name:
        return False
    try:
        triton, proa = json.loads(leaf.triton), json.loads(leaf.proa)
        return triton["parameters"].pop("id") == triton["id"] and triton == proa
    except (TypeError, ValueError, KeyError):
        return False


@rule("infer with an empty body, of a model with one input")
def _(leaf):
    return leaf.case.kind == "http" and leaf.case.path.endswith("/infer") and not leaf.case.body and status_of(leaf.whole[1]) == 400


@rule("a full queue, HTTP")
def _(leaf):
    return (leaf.triton, leaf.proa) == (503, 429) and leaf.case.name in ("priorities: full", )


@rule("a model that fails to load, poll mode")
def _(leaf):
    return leaf.case.name == "poll: a broken model comes" and leaf.path.startswith("index[0]") and leaf.whole[0]["index"][0][2] == "LOADING" and \
        leaf.whole[1]["index"][0][2] == "UNAVAILABLE"


@rule("`--model-namespacing`")
def _(leaf):
    return "--model-namespacing" in leaf.case.name and (leaf.path.startswith("index") or " both " in f"{leaf.path} ")


# ---- statistics ----


def statistics_of(leaf):
    """The entries of the model that a leaf of statistics belongs to."""
    match = re.match(r"(json|messages\[0\])\.model_stats\[(\d+)\]\.", leaf.path)
    if not match:
        return None
    return [(one["json"] if match[1] == "json" else one["messages"][0])["model_stats"][int(match[2])] for one in leaf.whole]


def count_of(entry, key):
    return int(entry["inference_stats"].get(key, {}).get("count", 0))


@rule("failed requests in statistics")
def _(leaf):
    found = statistics_of(leaf)
    if not found or ".response_stats" in leaf.path:
        return False
    triton, proa = found
    (good, bad), (our_good, our_bad) = [[count_of(one, key) for key in ("success", "fail")] for one in found]
    if triton["name"].startswith("ens_"):
        return (".fail" in leaf.path or leaf.path.endswith("last_inference")) and our_bad <= bad <= 2 * our_bad
    if triton["name"] == "sequence":
        return ".fail" in leaf.path and good == our_good and bad <= our_bad
    return triton["name"] in ("odd", "bls", "decoupled") and good >= our_good and bad <= our_bad and good + bad <= our_good + our_bad


@rule("response cache")
def _(leaf):
    found = statistics_of(leaf)
    if not found or found[0]["name"] != "cached" or ".fail" in leaf.path or ".success" in leaf.path:
        return False
    return all(count_of(found[0], key) == count_of(found[1], key) for key in ("success", "fail"))


@rule("steps of an ensemble beside one that fails")
def _(leaf):
    """The other step of ens_two: as many requests, and of some it is chance whether they end before they are cancelled."""
    found = statistics_of(leaf)
    if not found or found[0]["name"] != "id_bytes":
        return False
    (good, bad), (our_good, our_bad) = [[count_of(one, key) for key in ("success", "fail")] for one in found]
    return good + bad == our_good + our_bad


@rule("`batch_stats` of sequences (direct strategy)")
def _(leaf):
    found = statistics_of(leaf)
    return bool(found) and found[0]["name"] == "sequence" and ".batch_stats" in leaf.path
