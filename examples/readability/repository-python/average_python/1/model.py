# SPDX-License-Identifier: Apache-2.0
"""The average of ../../repository/average in Python."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            bert, forest = (pb_utils.get_input_tensor_by_name(request, name).as_numpy().astype(np.float64)
                            for name in ("BERT", "FOREST"))
            score = ((bert + forest) / 2).astype(np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", score)]))
        return responses
