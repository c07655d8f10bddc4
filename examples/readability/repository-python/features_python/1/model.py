# SPDX-License-Identifier: Apache-2.0
"""The features of ../../repository/features in Python; prepare.py puts textfeatures.py beside this file."""
import pathlib
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import textfeatures  # noqa: E402  pylint: disable=wrong-import-position

COUNTS = ["words", "distinct_words", "punctuation", "sentences", "characters", "long_words"]


class TritonPythonModel:
    def initialize(self, args):
        folder = HERE.parents[2] / "repository/features/1"
        self.features = textfeatures.Features.of_files(COUNTS, folder, ["stopwords.txt"], "words.txt")

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            rows = np.array([self.features.row(text) for text in texts.reshape(-1)], dtype=np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("FEATURES", rows)]))
        return responses
