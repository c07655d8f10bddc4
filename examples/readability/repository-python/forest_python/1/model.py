# SPDX-License-Identifier: Apache-2.0
"""The forest by treelite's own predictor."""
import pathlib

import treelite
import triton_python_backend_utils as pb_utils

FOREST = pathlib.Path(__file__).resolve().parents[3] / "repository/forest/1/checkpoint.tl"


class TritonPythonModel:
    def initialize(self, args):
        self.forest = treelite.Model.deserialize(str(FOREST))

    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "input__0").as_numpy()
            scores = treelite.gtil.predict(self.forest, rows).reshape(-1, 1).astype("float32")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("output__0", scores)]))
        return responses
