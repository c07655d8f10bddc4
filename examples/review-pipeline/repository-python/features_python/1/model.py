# SPDX-License-Identifier: Apache-2.0
"""The features of ../../repository/features as a model in Python: the module that train.py uses too."""
import pathlib
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

EXAMPLE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(EXAMPLE))
import textfeatures  # noqa: E402  pylint: disable=wrong-import-position


class TritonPythonModel:
    def initialize(self, args):
        lexicon = textfeatures.read_lexicon(EXAMPLE / "repository/features/1/lexicon.tsv")
        self.features = textfeatures.Features(textfeatures.COUNTS, lexicon, textfeatures.STATS)

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            rows = np.array([self.features.row(text) for text in texts.reshape(-1)], dtype=np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("FEATURES", rows)]))
        return responses
