# SPDX-License-Identifier: Apache-2.0
"""Models by their names on a hub: `proa pull`, and ORG/NAME as a MODEL.

A hub on this machine (hub_server.py) stands in for huggingface.co; huggingface_hub from PyPI, which transformers uses too,
reads and writes the same cache.
"""
import hashlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from harness import LM, PROA, T5, fails, ok, ok_json, proa
from hub_server import Repo, etag, running, sha256
from test_chat import Terminal

COMMIT = "a" * 40
MIB = 1 << 20


@pytest.fixture(name="hub")
def start_hub():
    with running() as hub:
        yield hub


@pytest.fixture(name="env")
def environment(hub, tmp_path, monkeypatch):
    """A home of its own, so that neither tokens nor caches of the user are seen."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING")) or name == "TRANSFORMERS_OFFLINE":
            monkeypatch.delenv(name)
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path), "no_proxy": "127.0.0.1",
            "HF_HUB_DISABLE_XET": "1"}


def noise(size, seed=0):
    """Bytes that do not repeat: a piece in the wrong place is seen."""
    out = bytearray()
    block = hashlib.sha256(b"%d" % seed).digest()
    while len(out) < size:
        out += hashlib.shake_256(block).digest(min(MIB, size - len(out)))
        block = hashlib.sha256(block).digest()
    return bytes(out)


def folder_files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


SMALL = {"config.json": b'{"model_type": "none"}', "tokenizer.json": b"{}", "model.safetensors": noise(50_000),
         "README.md": b"# no", "pytorch_model.bin": noise(60_000), "flax_model.msgpack": b"no", "onnx/model.onnx": b"no"}
TAKEN = {"config.json", "tokenizer.json", "model.safetensors"}


def cache_of(env):
    return pathlib.Path(env["HF_HOME"]) / "hub"


def repo_of(env, name="org/tiny"):
    return cache_of(env) / ("models--" + name.replace("/", "--"))


def snapshot(env, name="org/tiny", commit=COMMIT):
    return repo_of(env, name) / "snapshots" / commit


def nothing_broken(env, hub, name="org/tiny"):
    """Whatever has a final name has the right bytes."""
    right = {etag(d) for repo in hub.repos.values() for files in repo.commits.values() for d in files.values()}
    for blob in (repo_of(env, name) / "blobs").glob("*"):
        if not blob.name.endswith(".incomplete"):
            assert blob.name in right and etag(blob.read_bytes()) == blob.name
    for pointer in snapshot(env, name).rglob("*"):
        if pointer.is_symlink():
            assert pointer.resolve().exists(), pointer


def with_huggingface_hub(env, code, **more):
    """Runs Python with huggingface_hub on the same cache."""
    pytest.importorskip("huggingface_hub")
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env, **more}, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


# ---- what is fetched, and where it is put ----

def test_layout(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    path = ok("pull", "org/tiny", env=env).strip()
    assert pathlib.Path(path) == snapshot(env)
    assert {p.name for p in snapshot(env).iterdir()} == TAKEN
    for name in TAKEN:
        pointer = snapshot(env) / name
        assert os.readlink(pointer) == f"../../blobs/{etag(SMALL[name])}"
        assert pointer.read_bytes() == SMALL[name]
    assert (repo_of(env) / "refs/main").read_text() == COMMIT
    assert sorted(p.name for p in (repo_of(env) / "blobs").iterdir()) == sorted(etag(SMALL[n]) for n in TAKEN)
    hub.clear()
    again = ok_json("pull", "org/tiny", env=env)
    assert again["bytes_downloaded"] == 0 and [r["path"] for r in hub.requests] == ["/api/models/org/tiny/revision/main"]
    assert again["commit"] == COMMIT and {f["name"] for f in again["files"]} == TAKEN


def test_dry_run(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    listed = ok_json("pull", "org/tiny", "--dry-run", env=env)
    assert {f["name"] for f in listed["files"] if f["downloaded"]} == TAKEN
    assert "missing  config.json" in ok("pull", "org/tiny", "--dry-run", env=env)
    assert not cache_of(env).exists() and not hub.gets()


def test_huggingface_hub_reads_what_proa_wrote(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    ok("pull", "org/tiny", env=env)
    hub.clear()
    out = with_huggingface_hub(env, """
import huggingface_hub as h
for name in ("config.json", "model.safetensors"):
    print(h.hf_hub_download("org/tiny", name))
info = h.scan_cache_dir()
assert not info.warnings, info.warnings
assert [r.repo_id for r in info.repos] == ["org/tiny"], info
print(h.snapshot_download("org/tiny", local_files_only=True, allow_patterns=["*.json", "*.safetensors"]))
""")
    assert out.split() == [str(snapshot(env) / "config.json"), str(snapshot(env) / "model.safetensors"), str(snapshot(env))]
    assert not hub.gets()  # nothing was downloaded twice


def test_proa_reads_what_huggingface_hub_wrote(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    with_huggingface_hub(env, "import huggingface_hub as h; h.snapshot_download('org/tiny')")
    hub.clear()
    assert ok_json("pull", "org/tiny", env=env)["bytes_downloaded"] == 0 and not hub.gets()
    hub.clear()
    assert ok("pull", "org/tiny", "--offline", env=env).strip() == str(snapshot(env)) and not hub.requests
    # one file of it was removed: only that is fetched
    (repo_of(env) / "blobs" / etag(SMALL["model.safetensors"])).unlink()
    assert ok_json("pull", "org/tiny", env=env)["bytes_downloaded"] == len(SMALL["model.safetensors"])


def test_list_without_checksums(hub, env):
    """A mirror whose list has names only: HEAD gives the rest."""
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.repos["org/tiny"].sizes = False
    ok("pull", "org/tiny", env=env)
    nothing_broken(env, hub)
    assert {r["path"].rsplit("/")[-1] for r in hub.requests if r["method"] == "HEAD"} == TAKEN
    hub.fault("config.json", cdn=False, method="HEAD", code=200, headers={"ETag": '"../../x"', "X-Repo-Commit": COMMIT, "Content-Length": 5})
    assert "etag '../../x' is not of letters and digits" in fails("pull", "org/tiny", env={**env, "HF_HOME": env["HF_HOME"] + "2"})


@pytest.mark.parametrize("names, taken", [
    (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
      "consolidated.safetensors", "x.gguf"],
     ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]),
    (["model.fp16.safetensors", "model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
    (["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json", "training_args.bin",
      "rust_model.ot"], ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"]),
    (["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"], ["adapter_config.json", "adapter_model.safetensors"]),
    (["modules.json", "1_Pooling/config.json", "2_Dense/config.json", "model.safetensors"],
     ["modules.json", "1_Pooling/config.json", "2_Dense/config.json", "model.safetensors"]),
    (["chat_template.jinja", "tokenizer.model", "vocab.txt", "source.spm", "requirements.txt", "trainer_state.json", "model.safetensors"],
     ["chat_template.jinja", "tokenizer.model", "vocab.txt", "source.spm", "model.safetensors"]),
])
def test_choice(hub, env, names, taken):
    hub.repos["org/tiny"] = Repo({"config.json": b"{}", **{name: name.encode() for name in names}})
    listed = ok_json("pull", "org/tiny", "--dry-run", env=env)
    assert sorted(f["name"] for f in listed["files"]) == sorted(["config.json", *taken])


def test_gguf(hub, env):
    names = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf",
             "mmproj-f16.gguf"]
    hub.repos["org/tiny"] = Repo({"config.json": b"{}", **{name: name.encode() for name in names}})
    assert "has several GGUF files: add :FILE to the name, one of BF16/m-BF16-00001" in fails("pull", "org/tiny", env=env)
    assert "several GGUF files that fit Q4_K" in fails("pull", "org/tiny:Q4_K", env=env)
    assert "no GGUF file 'IQ9'" in fails("pull", "org/tiny:IQ9", env=env)
    hub.repos["org/plain"] = Repo(SMALL)
    assert "'org/plain' has no GGUF files: leave ':Q4_K_M' out of the name" in fails("pull", "org/plain:Q4_K_M", env=env)
    assert ok("pull", "org/tiny:q8_0@main", env=env).strip() == str(snapshot(env) / "m-Q8_0.gguf")
    assert ok("pull", "org/tiny:m-Q4_K_S.gguf", env=env).strip() == str(snapshot(env) / "m-Q4_K_S.gguf")
    assert ok("pull", "org/tiny:bf16", env=env).strip() == str(snapshot(env) / names[3])
    assert (snapshot(env) / names[4]).exists() and not (snapshot(env) / names[0]).exists()
    assert os.readlink(snapshot(env) / names[3]) == f"../../../blobs/{etag(names[3].encode())}"
    assert ok("pull", "org/tiny:q8_0", "--offline", env=env).strip() == str(snapshot(env) / "m-Q8_0.gguf")
    assert "the cache has no complete m-Q4_K_M.gguf" in fails("pull", "org/tiny:q4_k_m", "--offline", env=env)


def test_revisions(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL, tags=["v1.0"])
    newer = {**SMALL, "config.json": b'{"newer": 1}'}
    hub.repos["org/tiny"].commits["b" * 40] = newer
    hub.repos["org/tiny"].refs.update({"main": "b" * 40, "refs/pr/1": "b" * 40})
    assert ok("pull", "org/tiny@v1.0", env=env).strip() == str(snapshot(env))
    assert ok_json("pull", "org/tiny", env=env)["bytes_downloaded"] == len(newer["config.json"])  # the blobs are shared
    assert ok("pull", f"org/tiny@{COMMIT}", env=env).strip() == str(snapshot(env))
    assert ok("pull", "org/tiny@refs/pr/1", env=env).strip() == str(snapshot(env, commit="b" * 40))
    assert (repo_of(env) / "refs/v1.0").read_text() == COMMIT and (repo_of(env) / "refs/refs/pr/1").read_text() == "b" * 40
    assert "'org/tiny' has no revision 'no'" in fails("pull", "org/tiny@no", env=env)


# ---- a MODEL by name ----

def test_model_by_name(hub, env):
    hub.repos["org/words"] = Repo(folder_files(LM))
    here = ok("run", LM, "It was", "--max-tokens", 8, "--temperature", 0)
    assert ok("run", "org/words", "It was", "--max-tokens", 8, "--temperature", 0, env=env) == here
    hub.clear()
    assert ok("run", "org/words", "It was", "--max-tokens", 8, "--temperature", 0, env={**env, "HF_HUB_OFFLINE": "1"}) == here
    assert not hub.requests
    explained = [ok("explain", model, "--no-measure", env=env).splitlines() for model in ("org/words@main", LM)]
    assert explained[0][1:-3] == explained[1][1:-3]
    assert ok("inspect", "org/words", "--no-values", env=env) == ok("inspect", LM, "--no-values")


def serve(env, *args):
    """The models of a server: name and state."""
    command = [PROA, "serve", *args, "--http-port", 0, "--allow-grpc=false", "--allow-metrics=false", "--json", "--log-info=false"]
    with subprocess.Popen(list(map(str, command)), env={**os.environ, **env}, stdout=subprocess.PIPE, text=True) as run:
        models = json.loads(run.stdout.readline())["models"]
        run.terminate()
    return [(m["name"], m["state"]) for m in models]


def test_openai_takes_the_name_of_the_repository(hub, env):
    hub.repos["org/words"] = Repo(folder_files(LM))
    command = [PROA, "serve", "org/words", "--http-port", 0, "--allow-grpc=false", "--allow-metrics=false", "--json", "--log-info=false"]

    def complete(port, model):
        body = json.dumps({"model": model, "prompt": "It was", "max_tokens": 2}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, headers)) as response:
                return json.loads(response.read())["model"]
        except urllib.error.HTTPError as error:
            return error.code

    with subprocess.Popen(list(map(str, command)), env={**os.environ, **env}, stdout=subprocess.PIPE, text=True) as run:
        try:
            port = json.loads(run.stdout.readline())["http_port"]
            assert complete(port, "words") == "words" and complete(port, "org/words") == "org/words"
            for other in ("orgs/words", "words/words", "org/word", "/words", "org/", "x/org/words", "a" * 5000 + "/words"):
                assert complete(port, other) == 404, other
        finally:
            run.terminate()


def test_serve_by_name(hub, env, tmp_path):
    hub.repos["org/words"] = Repo(folder_files(LM))
    assert serve(env, "org/words") == [("words", "READY")]  # its name, not that of the snapshot's folder
    (tmp_path / "models/writer/1").mkdir(parents=True)
    (tmp_path / "models/writer/config.pbtxt").write_text(
        'backend: "tensorrtllm"\nparameters { key: "gpt_model_path" value { string_value: "org/words" } }\n')
    hub.clear()
    assert serve(env, "--model-repository", tmp_path / "models") == [("writer", "READY")]
    assert hub.requests and not hub.gets()


def test_local_path_wins(hub, env, tmp_path):
    hub.repos["org/words"] = Repo({"config.json": b"{}"})
    (tmp_path / "org").mkdir()
    (tmp_path / "org/words").symlink_to(T5)
    ok("run", "org/words", "translate English to German: A dog runs.", env=env, cwd=tmp_path)
    assert not hub.requests


def test_no_such_model(hub, env):
    line = fails("run", "models/none", "x", env=env)
    assert line == f"proa: 'models/none' is no local path: {hub.url} has no 'models/none', or it is private: set HF_TOKEN"
    line = fails("run", "models/none", "x", env={**env, "HF_HUB_OFFLINE": "1"})
    assert "'models/none' is no local path: " in line and line.endswith("HF_HUB_OFFLINE forbids to download it")
    assert "cannot open" in fails("run", "models/none.gguf", "x", env=env)  # a file that is not there
    for name in ("org", "org/a/b", "org/../x", "org/-x", "org/x.git", "org/" + "x" * 200, "org/a--b", "org/x@", "org/x@../y", "org/x:/y"):
        assert "is not of the form" in (line := fails("pull", name, env=env)) or "is not" in line
    assert len(hub.requests) == 1


# ---- interruptions: the next run goes on ----

def large(hub, size=40 * MIB):
    hub.repos["org/tiny"] = Repo({**SMALL, "model.safetensors": noise(size)})
    return hub.repos["org/tiny"].commits[COMMIT]["model.safetensors"]


def incomplete(env, data):
    return repo_of(env) / "blobs" / f"{sha256(data)}.incomplete"


def test_parallel_ranges(hub, env):
    data = large(hub)
    hub.fault("/lfs/", count=99, rate=8 * MIB)
    ok("pull", "org/tiny", env=env)
    assert (snapshot(env) / "model.safetensors").read_bytes() == data
    assert hub.sending_most >= 4 and hub.bytes_sent < len(data) + 100_000
    nothing_broken(env, hub)


def test_kill(hub, env):
    data = large(hub)
    hub.fault("/lfs/", count=99, rate=MIB)
    with subprocess.Popen([PROA, "pull", "org/tiny"], env={**os.environ, **env}, stderr=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (incomplete(env, data).exists() and incomplete(env, data).stat().st_size > 3 * MIB):
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
    begun = incomplete(env, data).read_bytes()
    assert 3 * MIB < len(begun) < len(data) and data.startswith(begun)  # a beginning, without holes
    assert not (snapshot(env) / "model.safetensors").exists() and (snapshot(env) / "config.json").exists()
    for revision, text in (("main", "no 'main' of 'org/tiny'"), (COMMIT, "no complete model.safetensors")):
        assert text in fails("run", f"org/tiny@{revision}", "x", env={**env, "HF_HUB_OFFLINE": "1"})
    hub.clear()
    ok("pull", "org/tiny", env=env)
    firsts = [int(r["range"][6:].split("-")[0]) for r in hub.gets("/lfs/")]
    assert min(firsts) == len(begun)  # it went on
    assert (snapshot(env) / "model.safetensors").read_bytes() == data


def test_progress_line(hub, env):
    large(hub, 20 * MIB)
    hub.fault("/lfs/", count=99, rate=2 * MIB)
    t = Terminal("pull", "org/tiny", env=env)
    t.wait(r"% +[0-9.]+ MB of 21\.0 MB, [0-9.]+ MB/s, model")
    t.wait(r"snapshots/a{40}")
    assert t.close() == 0


def test_interrupt(hub, env):
    large(hub)
    hub.fault("/lfs/", count=99, rate=MIB)
    with subprocess.Popen([PROA, "pull", "org/tiny"], env={**os.environ, **env}, stderr=subprocess.PIPE, text=True) as run:
        while not hub.gets("/lfs/"):
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=20)[1] == "proa: interrupted\n" and run.returncode == 130


def test_resumes_a_beginning_of_others(hub, env):
    data = large(hub, 9 * MIB)
    (repo_of(env) / "blobs").mkdir(parents=True)
    incomplete(env, data).write_bytes(data[:5 * MIB])
    ok("pull", "org/tiny", env=env)
    assert hub.bytes_sent < 5 * MIB and (snapshot(env) / "model.safetensors").read_bytes() == data


@pytest.mark.parametrize("begin", [lambda d: b"x" * 1000, lambda d: d + b"x", lambda d: d[:-1] + b"x", lambda d: d],
                         ids=["wrong", "too long", "wrong end", "whole"])
def test_damaged_beginning(hub, env, begin):
    data = large(hub, MIB)
    (repo_of(env) / "blobs").mkdir(parents=True)
    incomplete(env, data).write_bytes(begin(data))
    ok("pull", "org/tiny", env=env)
    assert (snapshot(env) / "model.safetensors").read_bytes() == data


def test_cut_connections(hub, env):
    data = large(hub, 20 * MIB)
    hub.fault("/lfs/", count=6, cut_at=3 * MIB)
    hub.fault("config.json", count=1, cut_at=4)
    ok("pull", "org/tiny", env=env)
    assert (snapshot(env) / "model.safetensors").read_bytes() == data
    nothing_broken(env, hub)


def test_server_without_ranges(hub, env):
    data = large(hub, 20 * MIB)
    hub.fault("/lfs/", count=1, no_ranges=True, cut_at=9 * MIB)
    hub.fault("/lfs/", count=99, no_ranges=True)
    ok("pull", "org/tiny", env=env)
    assert (snapshot(env) / "model.safetensors").read_bytes() == data


def test_two_at_once(hub, env):
    data = large(hub, 12 * MIB)
    hub.fault("/lfs/", count=99, rate=4 * MIB)
    runs = [subprocess.Popen([PROA, "pull", "org/tiny"], env={**os.environ, **env}, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {r.communicate(timeout=60)[0].strip() for r in runs} == {str(snapshot(env))}
    assert hub.bytes_sent < len(data) + 100_000  # one has downloaded, the others have waited
    nothing_broken(env, hub)


# ---- faults ----

def test_wrong_checksum(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.fault("/lfs/", count=9, wrong=True)
    line = fails("pull", "org/tiny", env=env)
    assert "model.safetensors: its sha256 is " in line and f"the server names {sha256(SMALL['model.safetensors'])}" in line
    assert not (snapshot(env) / "model.safetensors").exists()
    nothing_broken(env, hub)
    hub.clear()
    ok("pull", "org/tiny", env=env)
    nothing_broken(env, hub)
    hub.fault("tokenizer.json", wrong=True)
    assert "tokenizer.json: its git sha1 is " in fails("pull", "org/tiny", env={**env, "HF_HOME": env["HF_HOME"] + "2"})


def test_verify(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    ok("pull", "org/tiny", env=env)
    blob = repo_of(env) / "blobs" / etag(SMALL["model.safetensors"])
    blob.write_bytes(b"x" + SMALL["model.safetensors"][1:])  # the same size
    assert ok_json("pull", "org/tiny", env=env)["bytes_downloaded"] == 0
    run = proa("pull", "org/tiny", "--verify", "--offline", env=env)
    assert run.returncode == 1 and "its sha256 is" in run.stderr
    assert ok_json("pull", "org/tiny", "--verify", env=env)["bytes_downloaded"] == len(SMALL["model.safetensors"])
    nothing_broken(env, hub)
    blob.write_bytes(b"short")
    assert ok_json("pull", "org/tiny", env=env)["bytes_downloaded"] == len(SMALL["model.safetensors"])
    nothing_broken(env, hub)


def test_full_disk(hub, env):
    data = large(hub, 20 * MIB)
    limit = 5 * MIB
    line = fails("pull", "org/tiny", env=env, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert "cannot write to the cache" in line and "File too large" in line
    assert data.startswith(incomplete(env, data).read_bytes()) and not (snapshot(env) / "model.safetensors").exists()
    hub.clear()
    ok("pull", "org/tiny", env=env)
    assert hub.bytes_sent <= 16 * MIB
    nothing_broken(env, hub)


def test_small_disk(hub, env, tmp_path):
    """A real file system of 8 MiB, where the machine lets the test mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("cannot mount a file system")
    try:
        data = large(hub, 20 * MIB)
        line = fails("pull", "org/tiny", env={**env, "HF_HOME": str(disk)})
        assert "has room for 0.01 GB, 'org/tiny' needs 0.02 GB" in line and not hub.gets()
        subprocess.run(["mount", "-o", "remount,size=24m", disk], check=True)
        begun = incomplete({"HF_HOME": disk}, data)  # what an earlier run has left needs no room
        begun.parent.mkdir(parents=True, exist_ok=True)
        begun.write_bytes(data[:16 * MIB])
        ok("pull", "org/tiny", env={**env, "HF_HOME": str(disk)})
    finally:
        subprocess.run(["umount", disk], check=True)


def test_busy_server(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.fault("/api/", code=429, headers={"Retry-After": 1})
    hub.fault("/api/", code=503)
    hub.fault("config.json", count=2, code=500)
    hub.fault("/lfs/", code=502)
    hub.fault("/lfs/", code=429, headers={"RateLimit": '"resolvers";r=0;t=1'})
    begin = time.monotonic()
    ok("pull", "org/tiny", env=env)
    assert time.monotonic() - begin > 2  # what the server wanted
    nothing_broken(env, hub)


def test_server_that_stays_busy(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.fault("/api/", count=99, code=429, headers={"Retry-After": 4000})
    assert "answers 429 Too Many Requests: try again in 4000 s" in fails("pull", "org/tiny", env=env)
    hub.clear()
    hub.fault("/lfs/", count=99, code=503, headers={"Retry-After": 0})
    line = fails("pull", "org/tiny", env=env)
    assert f"model.safetensors: {hub.cdn_url} answers 503 Service Unavailable" in line and "secret" not in line
    assert len(hub.gets("/lfs/")) == 6
    nothing_broken(env, hub)
    hub.clear()
    ok("pull", "org/tiny", env=env)


def test_unreachable_hub(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    nowhere = {**env, "HF_ENDPOINT": "http://127.0.0.1:1"}
    begin = time.monotonic()
    assert "cannot reach http://127.0.0.1:1" in fails("pull", "org/tiny", env=nowhere)
    assert time.monotonic() - begin < 30
    ok("pull", "org/tiny", env=env)
    run = proa("pull", "org/tiny", env=nowhere)  # the cache stands in
    assert run.returncode == 0 and run.stdout.strip() == str(snapshot(env)) and "comes from the cache" in run.stderr
    assert "must be http://HOST or https://HOST" in fails("pull", "org/tiny", env={**env, "HF_ENDPOINT": "ftp://x"})


def test_expired_address(hub, env):
    data = large(hub, 20 * MIB)
    hub.fault("/lfs/", count=1)  # the first is good
    hub.fault("/lfs/", count=1, code=403)
    ok("pull", "org/tiny", "--connections", 1, env=env)
    assert (snapshot(env) / "model.safetensors").read_bytes() == data
    assert len(hub.gets("resolve/.*model.safetensors")) == 2


# ---- tokens and redirects ----

def test_token_stays_with_the_hub(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.repos["org/tiny"].token = "hf_secret"
    ok("pull", "org/tiny", env={**env, "HF_TOKEN": " hf_secret\n"})
    assert all(r["token"] == "Bearer hf_secret" for r in hub.requests if not r["cdn"])
    assert [r["token"] for r in hub.requests if r["cdn"]] == [None]
    pathlib.Path(env["HF_HOME"], "token").write_text("hf_secret\n")
    ok("pull", "org/tiny", env=env)
    assert "or it is private: set HF_TOKEN" in fails("pull", "org/tiny", env={**env, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"})
    assert "or the token is wrong" in fails("pull", "org/tiny", env={**env, "HF_TOKEN": "hf_other"})
    assert "has a character that no token has" in fails("pull", "org/tiny", env={**env, "HF_TOKEN": "hf\r\nX-Evil: 1"})


def test_gated(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.repos["org/tiny"].gated = "hf_good"
    assert f"'org/tiny' is gated: accept its terms at {hub.url}/org/tiny and set HF_TOKEN" in fails("pull", "org/tiny", env=env)
    assert "with the account of your token" in fails("pull", "org/tiny", env={**env, "HF_TOKEN": "hf_bad"})
    ok("pull", "org/tiny", env={**env, "HF_TOKEN": "hf_good"})


def test_redirects(hub, env):
    hub.repos["org/new"] = Repo(SMALL)
    hub.repos["org/tiny"] = Repo({})
    hub.repos["org/tiny"].moved_to = "org/new"
    assert ok("pull", "org/tiny", env=env).strip() == str(snapshot(env))
    for location, text in (("file:///etc/passwd", "is not followed"), ("ftp://x/y", "is not followed"), ("/a", "more than 8 redirects")):
        hub.clear()
        hub.fault("tokenizer.json|^/a$", count=99, code=302, headers={"Location": location})
        line = fails("pull", "org/new", env={**env, "HF_HOME": env["HF_HOME"] + location.replace("/", "")})
        assert line.startswith("proa: tokenizer.json: ") and text in line


# ---- hostile ----

@pytest.mark.parametrize("name", ["../evil.json", "/etc/evil.json", "a/../../evil.json", "a//b.json", "./x.json", "x\\..\\y.json",
                                  "a\nb.json", "", ".."])
def test_hostile_names(hub, env, name):
    hub.repos["org/tiny"] = Repo({**SMALL, name: b"{}"})
    assert "is no path inside a folder" in fails("pull", "org/tiny", env=env)
    assert not hub.gets()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"sha": "main", "siblings": []}', b'{"sha": "' + b"a" * 40 + b'"}',
                                  b'{"sha": "../../../../tmp/aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "siblings": []}', b"<html>proxy</html>"])
def test_hostile_lists(hub, env, body):
    hub.repos["org/tiny"] = Repo(SMALL)
    hub.fault("/api/", code=200, body=body)
    fails("pull", "org/tiny", env=env)
    assert not cache_of(env).exists()


def test_wrong_sizes(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    files = [{"rfilename": n, "size": len(d) + 1, "blobId": etag(d) if len(etag(d)) == 40 else "0" * 40} for n, d in SMALL.items()]
    hub.fault("/api/", code=200, body=json.dumps({"sha": COMMIT, "siblings": files}).encode())
    assert "bytes, its list names" in fails("pull", "org/tiny", env=env)
    nothing_broken(env, hub)
    huge = [{"rfilename": "model.safetensors", "size": 10**18, "blobId": "0" * 40}]
    hub.fault("/api/", code=200, body=json.dumps({"sha": COMMIT, "siblings": huge}).encode())
    assert "at most" in fails("pull", "org/tiny", env=env)


def test_links_out_of_the_cache(hub, env, tmp_path):
    hub.repos["org/tiny"] = Repo(SMALL)
    ok("pull", "org/tiny", env=env)
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "config.json"
    secret.write_bytes(SMALL["config.json"])
    pointer = snapshot(env) / "config.json"
    pointer.unlink()
    pointer.symlink_to(secret)
    for more in ([], ["--offline"]):
        assert f"leads out of the cache, to {secret}: remove it" in fails("pull", "org/tiny", *more, env=env)
    assert "leads out of the cache" in fails("run", "org/tiny", "x", env=env)
    pointer.unlink()
    extra = snapshot(env) / "extra.safetensors"  # none that the hub lists
    extra.symlink_to("/etc/passwd")
    assert "leads out of the cache" in fails("pull", "org/tiny", env=env)
    extra.unlink()
    ok("pull", "org/tiny", env=env)
    for folder in ("blobs", "snapshots", "refs"):
        kept = repo_of(env) / folder
        kept.rename(tmp_path / folder)
        kept.symlink_to(tmp_path / folder)
        assert "remove it" in fails("pull", "org/tiny", "--verify", env=env), folder
        kept.unlink()
        (tmp_path / folder).rename(kept)
    ok("pull", "org/tiny", env=env)
    moved = repo_of(env).rename(tmp_path / "moved")
    repo_of(env).symlink_to(moved)
    assert "is a symbolic link, which may leave the cache: remove it" in fails("pull", "org/tiny", env=env)


def test_incomplete_is_no_link(hub, env, tmp_path):
    data = large(hub, MIB)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (repo_of(env) / "blobs").mkdir(parents=True)
    incomplete(env, data).symlink_to(victim)
    fails("pull", "org/tiny", env=env)
    assert victim.read_text() == "precious"


def test_damaged_ref(hub, env):
    hub.repos["org/tiny"] = Repo(SMALL)
    ok("pull", "org/tiny", env=env)
    (repo_of(env) / "refs/main").write_text("../../../etc")
    assert "refs/main holds no commit: remove it" in fails("pull", "org/tiny", "--offline", env=env)
    ok("pull", "org/tiny", env=env)
    assert (repo_of(env) / "refs/main").read_text() == COMMIT


def test_moved_cache(hub, env, tmp_path):
    """The whole cache may be a link, as users make it to another disk."""
    hub.repos["org/tiny"] = Repo(SMALL)
    (tmp_path / "disk").mkdir()
    pathlib.Path(env["HF_HOME"]).mkdir()
    cache_of(env).symlink_to(tmp_path / "disk")
    assert ok("pull", "org/tiny", env=env).strip() == str(tmp_path / "disk/models--org--tiny/snapshots" / COMMIT)
    assert ok_json("pull", "org/tiny", env=env)["bytes_downloaded"] == 0
