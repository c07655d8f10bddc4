# SPDX-License-Identifier: Apache-2.0
"""Many responses to one request, sent by a thread while execute takes the next; it stops when the client has gone."""
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:

    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for request in requests:
            start = int(pb_utils.get_input_tensor_by_name(request, "FROM").as_numpy()[0])
            thread = threading.Thread(target=self.count, args=(request.get_response_sender(), start))
            thread.start()
            self.threads = [one for one in self.threads if one.is_alive()] + [thread]
        return None

    def count(self, sender, start):
        for number in range(start, 0, -1):
            if sender.is_cancelled():
                break
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
