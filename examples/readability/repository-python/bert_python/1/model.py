# SPDX-License-Identifier: Apache-2.0
"""BERT by the package onnxruntime, all CPUs, all optimisations of the graph."""
import pathlib

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

BERT = pathlib.Path(__file__).resolve().parents[3] / "repository/bert/1"
ROWS = 4  # of one pass, sorted by length: a CPU needs no more, and there is less padding


class TritonPythonModel:
    def initialize(self, args):
        self.session = onnxruntime.InferenceSession(str(BERT / "model.onnx"), providers=["CPUExecutionProvider"])

    def scores(self, ids, lengths):
        """[rows, 1]. Rows of like length make a pass, since those of a pass are padded to the longest."""
        scores = np.empty((len(ids), 1), np.float32)
        order = np.argsort(lengths[:, 0], kind="stable")
        for first in range(0, len(ids), ROWS):
            part = order[first : first + ROWS]
            longest = lengths[part].max()
            inputs = {"input_ids": ids[part, :longest], "input_lengths": lengths[part]}
            scores[part] = self.session.run(["scores"], inputs)[0]
        return scores

    def execute(self, requests):
        responses = []
        for request in requests:
            ids, lengths = (pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                            for name in ("input_ids", "input_lengths"))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("scores", self.scores(ids, lengths))]))
        return responses
