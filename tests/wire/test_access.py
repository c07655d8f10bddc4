# SPDX-License-Identifier: Apache-2.0
"""Who may control the server, and what a configuration given over the network may name.

Web pages may not control it, by any header that a browser sends or name that it uses."""
import base64
import json
import shutil
import socket
import sys

import grpc
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException
from wire import ROOT

MODEL = ROOT / "models/classics-10m"
EVIL = "http://evil.example"
JSON = "application/json"
CONTROL = [("POST", "/v2/repository/index"), ("POST", "/v2/repository/models/simple/load"),
           ("POST", "/v2/repository/models/simple/unload"), ("GET", "/v2/logging"), ("POST", "/v2/logging"),
           ("GET", "/v2/trace/setting"), ("POST", "/v2/models/simple/trace/setting"),
           ("GET", "/v2/systemsharedmemory/status"), ("POST", "/v2/systemsharedmemory/region/r/register"),
           ("POST", "/v2/systemsharedmemory/unregister"), ("POST", "/v2/cudasharedmemory/region/r/register")]


def ask(running, method, path, body="{}", **headers):
    """Status and error text; header names with _ for -; None leaves one out."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = requests.request(method, running.url(path), data=body, headers=headers, timeout=60)
    return answer.status_code, answer.json().get("error", "") if answer.content.startswith(b"{") else ""


@pytest.fixture
def explicit(start, tmp_path):
    return start("--model-control-mode", "explicit", "--allow-client-shm=true", repositories=[tmp_path], env={"PROA_PYTHON": sys.executable})


# ---- origins and names ----


@pytest.mark.parametrize("headers", [{"Origin": EVIL}, {"Origin": "null"}, {"Origin": EVIL, "Host": "evil.example"},
                                     {"Host": "evil.example"}, {"Host": "localhost.evil.example:8000"}, {"Host": "127.0.0.1.evil.example"}])
def test_pages_of_others_do_not_reach_control(server, headers):
    for method, path in CONTROL:
        status, text = ask(server, method, path, Content_Type=JSON, **headers)
        assert status == 403, (method, path)
        assert "is not allowed on control routes" in text and "\n" not in text
    assert ask(server, "GET", "/v2/health/ready", "", **headers)[0] == 200
    assert ask(server, "GET", "/v2/models/simple", "", **headers)[0] == 200


def test_own_names_and_pages_reach_control(server):
    port = server.http.split(":")[1]
    names = ["localhost", "LOCALHOST.", "proa.localhost", "127.0.0.1", "192.0.2.7", "[::1]", socket.gethostname()]
    for name in names:
        for host in (name, f"{name}:{port}"):
            assert ask(server, "POST", "/v2/repository/index", "", Host=host) == (200, ""), host
            assert ask(server, "GET", "/v2/logging", "", Host=host, Origin=f"http://{host}") == (200, ""), host
            assert ask(server, "GET", "/v2/logging", "", Host=host, Origin=f"http://{host}1")[0] == 403, host


def test_a_page_cannot_bring_its_model(explicit, tmp_path):
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')\nclass TritonPythonModel:\n    def execute(self, requests): return []\n"
    config = {"backend": "python", "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]}],
              "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [1]}]}
    body = json.dumps({"parameters": {"config": json.dumps(config), "file:1/model.py": base64.b64encode(code.encode()).decode()}})
    load = "/v2/repository/models/x/load"
    assert ask(explicit, "POST", load, body, Origin=EVIL, Host="evil.example", Content_Type="text/plain")[0] == 403
    assert ask(explicit, "POST", load, body, Content_Type="text/plain")[0] == 415
    assert not mark.exists()
    assert ask(explicit, "POST", load, body, Content_Type=JSON) == (200, "")
    assert mark.exists()


@pytest.mark.parametrize("type_, browser, status", [
    (JSON, False, 200), ("Application/JSON; charset=utf-8", True, 200), ("text/plain", False, 415), ("text/plain", True, 415),
    ("multipart/form-data; boundary=x", False, 415), ("application/jsonx", False, 415),
    ("application/x-www-form-urlencoded", False, 200),  # libcurl's own, so of Triton's C++ client
    ("application/x-www-form-urlencoded", True, 415), (None, False, 200), (None, True, 415)])
def test_control_wants_json(server, type_, browser, status):
    headers = {"Origin": server.url("")} if browser else {}
    if type_:
        headers["Content_Type"] = type_
    got, text = ask(server, "POST", "/v2/logging", "{}", **headers)
    assert got == status
    assert status == 200 or text.startswith("the body of a control request must be application/json, got '")
    assert ask(server, "POST", "/v2/repository/index", "", **headers)[0] == 200  # no body, no type


def test_origins_and_hosts_that_are_allowed(start, tmp_path):
    running = start("--allow-origin", "https://ui.example:8443", "--allow-origin", "http://other.example", "--allow-host", "triton",
                    repositories=[tmp_path])
    for headers, status in [({"Origin": "https://ui.example:8443"}, 200), ({"Origin": "https://UI.example:8443", "Host": "ui.example"}, 200),
                            ({"Origin": "https://ui.example"}, 403), ({"Origin": "http://ui.example:8443"}, 403), ({"Host": "other.example:80"}, 200),
                            ({"Host": "triton:8000"}, 200), ({"Host": "triton2"}, 403), ({"Host": "triton", "Origin": EVIL}, 403)]:
        assert ask(running, "GET", "/v2/logging", "", **headers)[0] == status, headers
    running = start("--allow-origin", "*", "--allow-host", "*", repositories=[tmp_path])
    assert ask(running, "POST", "/v2/logging", "{}", Origin=EVIL, Host="evil.example", Content_Type=JSON)[0] == 200


def test_tritonclient_goes_on_working(explicit):
    config = json.dumps({"backend": "identity", "max_batch_size": 1, "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}]})
    with triton_http.InferenceServerClient(explicit.http) as http, triton_grpc.InferenceServerClient(explicit.grpc) as rpc:
        for client, info in ((http, True), (rpc, False)):
            client.load_model("m", config=config, files={"file:1/model.bin": b"x"})
            client.unload_model("m")
            client.update_log_settings({"log_info": info})
            client.get_trace_settings()
            client.unregister_system_shared_memory()
            client.get_model_repository_index()


def test_origin_of_grpc_calls(explicit):
    with triton_grpc.InferenceServerClient(explicit.grpc) as client:
        for call in (client.get_log_settings, client.get_trace_settings, client.get_model_repository_index,
                     client.get_system_shared_memory_status, lambda headers: client.load_model("simple", headers=headers)):
            with pytest.raises(InferenceServerException, match="Origin 'http://evil.example' is not allowed") as refused:
                call(headers={"origin": EVIL})
            assert refused.value.status() == str(grpc.StatusCode.PERMISSION_DENIED)
        assert client.is_server_live(headers={"origin": EVIL})


# ---- what is said at the start ----


@pytest.mark.parametrize("options, open_ports", [
    ([], ["HTTP", "gRPC"]), (["--api-key", "k"], []), (["--http-address", "127.0.0.1"], ["gRPC"]),
    (["--http-address", "localhost", "--grpc-address", "127.0.0.1"], []), (["--allow-http=false"], ["gRPC"]),
    (["--http-restricted-api", "model-repository:admin=x", "--grpc-restricted-protocol", "model-repository:admin=x"], []),
    (["--http-restricted-api", "inference:admin=x"], ["HTTP", "gRPC"]), (["--model-control-mode", "none"], [])])
def test_open_control_is_said_loudly(start, tmp_path, options, open_ports):
    running = start("--model-control-mode", "explicit", *options, repositories=[tmp_path])
    for face in ("HTTP", "gRPC"):
        said = f"ANYBODY WHO REACHES THE {face} PORT AT" in running.log_text()
        assert said == (face in open_ports)


# ---- names with a NUL ----


@pytest.mark.parametrize("method, path", [
    ("POST", "/v2/models/simple%00/infer"), ("GET", "/v2/models/%00"), ("GET", "/v2/models/simple%00x/versions/1/config"),
    ("GET", "/v2/models/simple%00/ready"), ("POST", "/v2/repository/models/simple%00/load"), ("POST", "/v2/repository/%00/index"),
    ("GET", "/v2/systemsharedmemory/region/a%00b/status"), ("POST", "/v2/models/simple%00/trace/setting")])
def test_nul_in_a_path(server, method, path):
    assert ask(server, method, path) == (400, "a name in the path has a NUL byte (%00)")


def test_nul_in_bodies(explicit):
    for parameters in ({"config": json.dumps({**PLAIN, "name": "m\0x"})}, {"config\0x": json.dumps(PLAIN)}, {"config": "{}\0"}):
        body = json.dumps({"parameters": {**parameters, "file:1/x": "aGk="}})
        status, text = ask(explicit, "POST", "/v2/repository/models/m/load", body, Content_Type=JSON)
        assert status in (400, 500) and "NUL" in text, text
    key = {"key": "/proa-test\0x", "offset": 0, "byte_size": 1}
    status, text = ask(explicit, "POST", "/v2/systemsharedmemory/region/r/register", json.dumps(key), Content_Type=JSON)
    assert status == 400 and "NUL" in text


def test_nul_in_names_of_openai(start):
    running = start(repositories=[MODEL])
    name = MODEL.name + "\0x"
    for path, key in (("completions", "prompt"), ("chat/completions", "messages"), ("embeddings", "input")):
        answer = requests.post(running.url(f"/v1/{path}"), json={"model": name, key: "x"}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Invalid 'model': the name has a NUL byte.")
    assert requests.get(running.url(f"/v1/models/{MODEL.name}%00x"), timeout=60).status_code == 404
    assert requests.get(running.url(f"/v1/models/{MODEL.name}"), timeout=60).status_code == 200


def test_nul_in_names_over_grpc(server):
    name = "simple\0x"
    service = triton_grpc.service_pb2
    with grpc.insecure_channel(server.grpc) as channel:
        stub = triton_grpc.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        settings = service.TraceSettingRequest(model_name="simple", settings={"trace_rate\0": service.TraceSettingRequest.SettingValue(value=["1"])})
        for call, request in [(stub.ModelInfer, service.ModelInferRequest(model_name=name)), (stub.ModelReady, service.ModelReadyRequest(name=name)),
                              (stub.ModelMetadata, service.ModelMetadataRequest(name=name)), (stub.ModelConfig, service.ModelConfigRequest(name=name)),
                              (stub.ModelStatistics, service.ModelStatisticsRequest(name=name)), (stub.TraceSetting, settings),
                              (stub.RepositoryModelLoad, service.RepositoryModelLoadRequest(model_name=name)),
                              (stub.RepositoryModelUnload, service.RepositoryModelUnloadRequest(model_name=name)),
                              (stub.SystemSharedMemoryStatus, service.SystemSharedMemoryStatusRequest(name=name))]:
            with pytest.raises(grpc.RpcError) as refused:
                call(request)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, call
            assert "has a NUL byte" in refused.value.details()
        errors = [answer.error_message for answer in stub.ModelStreamInfer(iter([service.ModelInferRequest(model_name=name)]))]
        assert errors == ["the model's name has a NUL byte"]


# ---- names and paths of configurations that come with a load ----


def load(running, name, config, **files):
    parameters = {"config": json.dumps(config)} if config else {}
    parameters.update({f"file:{path}": base64.b64encode(content).decode() for path, content in files.items()})
    return ask(running, "POST", f"/v2/repository/models/{name}/load", json.dumps({"parameters": parameters}), Content_Type=JSON)


def tensors(*names):
    return [{"name": name, "data_type": "TYPE_FP32", "dims": [1]} for name in names]


PLAIN = {"backend": "identity", "max_batch_size": 1, "input": tensors("INPUT0"), "output": tensors("OUTPUT0")}
CODE = "open({!r}, 'w')\nclass TritonPythonModel:\n    def execute(self, requests): return []\n"


@pytest.fixture
def outside(tmp_path):
    """A repository, and beside it what is not to be reached: a Python model, weights, a template; gives (repository, mark)."""
    evil, mark = tmp_path / "outside/evil/1", tmp_path / "ran"
    evil.mkdir(parents=True)
    (tmp_path / "repository").mkdir()
    (evil / "model.py").write_text(CODE.format(str(mark)))
    (evil.parent / "config.pbtxt").write_text('backend: "python" input [{name: "A" data_type: TYPE_FP32 dims: [1]}] '
                                              'output [{name: "B" data_type: TYPE_FP32 dims: [1]}]')
    (evil / "chat.jinja").write_text("{{ messages }}")
    shutil.copytree(MODEL, tmp_path / "outside/weights")
    yield tmp_path / "repository", mark
    assert not mark.exists()


def test_members_of_ensembles_are_names(start, outside):
    repository, _ = outside
    running = start("--model-control-mode", "explicit", repositories=[repository])
    for name in ("../outside/evil", "..", ".", "/", "a/../../outside/evil", " "):
        step = {"model_name": name, "model_version": -1, "input_map": {"A": "A"}, "output_map": {"B": "B"}}
        config = {"platform": "ensemble", "input": tensors("A"), "output": tensors("B"), "ensemble_scheduling": {"step": [step]}}
        status, text = load(running, "e", config, **{"1/x": b"hi"})
        assert status == 500 and "step 0 of ensemble 'e':" in text, text
    assert requests.post(running.url("/v2/repository/index"), timeout=60).json() == []
    (repository / "e").mkdir()  # the same from a file
    (repository / "e/config.pbtxt").write_text(
        'platform: "ensemble" input [{name: "A" data_type: TYPE_FP32 dims: [1]}] output [{name: "B" data_type: TYPE_FP32 dims: [1]}] '
        'ensemble_scheduling { step [{ model_name: "../outside/evil" model_version: -1 '
        'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } }] }')
    (repository / "e/1").mkdir()
    status, text = load(running, "e", None)
    assert status == 500 and "model name must not contain path traversal characters" in text


def files_that_climb():
    path = "../../outside/evil/1/model.py"
    labels = [{**tensors("OUTPUT0")[0], "label_filename": path}]
    warm = {"data_type": "TYPE_FP32", "dims": [1], "input_data_file": path}
    state = {"input_name": "S", "output_name": "S", "data_type": "TYPE_FP32", "dims": [1],
             "initial_state": [{"name": "s", "data_type": "TYPE_FP32", "dims": [1], "data_file": path}]}
    steps = {"steps": {"string_value": f"OUTPUT0 = text_features(INPUT0, lexicon={path});"}}
    text = {"name": "INPUT0", "data_type": "TYPE_STRING", "dims": [1]}
    yield {**PLAIN, "backend": "python", "default_model_filename": path}, "default_model_filename"
    yield {**PLAIN, "backend": "fil", "default_model_filename": "1/.././../x"}, "default_model_filename"
    yield {**PLAIN, "output": labels}, "label_filename"
    yield {**PLAIN, "model_warmup": [{"name": "w", "batch_size": 1, "inputs": {"INPUT0": warm}}]}, "input_data_file"
    yield {**PLAIN, "sequence_batching": {"state": [state]}}, "data_file"
    yield {**PLAIN, "backend": "transform", "input": [text], "parameters": steps}, "file"


def test_names_of_files_stay_in_the_folder(start, outside):
    running = start("--model-control-mode", "explicit", repositories=[outside[0]])
    for config, field in files_that_climb():
        status, text = load(running, "m", config, **{"1/x": b"hi"})
        assert status in (400, 500), config
        assert f"{field} '" in text and "leaves the model's folder" in text, text


def folders_outside(folder):
    chat = {"model_path": {"string_value": str(MODEL)}, "chat_template": {"string_value": f"{folder}/evil/1/chat.jinja"}}
    for path in (f"{folder}/weights", "../../outside/weights", "../repository/../outside/weights"):
        value = {"string_value": path}
        yield {"backend": "engine", "parameters": {"model_path": value}}
        yield {"backend": "fastertransformer", "parameters": {"model_checkpoint_path": value}}
        yield {"backend": "tensorrtllm", "parameters": {"gpt_model_path": value}}
        yield {"backend": "tokenizer", "parameters": {"tokenizer_dir": value}}
        yield {"backend": "detokenizer", "parameters": {"tokenizer_path": value}}
        yield {**PLAIN, "backend": "python", "parameters": {"EXECUTION_ENV_PATH": value}}
    yield {"backend": "engine", "parameters": chat}
    up = {"string_value": "$$TRITON_MODEL_DIRECTORY/../../outside/weights"}
    yield {**PLAIN, "backend": "python", "parameters": {"EXECUTION_ENV_PATH": up}}


def test_paths_stay_in_the_repository(start, outside):
    repository, mark = outside
    shutil.copytree(MODEL, repository / "m/1")
    running = start("--model-control-mode", "explicit", repositories=[repository, MODEL.parent])
    wanted = [config for config in folders_outside(repository.parent / "outside")]
    for config in wanted:
        status, text = load(running, "m", config, **{"1/model.py": CODE.format(str(mark)).encode()})
        assert status == 400 and "is not in the repository" in text, (config, text)
    inside = {"backend": "engine", "parameters": {"model_path": {"string_value": str(repository / "m/1")}, "chat_template": {"string_value": "chatml"}}}
    assert load(running, "m", inside) == (200, "")
    inside["parameters"]["model_path"] = {"string_value": "../m/1"}
    assert load(running, "m", inside) == (200, "")
    assert load(running, "other", {"backend": "engine", "parameters": {"model_path": {"string_value": str(MODEL)}}}, **{"1/x": b"hi"}) == (200, "")


def test_external_paths_are_for_who_allows_them(start, outside):
    repository, _ = outside
    weights = repository.parent / "outside/weights"
    config = {"backend": "engine", "parameters": {"model_path": {"string_value": str(weights)}}}
    running = start("--model-control-mode", "explicit", "--allow-external-paths=true", repositories=[repository])
    assert load(running, "m", config, **{"1/x": b"hi"}) == (200, "")
    (repository / "disk/1").mkdir(parents=True)  # a configuration of the repository is its owner's
    (repository / "disk/config.pbtxt").write_text(f'backend: "engine" parameters {{ key: "model_path" value {{ string_value: "{weights}" }} }}')
    running = start("--model-control-mode", "explicit", "--load-model", "disk", repositories=[repository])
    assert load(running, "disk", None) == (200, "")
