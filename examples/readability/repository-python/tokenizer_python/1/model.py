# SPDX-License-Identifier: Apache-2.0
"""Text to token ids by the package tokenizers, padded to the longest of a request."""
import pathlib

import numpy as np
import tokenizers
import triton_python_backend_utils as pb_utils

BERT = pathlib.Path(__file__).resolve().parents[3] / "repository/bert/1"


class TritonPythonModel:
    def initialize(self, args):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(BERT / "tokenizer.json"))
        self.tokenizer.enable_truncation(512)
        self.tokenizer.enable_padding()

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "QUERY").as_numpy()
            rows = self.tokenizer.encode_batch([text.decode("utf-8", "replace") for text in texts.reshape(-1)])
            ids = np.array([row.ids for row in rows], np.int32)
            lengths = np.array([[sum(row.attention_mask)] for row in rows], np.int32)
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("INPUT_ID", ids), pb_utils.Tensor("REQUEST_INPUT_LEN", lengths)]))
        return responses
