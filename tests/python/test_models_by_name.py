# SPDX-License-Identifier: Apache-2.0
"""ORG/NAME in Python: the model comes from a hub, here one on this machine, into the cache of huggingface_hub."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))

import proa  # noqa: E402
from hub_server import Repo, running  # noqa: E402

T5 = ROOT / "models/m30k-t5"
PROMPT = "translate English to German: A dog runs."


@pytest.fixture(name="hub")
def serve_hub(monkeypatch, tmp_path):
    with running() as hub:
        hub.repos["org/words"] = Repo({p.name: p.read_bytes() for p in T5.iterdir() if p.is_file()})
        for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield hub


def test_llm(hub, monkeypatch):
    llm = proa.LLM("org/words")
    assert llm.generate([PROMPT], proa.SamplingParams(temperature=0))[0].outputs[0].text == "Ein Hund rennt."
    hub.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    proa.AutoModelForSeq2SeqLM.from_pretrained("org/words@main").close()
    assert not hub.requests


def test_errors(hub):
    with pytest.raises(proa.NotFoundError, match="^'org/none' is no local path: .* has no 'org/none'"):
        proa.LLM("org/none")
    hub.fault("/lfs/", count=9, wrong=True)
    with pytest.raises(proa.ProaError, match="its sha256 is"):
        proa.LLM("org/words")
