# SPDX-License-Identifier: Apache-2.0
"""Tensors pass through ensembles by reference: the counter of copied bytes stays, where it moves for what does copy."""
import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from wire import ROOT, metric

ROWS = np.arange(4 << 20, dtype=np.float32).reshape(1, -1)  # 16 MiB


def copied(server):
    return metric(requests.get(f"http://{server.metrics}/metrics", timeout=60).text, "proa_tensor_copied_bytes_total")


@pytest.mark.parametrize("triton, face", [(tritonclient.http, "http"), (tritonclient.grpc, "grpc")])
def test_an_ensemble_of_identities_copies_nothing(start, triton, face):
    running = start("--allow-client-shm=true", repositories=[ROOT / "bench/repository"])
    client = triton.InferenceServerClient(getattr(running, face))
    before = copied(running)
    tensor = triton.InferInput("INPUT0", list(ROWS.shape), "FP32")
    tensor.set_data_from_numpy(ROWS)
    assert np.array_equal(client.infer("chain", [tensor]).as_numpy("OUTPUT0"), ROWS)
    assert copied(running) == before
    region = shm.create_shared_memory_region("copies", "/proa_test_copies", ROWS.nbytes)
    try:
        client.register_system_shared_memory("copies", "/proa_test_copies", ROWS.nbytes)
        into = triton.InferRequestedOutput("OUTPUT0")
        into.set_shared_memory("copies", ROWS.nbytes)
        client.infer("chain", [tensor], outputs=[into])
        assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, ROWS.shape), ROWS)
        assert copied(running) == before + ROWS.nbytes
    finally:
        shm.destroy_shared_memory_region(region)
