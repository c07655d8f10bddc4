# SPDX-License-Identifier: Apache-2.0
"""Asks several models at once and answers with their largest answer. The configuration is here, not in a file."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "MODELS", "data_type": "TYPE_STRING", "dims": [-1]})
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_input({"name": "INPUT1", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "BEST", "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(0)
        return config

    async def execute(self, requests):
        return list(await asyncio.gather(*[self.answer(request) for request in requests]))

    async def answer(self, request):
        names = pb_utils.get_input_tensor_by_name(request, "MODELS").as_numpy()
        rows = [
            pb_utils.Tensor(name, pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(1, 4))
            for name in ("INPUT0", "INPUT1")
        ]
        calls = [
            pb_utils.InferenceRequest(model_name=name.decode(), requested_output_names=["OUTPUT0"], inputs=rows)
            for name in names
        ]
        replies = await asyncio.gather(*[call.async_exec() for call in calls])
        for reply in replies:
            if reply.has_error():
                return pb_utils.InferenceResponse(error=reply.error())
        sums = [pb_utils.get_output_tensor_by_name(reply, "OUTPUT0").as_numpy()[0] for reply in replies]
        return pb_utils.InferenceResponse([pb_utils.Tensor("BEST", np.max(sums, axis=0))])
