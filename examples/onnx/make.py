# SPDX-License-Identifier: Apache-2.0
"""Writes repository/colours/1/model.onnx: which of six named colours an RGB value is nearest to. Needs the package
onnx."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NAMES = ["black", "white", "red", "green", "blue", "yellow"]
VALUES = np.array([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], np.float32)

# |x - c|^2 = |x|^2 - 2 x c + |c|^2: the nearest c has the largest 2 x c - |c|^2
nodes = [
    helper.make_node("Div", ["RGB", "most"], ["x"]),
    helper.make_node("MatMul", ["x", "twice"], ["products"]),
    helper.make_node("Sub", ["products", "squares"], ["SCORE"]),
    helper.make_node("ArgMax", ["SCORE"], ["index"], axis=1, keepdims=1),
    helper.make_node("Gather", ["names", "index"], ["NAME"]),
]
constants = [
    numpy_helper.from_array(np.array(255, np.float32), "most"),
    numpy_helper.from_array(2 * VALUES.T.copy(), "twice"),
    numpy_helper.from_array((VALUES**2).sum(1), "squares"),
    helper.make_tensor("names", TensorProto.STRING, [len(NAMES)], [name.encode() for name in NAMES]),
]
graph = helper.make_graph(
    nodes, "colours", [helper.make_tensor_value_info("RGB", TensorProto.FLOAT, ["rows", 3])],
    [helper.make_tensor_value_info("NAME", TensorProto.STRING, ["rows", 1]),
     helper.make_tensor_value_info("SCORE", TensorProto.FLOAT, ["rows", len(NAMES)])], constants)
path = pathlib.Path(__file__).parent / "repository/colours/1/model.onnx"
path.parent.mkdir(parents=True, exist_ok=True)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, path)
