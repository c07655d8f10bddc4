# SPDX-License-Identifier: Apache-2.0
"""Model repositories in object stores: S3, Google's, Azure's. The stores of object_stores.py check signatures; moto, where it is
installed, is an S3 that somebody else wrote."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import object_stores
import pytest
import requests
import tritonclient.http as http
from wire import PROA, REPOSITORY, ROOT, Server, wait_until

LM = ROOT / "models/classics-10m"
CREDENTIALS = ("AWS_", "GOOGLE_", "AZURE_", "IDENTITY_", "GCE_", "NO_GCE_CHECK", "TRITON_", "CLOUDSDK_", "STORAGE_EMULATOR_HOST", "PROA_CLOUD_CACHE")


@pytest.fixture
def env(tmp_path):
    """An environment without credentials of the caller's, and with a cache of its own."""
    names = [name for name in os.environ if name.startswith(CREDENTIALS)]
    saved = {name: os.environ.pop(name) for name in names}
    yield {"HOME": str(tmp_path), "PROA_CLOUD_CACHE": str(tmp_path / "cache"), "no_proxy": "127.0.0.1", "AWS_EC2_METADATA_DISABLED": "true",
           "NO_GCE_CHECK": "true", "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:9"}
    os.environ.update(saved)


@pytest.fixture
def s3(env):
    with object_stores.serve("s3") as store:
        store.put_folder(REPOSITORY / "identity_fp32", "repo/identity_fp32/")
        store.put_folder(REPOSITORY / "simple", "repo/simple/")
        store.objects.setdefault("repo/simple/1/", b"")
        store.objects.setdefault("repo/identity_fp32/1/", b"")
        env.update(AWS_ACCESS_KEY_ID=object_stores.KEY_ID, AWS_SECRET_ACCESS_KEY=object_stores.SECRET, AWS_DEFAULT_REGION="eu-west-1")
        yield store


def address(store, path="repo"):
    return {"s3": f"s3://http://{store.host}/models", "gs": "gs://models", "as": f"as://{object_stores.ACCOUNT}/models"}[store.kind] + "/" + path


def infer(server, model="identity_fp32", version=""):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = http.InferInput("INPUT0", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    with http.InferenceServerClient(server.http) as client:
        got = client.infer(model, [tensor], model_version=version).as_numpy("OUTPUT0")
    assert np.array_equal(got, array)


def fails(*repositories, env, options=()):
    """`proa serve` ends; returns its log, in which no secret is."""
    run = subprocess.run([str(PROA), "serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0", *options,
                          *(x for r in repositories for x in ("--model-repository", r))],
                         capture_output=True, text=True, timeout=60, env={**os.environ, **env})
    assert run.returncode == 1, run.stderr
    check_secrets(run.stderr + run.stdout)
    return run.stderr


def check_secrets(text):
    for secret in (object_stores.SECRET, object_stores.SESSION, object_stores.ACCOUNT_KEY, "ya29.token", "sas+secret", "sas%2Bsecret",
                   "PRIVATE KEY"):
        assert secret not in text


def cached(env, what):
    return sorted(p.name for p in pathlib.Path(env["PROA_CLOUD_CACHE"]).glob(f"*/{what}/*") if p.name[0] != ".")


# ---- S3 ----


def test_serves_a_bucket(s3, env):
    s3.page = 2  # so that the list has several pages
    with Server(repositories=[address(s3)], env=env) as server:
        assert {(m["name"], m["state"]) for m in server.ready["models"]} == {("identity_fp32", "READY"), ("simple", "READY")}
        infer(server)
        check_secrets(server.log_text())
    assert len(s3.seen("list-type=2")) >= 3
    assert len(cached(env, "snapshots")) == 2 and cached(env, "views") == []
    asked = len(s3.requests)
    with Server(repositories=[address(s3)], env=env) as server:  # what is in the cache is not downloaded again
        infer(server)
    assert all("list-type" in r["path"] for r in s3.requests[asked:])


def test_session_token_and_profile(s3, env, tmp_path):
    s3.session = object_stores.SESSION
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        del env[name]
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = wrong\n\n# a comment\n[work]\naws_access_key_id=" + object_stores.KEY_ID +
        "\naws_secret_access_key = " + object_stores.SECRET + "\naws_session_token = " + object_stores.SESSION + "\n")
    (tmp_path / ".aws/config").write_text("[profile work]\nregion = eu-central-1\n")
    with Server(repositories=[address(s3)], env={**env, "AWS_PROFILE": "work"}) as server:
        infer(server)
    assert "/eu-central-1/s3/" in s3.requests[0]["headers"]["Authorization"]
    assert "has the profile 'play'" in fails(address(s3), env={**env, "AWS_PROFILE": "play"})


def test_credential_file_of_triton(s3, env, tmp_path):
    path = tmp_path / "credentials.json"
    good = {"key_id": object_stores.KEY_ID, "secret_key": object_stores.SECRET, "region": "ap-south-1", "session_token": "", "profile": ""}
    path.write_text(json.dumps({"s3": {"": {"key_id": "wrong", "secret_key": "wrong"}, address(s3)[:-3]: good}}))
    with Server(repositories=[address(s3)], env={**env, "AWS_SECRET_ACCESS_KEY": "ignored", "TRITON_CLOUD_CREDENTIAL_PATH": str(path)}) as server:
        infer(server)
    assert "/ap-south-1/s3/" in s3.requests[0]["headers"]["Authorization"]


def test_explicit_control(s3, env):
    with Server("--model-control-mode=explicit", repositories=[address(s3)], env=env) as server:
        assert not s3.seen("config.pbtxt")  # nothing is downloaded before it is needed
        with http.InferenceServerClient(server.http) as client:
            assert {m["name"] for m in client.get_model_repository_index()} == {"identity_fp32", "simple"}
            client.load_model("identity_fp32")
            infer(server)
            client.unload_model("identity_fp32")
            assert not client.is_model_ready("identity_fp32")
            s3.objects["repo/identity_fp32/2/"] = b""
            client.load_model("identity_fp32")
            infer(server, version="2")
            s3.put_folder(REPOSITORY / "identity_int32", "repo/identity_int32/")  # came after the start
            s3.objects.setdefault("repo/identity_int32/1/", b"")
            client.load_model("identity_int32")
            with pytest.raises(Exception, match="failed to poll"):
                client.load_model("absent")
            for name in ("..", "a/b", ".hidden"):
                answer = requests.post(server.url(f"/v2/repository/models/{requests.utils.quote(name, safe='')}/load"), timeout=30)
                assert answer.status_code != 200


def test_poll(s3, env):
    with Server("--model-control-mode=poll", "--repository-poll-secs=1", repositories=[address(s3)], env=env) as server:
        infer(server)
        s3.objects["repo/identity_fp32/3/"] = b""
        with http.InferenceServerClient(server.http) as client:
            wait_until(lambda: client.is_model_ready("identity_fp32", "3"), 15)
            s3.fault("list-type=2", count=1, status=403)  # a poll that fails changes nothing
            wait_until(lambda: "answers 403" in server.log_text(), 15)
            infer(server)
            config = s3.objects["repo/identity_fp32/config.pbtxt"]
            s3.objects["repo/identity_fp32/config.pbtxt"] = config.replace(b"max_batch_size: 64", b"max_batch_size: 32")
            wait_until(lambda: client.get_model_config("identity_fp32")["max_batch_size"] == 32, 15)
            for key in [k for k in s3.objects if k.startswith("repo/simple/")]:
                del s3.objects[key]
            wait_until(lambda: not client.is_model_ready("simple"), 15)
            infer(server)


def test_model_in_a_bucket(s3, env):
    """`proa run` and `proa serve` of an address that is a model itself."""
    s3.put_folder(LM, "hf/lm/")
    s3.page = 3
    local = subprocess.run([PROA, "run", LM, "It was", "--max-tokens=8"], capture_output=True, text=True, check=True).stdout
    run = subprocess.run([PROA, "run", address(s3, "hf/lm"), "It was", "--max-tokens=8"], capture_output=True, text=True,
                         env={**os.environ, **env})
    assert (run.returncode, run.stdout) == (0, local), run.stderr
    with Server(address(s3, "hf/lm/"), repositories=[], env=env) as server:
        assert [m["name"] for m in server.ready["models"]] == ["lm"]
    run = subprocess.run([PROA, "run", address(s3), "It was"], capture_output=True, text=True, env={**os.environ, **env})
    assert run.returncode == 1 and "has no config.json" in run.stderr


# ---- faults ----


def test_repeats_and_resumes(s3, env):
    s3.put_folder(LM, "lm/")
    weights = next(k for k in s3.objects if k.endswith(".safetensors"))
    s3.fault("list-type=2", status=503, headers={"Retry_After": "0"})
    s3.fault(weights, cut=100000)
    s3.fault("tokenizer.json", status=429, headers={"Retry_After": "0"})
    run = subprocess.run([PROA, "run", address(s3, "lm"), "It was", "--max-tokens=2"], capture_output=True, text=True,
                         env={**os.environ, **env})
    assert run.returncode == 0, run.stderr
    first, second = [r["headers"]["Range"] for r in s3.seen(weights)][:2]
    assert first.startswith("bytes=0-") and int(second[6:].split("-")[0]) > 0


def test_kms_etags_are_no_checksums(s3, env):
    s3.kms = True
    with Server(repositories=[address(s3)], env=env) as server:
        infer(server)


def test_refusals(s3, env):
    assert "403 Forbidden: SignatureDoesNotMatch: the signature is wrong" in fails(address(s3), env={**env, "AWS_SECRET_ACCESS_KEY": "wrong"})
    bare = {k: v for k, v in env.items() if not k.startswith("AWS_") or k == "AWS_EC2_METADATA_DISABLED"}
    assert "no credentials were found" in fails(address(s3), env=bare)
    assert "go together" in fails(address(s3), env={**bare, "AWS_ACCESS_KEY_ID": "x"})
    assert "has no 'nobucket': NoSuchBucket" in fails(f"s3://http://{s3.host}/nobucket/x", env=env)
    assert "has no objects" in fails(address(s3, "empty"), env=env)
    assert "'.' or '..'" in fails(address(s3, "a/../b"), env=env)
    assert "is not of the form s3://" in fails("s3://", env=env)
    s3.fault("list-type=2", status=307, headers={"Location": "ftp://elsewhere/"})
    assert "which is not followed" in fails(address(s3), env=env)
    s3.anonymous = True
    with Server(repositories=[address(s3)], env=bare) as server:
        infer(server)


def test_credentials_stay_at_the_endpoint(s3, env):
    """A redirect to another host is followed without the signature."""
    with object_stores.serve("s3") as other:
        other.anonymous, other.objects = True, s3.objects
        s3.fault("repo/identity_fp32/config.pbtxt", status=307, headers={"Location": f"http://{other.host}/models/repo/identity_fp32/config.pbtxt"})
        with Server(repositories=[address(s3)], env=env) as server:
            infer(server)
        assert other.requests and all("Authorization" not in r["headers"] and "x-amz-date" not in r["headers"] for r in other.requests)


@pytest.mark.parametrize("key", ["repo/identity_fp32/../../../../escaped", "repo/identity_fp32//x", "repo/identity_fp32/1/..", "repo/identity_fp32/a\nb",
                                 "repo/identity_fp32/config.pbtxt/x"])
def test_keys_that_climb(s3, env, tmp_path, key):
    s3.objects[key] = b"evil"
    log = fails(address(s3), env=env)
    assert "is no path inside of its folder" in log or "both a file and a folder" in log
    assert not list(tmp_path.rglob("escaped")) and len(cached(env, "snapshots")) == 1  # the other model's


def test_names_that_climb_are_no_models(s3, env, tmp_path):
    s3.objects["repo/../../escaped/config.pbtxt"] = s3.objects["repo/.hidden/config.pbtxt"] = b"evil"
    with Server(repositories=[address(s3)], env=env) as server:
        assert {m["name"] for m in server.ready["models"]} == {"identity_fp32", "simple"}
    assert not list(tmp_path.rglob("escaped")) and not list(tmp_path.rglob(".hidden"))


def s3_list(rows, more="false", token=""):
    return (f"<ListBucketResult>{rows}<IsTruncated>{more}</IsTruncated>{token}</ListBucketResult>").encode()


ROW = "<Contents><Key>repo/m/config.pbtxt</Key><Size>1</Size><ETag>&quot;x&quot;</ETag></Contents>"


@pytest.mark.parametrize("text,says", [
    (b"<ListBucketResult><Contents>", "line 1: no element found"),
    (b"", "no element found"),
    (b"<html/>", "is no list of objects"),
    (b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><ListBucketResult>&b;</ListBucketResult>', "it has a document type"),
    (s3_list(ROW + ROW), "names 'm/config.pbtxt' twice"),
    (s3_list(ROW.replace("repo/", "other/")), "that was not requested"),
    (s3_list(ROW.replace(">1<", ">-1<")), "names no size"),
    (s3_list(ROW.replace(">1<", ">99999999999999999999<")), "names no size"),
    (s3_list(ROW.replace("x&quot;", "&quot;")), "names no etag"),
    (s3_list(ROW, "true"), "names no token for its next page"),
    (s3_list("<Contents/>" * 10001), "a page has more than 10000 objects"),
    (b"<ListBucketResult>" + b"<a>" * 200 + b"</a>" * 200 + b"</ListBucketResult>", "nested too deep"),
    (b"<ListBucketResult><Key>" + b"k" * 10000 + b"</Key></ListBucketResult>", "more than 8192 bytes"),
])
def test_lists_that_lie(s3, env, text, says):
    s3.fault("list-type=2", text=text)
    assert says in fails(address(s3), env=env)
    assert cached(env, "snapshots") == []


def test_list_without_end(s3, env):
    token = "<NextContinuationToken>again</NextContinuationToken>"
    s3.fault("list-type=2", count=10**6, text=s3_list("", "true", token))
    assert "the same page as its next one" in fails(address(s3), env=env)


def test_files_that_lie(s3, env):
    s3.fault("repo/identity_fp32/config.pbtxt", wrong=True)
    assert "config.pbtxt: its md5 is " in fails(address(s3), env=env)
    s3.fault("repo/identity_fp32/config.pbtxt", status=404)
    assert "config.pbtxt: http://127.0.0.1" in fails(address(s3), env=env)
    s3.fault("repo/identity_fp32/config.pbtxt", status=412)
    assert "changed while it was downloaded" in fails(address(s3), env=env)
    assert cached(env, "views") == []
    with Server("--exit-on-error=false", repositories=[address(s3)], env=env) as server:
        s3.fault("identity_fp32", status=403)
        infer(server)


def test_cache_is_bounded(s3, env):
    """Snapshots that no server needs make room; what does not fit is refused before it is downloaded."""
    for key in [k for k in s3.objects if "/simple/" in k]:
        del s3.objects[key]
    s3.objects["repo/identity_fp32/1/data"] = b"0" * 10000
    assert "--cloud-cache-size is 9000" in fails(address(s3), env=env, options=["--cloud-cache-size=9000"])
    assert not s3.seen("/data")
    with Server("--model-control-mode=explicit", "--cloud-cache-size=35000", repositories=[address(s3)], env=env) as server:
        with http.InferenceServerClient(server.http) as client:
            for i in range(6):
                s3.objects["repo/identity_fp32/1/data"] = b"%d" % i * 10000
                client.load_model("identity_fp32")
                infer(server)
                assert 2 <= len(cached(env, "blobs")) <= 5
                assert len(cached(env, "snapshots")) <= 3


# ---- moto ----


@pytest.fixture
def moto(env):
    pytest.importorskip("moto.server", reason="moto is not installed")
    boto3 = pytest.importorskip("boto3")
    code = ("from moto.server import DomainDispatcherApplication as A, create_backend_app as c\n"
            "from werkzeug.serving import make_server\n"
            "s = make_server('127.0.0.1', 0, A(c), True)\nprint(s.port, flush=True)\ns.serve_forever()")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(process.stdout.readline())
    env.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="key", aws_secret_access_key="secret",
                          region_name="us-east-1")
    client.create_bucket(Bucket="models")
    yield client, f"s3://http://127.0.0.1:{port}/models"
    process.kill()
    process.wait()


def test_moto(moto, env):
    client, bucket = moto
    for name in ("config.pbtxt",):
        client.upload_file(str(REPOSITORY / "identity_fp32" / name), "models", f"a b/ü/identity_fp32/{name}")
    client.put_object(Bucket="models", Key="a b/ü/identity_fp32/1/", Body=b"")
    for i in range(20):
        client.put_object(Bucket="models", Key=f"a b/ü/identity_fp32/1/{i}+%41 &.txt", Body=b"%d" % i)
    with Server("--model-control-mode=poll", "--repository-poll-secs=1", repositories=[bucket + "/a b/ü"], env=env) as server:
        infer(server)
        client.put_object(Bucket="models", Key="a b/ü/identity_fp32/7/", Body=b"")
        with http.InferenceServerClient(server.http) as poll:
            wait_until(lambda: poll.is_model_ready("identity_fp32", "7"), 15)
    assert len(list(pathlib.Path(env["PROA_CLOUD_CACHE"]).glob("*/snapshots/*/1/*"))) >= 20


# ---- Azure and Google ----


@pytest.fixture
def azure(s3, env):
    with object_stores.serve("as") as store:
        store.objects = s3.objects
        env.update(AZURE_STORAGE_SERVICE_ENDPOINT=f"http://{store.host}", AZURE_STORAGE_ACCOUNT=object_stores.ACCOUNT,
                   AZURE_STORAGE_KEY=object_stores.ACCOUNT_KEY)
        yield store


def test_azure_key(azure, env):
    azure.page = 2
    azure.put_folder(LM, "hf/l m/")
    with Server(repositories=[address(azure)], env=env) as server:
        assert {m["name"] for m in server.ready["models"]} == {"identity_fp32", "simple"}
        infer(server)
        check_secrets(server.log_text())
    run = subprocess.run([PROA, "run", address(azure, "hf/l m"), "It was", "--max-tokens=2"], capture_output=True, text=True,
                         env={**os.environ, **env})
    assert run.returncode == 0, run.stderr


def test_azure_sas_and_refusals(azure, env, tmp_path):
    bare = {k: v for k, v in env.items() if k != "AZURE_STORAGE_KEY"}
    with Server(repositories=[address(azure)], env={**bare, "AZURE_STORAGE_SAS_TOKEN": "?sv=2022-11-02&sig=sas%2Bsecret%2F%3D"}) as server:
        infer(server)
        check_secrets(server.log_text())
    wrong = object_stores.base64.b64encode(b"wrong").decode()
    assert "AuthenticationFailed: the signature is wrong" in fails(address(azure), env={**env, "AZURE_STORAGE_KEY": wrong})
    assert "is not base64" in fails(address(azure), env={**env, "AZURE_STORAGE_KEY": "!"})
    assert "no credentials were found" in fails(address(azure), env=bare)
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"as": {"": {"account_str": object_stores.ACCOUNT, "account_key": object_stores.ACCOUNT_KEY}}}))
    with Server(repositories=[address(azure)], env={**bare, "TRITON_CLOUD_CREDENTIAL_PATH": str(path)}) as server:
        infer(server)
    assert "'ftp://x' is not of the form" in fails(address(azure), env={**env, "AZURE_STORAGE_SERVICE_ENDPOINT": "ftp://x"})


@pytest.fixture
def google(s3, env, tmp_path):
    key, public, file = tmp_path / "key.pem", tmp_path / "public.pem", tmp_path / "account.json"
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    with object_stores.serve("gs") as store:
        store.objects, store.public_key = s3.objects, str(public)
        file.write_text(json.dumps({"type": "service_account", "client_email": "robot@project.iam", "private_key": key.read_text(),
                                    "token_uri": f"http://{store.host}/token"}))
        env.update(STORAGE_EMULATOR_HOST=store.host, GOOGLE_APPLICATION_CREDENTIALS=str(file))
        yield store


def test_google_service_account(google, env):
    google.page = 2
    google.put_folder(LM, "hf/l m/")
    with Server(repositories=[address(google)], env=env) as server:
        assert {m["name"] for m in server.ready["models"]} == {"identity_fp32", "simple"}
        infer(server)
        check_secrets(server.log_text())
    assert len(google.seen("/token")) == 1
    run = subprocess.run([PROA, "run", address(google, "hf/l m"), "It was", "--max-tokens=2"], capture_output=True, text=True,
                         env={**os.environ, **env})
    assert run.returncode == 0, run.stderr


def test_google_tokens_and_refusals(google, env, tmp_path):
    bare = {k: v for k, v in env.items() if k != "GOOGLE_APPLICATION_CREDENTIALS"}
    with Server(repositories=[address(google)], env={**bare, "GOOGLE_OAUTH_ACCESS_TOKEN": "ya29.token"}) as server:
        infer(server)
        check_secrets(server.log_text())
    assert "403 Forbidden: no token" in fails(address(google), env={**bare, "GOOGLE_OAUTH_ACCESS_TOKEN": "other"})
    file = json.loads(pathlib.Path(env["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    wrong = tmp_path / "wrong.json"
    for change, says in (({"private_key": "no key"}, "the private key of 'robot@project.iam' cannot be read"),
                         ({"client_email": "other@project.iam"}, "400 Bad Request: invalid_grant: the claim is wrong"),
                         ({"type": "impersonated_service_account"}, "is of type 'impersonated_service_account'"),
                         ({"token_uri": ""}, "must have client_email, private_key and token_uri")):
        wrong.write_text(json.dumps({**file, **change}))
        assert says in fails(address(google), env={**env, "GOOGLE_APPLICATION_CREDENTIALS": str(wrong)})
