# SPDX-License-Identifier: Apache-2.0
"""The short form of soak.py: mixed clients, reloads, killed processes and overwritten files; nothing is lost."""
import soak


def test_nothing_is_lost_under_mixed_clients(start, tmp_path):
    soak.make_repository(tmp_path)
    server = soak.soak_server(tmp_path, start)
    run = soak.Soak(server, tmp_path)
    samples = run.run(seconds=15, every=3)
    assert not run.problems
    assert server.alive() and len(samples) >= 2
    assert all(run.done.get(client.__name__) for client in run.clients), run.done
    assert all(run.done[client.__name__] > run.failed.get(client.__name__, 0) for client in run.clients), run.failed
