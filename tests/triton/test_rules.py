# SPDX-License-Identifier: Apache-2.0
"""What the comparison with Triton rests on, without Triton: every rule has its line in docs/server.md, and explains no more than it says."""
import pathlib

import pytest

rules = pytest.importorskip("rules")
clients = pytest.importorskip("clients")


def leaf(path, triton, proa, name="infer id_int32 good", whole=({}, {}), **case):
    return rules.Leaf(clients.Http(name, **{"path": "/v2/models/id_int32/infer", **case}), path, triton, proa, whole)


def test_lines_are_in_the_document():
    assert rules.RULES and rules.unknown_lines() == []


def test_a_line_that_is_not_there(tmp_path):
    document = tmp_path / "server.md"
    document.write_text(rules.DOCUMENT.read_text().replace("| `GET /` |", "| `GET /x` |"))
    assert rules.unknown_lines(document) == ["`GET /`"]


@pytest.mark.parametrize("path, triton, proa", [
    ("status", 200, 500),
    ("status", 200, 400),
    ("json.outputs[0].data[1]", 5, 6),
    ("json.outputs[0].datatype", "INT32", "INT64"),
    ("json.outputs", [{"name": "OUT"}], None),
    ("headers.content-type", "application/json", "text/plain"),
])
def test_nothing_else_is_explained(path, triton, proa):
    found = leaf(path, triton, proa, whole=({"status": 200, "json": {}}, {"status": 200, "json": {}}))
    assert rules.explain(found) is None


def test_differences():
    a = {"status": 200, "json": {"data": [1, 2], "name": "a"}}
    b = {"status": 200, "json": {"data": [1, 3]}}
    assert clients.differences(a, b) == [("json.data[1]", 2, 3), ("json.name", "a", None)]
    assert clients.differences(a, a) == []
    assert clients.differences([1], [1, 2]) == [("", [1], [1, 2])]


def test_float_digits():
    assert rules.explain(leaf("json.OUT", 0.10000000149011612, 0.1, "generate id_fp32")).line == "FP32 and FP16 in JSON"
    assert rules.explain(leaf("json.OUT", 0.10000000149011612, 0.2, "generate id_fp32")) is None


def test_the_folder_has_a_readme():
    text = (pathlib.Path(__file__).parent / "README.md").read_text()
    for file in pathlib.Path(__file__).parent.glob("*.py"):
        assert f"`{file.name}`" in text, f"tests/triton/README.md does not name {file.name}"
