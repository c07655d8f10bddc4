# SPDX-License-Identifier: Apache-2.0
"""The contract of Triton's Python backend: what a model.py may do and what clients then see. Models: python_models.py, examples/python."""
import json
import pathlib
import queue
import shutil
import sys
import tarfile
import threading

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException
from wire import REPOSITORY, ROOT, VALUES, Server, metric, shared_files, values_of, wait_until
import python_models

EXAMPLES = ROOT / "examples/python"
NUMPY = pathlib.Path(np.__file__).resolve().parents[1]  # the site-packages with numpy



def tensors(**arrays):
    made = []
    for name, array in arrays.items():
        array = np.asarray(array)
        kind = {"float64": "FP64", "float32": "FP32", "float16": "FP16", "object": "BYTES", "bool": "BOOL"}.get(array.dtype.name) or array.dtype.name.upper()
        tensor = http.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


def texts(*words):
    return np.array(words, dtype=np.object_)


def floats(*values):
    return np.array(values, np.float32)


def ints(*values):
    return np.array(values, np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("python") / "models"
    path.mkdir()
    python_models.write_all(path)
    for one in [*EXAMPLES.iterdir(), REPOSITORY / "repeat_int32"]:
        if one.is_dir():
            shutil.copytree(one, path / one.name)
    return path


@pytest.fixture(scope="module")
def running(folder):
    options = ["--model-control-mode=explicit", "--log-verbose=1", "--load-model=*"]
    with Server(*options, repositories=[folder], env={"PROA_PYTHON": sys.executable}) as server:
        yield server


@pytest.fixture(scope="module")
def client(running):
    with http.InferenceServerClient(running.http, concurrency=8) as one:
        yield one


@pytest.fixture
def stream(running):
    """ask(model, array, ...) gives the answers of a decoupled model up to its final one."""
    client, answers = grpc.InferenceServerClient(running.grpc), queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))

    def ask(model, name, array, output):
        tensor = grpc.InferInput(name, list(array.shape), "INT32")
        tensor.set_data_from_numpy(array)
        client.async_stream_infer(model, [tensor], enable_empty_final_response=True)
        values = []
        while True:
            result, error = answers.get(timeout=20)
            if error is not None:
                return values, str(error)
            array = result.as_numpy(output)
            if array is not None:
                values.append(int(array[0]))
            if result.get_response().parameters["triton_final_response"].bool_param:
                return values, None

    yield ask
    client.stop_stream(cancel_requests=True)
    client.close()


def ask(client, model, output="OUT", options=None, **arrays):
    return client.infer(model, tensors(**arrays), **(options or {})).as_numpy(output)


def failure(client, model, **arrays):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, tensors(**arrays))
    return caught.value.message()


# ---- a model and its arguments ----


def test_arguments(client, folder):
    said = [one.decode() for one in ask(client, "args", IN=ints(1))]
    assert said == ["args", "1", "CPU", "0", "args", "TYPE_INT32", "v", str(folder / "args" / "1"), "False"]


@pytest.mark.parametrize("datatype", [one for one in VALUES if one != "BYTES"])
def test_types_of_numbers(client, datatype):
    name = {"BOOL": "B"}.get(datatype) or datatype.replace("UINT", "U").replace("INT", "I").replace("FP", "F")
    array = values_of(datatype)
    answer = ask(client, "types", name, **{name: array})
    assert answer.dtype == array.dtype and answer.tobytes() == array[::-1].tobytes()


def test_type_of_texts(client):
    array = values_of("BYTES")
    assert list(ask(client, "types", "S", S=array)) == list(array[::-1])


def test_texts_of_two_dimensions(client):
    array = np.array([[b"a\x00", b"\xff\xfe", "größe".encode()], [b"", b"long" * 5000, b"z"]], dtype=np.object_)
    answer = ask(client, "strings", IN=array)
    assert answer.shape == (2, 3) and answer.tolist() == [[one.upper() for one in row] for row in array.tolist()]


def test_empty_tensors(client):
    assert ask(client, "identity", IN=np.zeros(0, np.float32)).shape == (0, )
    assert ask(client, "strings", IN=np.zeros((0, 3), dtype=np.object_)).shape == (0, 3)


def test_large_tensors(client):
    array = np.arange(3 << 20, dtype=np.float32)  # 12 MiB
    assert (ask(client, "identity", IN=array) == array).all()


def test_many_clients(running):
    wrong = []

    def work(seed):
        with http.InferenceServerClient(running.http) as one:
            for i in range(40):
                array = np.full(64, seed * 100 + i, np.float32)
                if not (ask(one, "identity", IN=array) == array).all():
                    wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed, )) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_optional_inputs(client):
    assert ask(client, "optional", "SUM", A=ints(1), B=ints(2)).tolist() == [3]
    assert ask(client, "optional", "SUM", A=ints(1)).tolist() == [101]
    assert ask(client, "optional", "COUNT", A=ints(1)).tolist() == [1]


def test_ragged_requests_in_one_execution(running):
    """Requests of different lengths: one call of execute, each with the shape of its own."""
    replies = {}

    def work(length):
        with http.InferenceServerClient(running.http) as one:
            result = one.infer("ragged", tensors(IN=np.ones((1, length), np.int32)))
            replies[length] = (result.as_numpy("SUM").tolist(), int(result.as_numpy("TOGETHER")[0, 0]))

    threads = [threading.Thread(target=work, args=(length, )) for length in (1, 5, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {length: ([[length]], 3) for length in (1, 5, 2)}


def test_dlpack(client):
    flags = np.array([True, False, True])
    result = client.infer("dlpack", tensors(IN=floats(1, 2, 3), FLAGS=flags))
    assert result.as_numpy("OUT").tolist() == [2, 4, 6] and result.as_numpy("FLAGS").tolist() == flags.tolist()
    assert result.as_numpy("CHECKS").tolist() == [5]


def test_what_a_request_tells(client):
    options = {"request_id": "mine", "sequence_id": 7, "sequence_start": True, "timeout": 5000000, "parameters": {"word": "w", "n": 3, "yes": True},
               "outputs": [http.InferRequestedOutput("OUT")]}
    result = client.infer("request", tensors(IN=ints(1)), **options)
    seen = json.loads(result.as_numpy("OUT")[0])
    assert seen["id"] == "mine" and seen["correlation_id"] == 7 and seen["timeout"] == 5000000
    assert seen["flags"] == 1 and seen["parameters"] == {"word": "w", "n": 3, "yes": True} and seen["cancelled"] is False
    assert seen["outputs"] == ["OUT"] and (seen["model"], seen["version"]) == ("request", 1)
    parameters = result.get_response()["parameters"]
    assert parameters == {"text": "t", "number": 7, "flag": True, **{k: v for k, v in parameters.items() if k.startswith("sequence")}}
    seen = json.loads(client.infer("request", tensors(IN=ints(1)), sequence_id="name", sequence_end=True).as_numpy("OUT")[0])
    assert seen["correlation_id"] == "name" and seen["flags"] == 2 and seen["id"] == ""


# ---- errors, in Triton's words ----

COUNT = "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:1, and " \
        "InferenceResponse(s) size is:"


@pytest.mark.parametrize("case, text", [
    ("raise", "Failed to process the request(s) for model 'errors_0', message: ValueError: this went wrong"),
    ("raise", "errors/1/model.py(12): execute"),
    ("empty", COUNT + "0"),
    ("two", COUNT + "2"),
    ("text", "Expected a list in the execute return, found type '<class 'str'>'."),
    ("number", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."),
    ("plain", "only a text"),
])
def test_error_texts(client, case, text):
    assert text in failure(client, "errors", CASE=texts(case))
    assert ask(client, "errors", CASE=texts("good")).tolist() == [1]  # the model goes on


@pytest.mark.parametrize("case", ["none", "nothing"])
def test_what_is_no_answer_is_an_error(client, case):
    assert failure(client, "errors", CASE=texts(case))
    assert ask(client, "errors", CASE=texts("good")).tolist() == [1]


def test_sender_of_a_model_with_one_response(client):
    assert ask(client, "errors", CASE=texts("sent")).tolist() == [1]


@pytest.mark.parametrize("code, status", [(0, 500), (1, 500), (2, 404), (3, 400), (4, 503), (5, 501), (6, 400), (7, 400)])
def test_codes_of_errors(running, code, status):
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [str(code)]}]}
    answer = requests.post(running.url("/v2/models/errors/infer"), json=body, timeout=20)
    assert (answer.status_code, answer.json()["error"]) == (status, "told so")


# ---- calls of other models ----


def test_a_call(client):
    result = client.infer("bls", tensors(MODEL=texts("identity"), IN=floats(1, 2)))
    assert result.as_numpy("OUT").tolist() == [1, 2] and result.as_numpy("CODE").tolist() == [-1]


def test_a_call_of_what_is_not_there(client):
    assert ask(client, "bls", "CODE", MODEL=texts("nobody"), IN=floats(1)).tolist() in ([2], [4])  # NOT_FOUND, UNAVAILABLE
    assert "fail_nobody" in failure(client, "bls", MODEL=texts("fail_nobody"), IN=floats(1))


@pytest.mark.parametrize("how", ["sync", "async", "mixed"])
def test_calls_of_a_decoupled_model(client, how):
    assert ask(client, "bls_decoupled", IN=ints(4, 5, 6), HOW=texts(how)).tolist() == [4, 5, 6]
    assert ask(client, "bls_decoupled", IN=ints(*range(500)), HOW=texts(how)).tolist() == list(range(500))


def test_a_decoupled_call_that_is_given_up(client):
    assert ask(client, "bls_decoupled", IN=ints(*range(300)), HOW=texts("cancel")).tolist() == [0]


def test_a_decoupled_model_called_as_another(client):
    assert "decoupled" in failure(client, "bls_decoupled", IN=ints(1, 2), HOW=texts("wrong"))


def test_calls_that_would_wait_for_themselves(client):
    """A model with two instances may call itself once; a circle of models with one each is refused at its end."""
    assert ask(client, "calls_itself", LEFT=ints(1)).tolist() == [7]
    assert "model 'calls_itself' is called while all its instances (2) wait for that call" in failure(client, "calls_itself", LEFT=ints(2))
    assert ask(client, "calls_back", LEFT=ints(1)).tolist() == [7]
    assert "model 'calls_back' is called while all its instances (1) wait" in failure(client, "calls_back", LEFT=ints(2))
    assert ask(client, "calls_forth", LEFT=ints(0)).tolist() == [7]


def test_a_caller_whose_client_leaves(running, client, folder):
    """Its calls are cancelled with it."""
    one = grpc.InferenceServerClient(running.grpc)
    tensor = grpc.InferInput("LEFT", [1], "INT32")
    tensor.set_data_from_numpy(ints(1))
    call = one.async_infer("calls_slow", [tensor], callback=lambda result, error: None)
    wait_until((folder / "slow" / "started").exists)
    call.cancel()
    told = folder / "slow" / "cancelled"
    wait_until(lambda: told.exists() and told.read_text() != "")
    assert told.read_text() == "True"
    one.close()


@pytest.mark.parametrize("how", ["threads", "coroutines"])
def test_calls_from_threads_of_the_model(running, how):
    """Three requests at once, each calling from a thread of its own while execute waits for more."""
    client, got = grpc.InferenceServerClient(running.grpc), queue.Queue()
    client.start_stream(callback=lambda result, error: got.put((result, error)))
    for base in (0, 100, 200):
        tensors = [grpc.InferInput("IN", [30], "FP32"), grpc.InferInput("HOW", [1], "BYTES")]
        tensors[0].set_data_from_numpy(np.arange(base, base + 30, dtype=np.float32))
        tensors[1].set_data_from_numpy(texts(how))
        client.async_stream_infer("bls_threads", tensors, request_id=str(base))
    for _ in range(3):
        result, error = got.get(timeout=20)
        assert error is None, error
        base = int(result.get_response().id)
        assert result.as_numpy("OUT").tolist() == list(range(base, base + 30))
    client.stop_stream()
    client.close()


# ---- decoupled ----


@pytest.mark.parametrize("model", ["square", "square_async"])
def test_as_many_responses_as_asked_for(stream, model):
    for count in (4, 0, 1, 3):
        assert stream(model, "IN", ints(count), "OUT") == ([count] * count, None)


def test_error_of_a_sender(stream):
    assert "negative" in stream("square", "IN", ints(-1), "OUT")[1]
    assert stream("square", "IN", ints(2), "OUT") == ([2, 2], None)


def test_a_decoupled_model_must_return_none(stream):
    assert "Python model 'decoupled_returns_0' is using the decoupled mode and the execute function must return None." in \
        stream("decoupled_returns", "IN", ints(1), "OUT")[1]


def test_a_client_that_leaves(running, folder):
    client, got = grpc.InferenceServerClient(running.grpc), queue.Queue()
    client.start_stream(callback=lambda result, error: got.put(result))
    tensor = grpc.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(ints(1))
    client.async_stream_infer("waits", [tensor])
    got.get(timeout=20)
    client.stop_stream(cancel_requests=True)
    client.close()
    told = folder / "waits" / "cancelled"
    wait_until(lambda: told.exists() and told.read_text() != "")
    assert told.read_text() == "True"


def test_a_request_that_comes_again(client):
    for sequence, times in ((1, 3), (2, 1)):
        result = client.infer("again", tensors(IN=np.array([[times]], np.int32)), sequence_id=sequence, sequence_start=True, sequence_end=True)
        assert result.as_numpy("OUT").tolist() == [[times]]


# ---- configuration by auto_complete_config ----


def test_completed_configuration(client):
    config = client.get_model_config("complete")
    assert config["max_batch_size"] == 4 and "dynamic_batching" in config
    assert [(one["name"], one["data_type"], one["dims"], one.get("optional", False)) for one in config["input"]] == [
        ("IN", "TYPE_FP32", [2], False), ("MORE", "TYPE_FP32", [2], True)]
    assert ask(client, "complete", IN=np.array([[1, 2]], np.float32)).tolist() == [[1, 2]]


def test_completed_decoupled(client, stream):
    assert client.get_model_config("complete_decoupled")["model_transaction_policy"] == {"decoupled": True}
    assert stream("complete_decoupled", "IN", ints(5), "OUT") == ([5, 5], None)


# ---- metrics ----


def test_metrics(running, client):

    def do(op, value=0.0):
        return float(ask(client, "metrics", OP=texts(op), VALUE=floats(value))[0])

    do("counter.increment", 2)
    do("again.increment", 3)  # the same labels: the same figure
    do("gauge.set", 7.5)
    do("gauge.increment", -2)
    for value in (0.05, 0.5, 50):
        do("histogram.observe", value)
    assert (do("counter.value"), do("gauge.value")) == (5, 5.5)
    for op, value in (("counter.increment", -1), ("counter.set", 1), ("gauge.observe", 1), ("histogram.set", 1)):
        assert failure(client, "metrics", OP=texts(op), VALUE=floats(value))
    page = requests.get(f"http://{running.metrics}/metrics", timeout=20).text
    assert '# HELP probe_count Things "counted"\n# TYPE probe_count counter\n' in page and page.count("# TYPE probe_count ") == 1
    assert metric(page, "probe_count", who='a\\"b', where="here") == 5 and metric(page, "probe_level") == 5.5
    assert [metric(page, "probe_times_bucket", x="y", le=le) for le in ("0.1", "1", "10", "+Inf")] == [1, 2, 2, 3]
    assert metric(page, "probe_times_count", x="y") == 3 and abs(metric(page, "probe_times_sum", x="y") - 50.55) < 1e-5


# ---- model control, readiness, log ----


def control(client, *words):
    return ask(client, "control", OP=texts(*words))[0].decode()


def test_model_control(client, folder):
    assert control(client, "ready", "later") == "True" and control(client, "ready", "later", "1") == "True"
    assert control(client, "ready", "later", "9") == "False" and control(client, "ready", "nobody") == "False"
    assert control(client, "unload", "later") == "None"
    wait_until(lambda: not client.is_model_ready("later"))
    wait_until((folder / "later" / "finalized").exists)
    assert control(client, "load", "later") == "None"
    assert ask(client, "later", IN=floats(2)).tolist() == [4]
    assert control(client, "load", "nobody").startswith("error: ")


def test_a_model_of_files(client):
    assert control(client, "files", "made_here") == "None"
    assert ask(client, "made_here", IN=floats(2)).tolist() == [6]


def test_log(running, client):
    control(client, "log", "a line of mine")
    for word in ("info", "warn", "error", "verbose", "plain"):
        wait_until(lambda: f"{word} a line of mine" in running.log_text())


def test_is_ready(client):
    assert client.is_model_ready("unready")
    ask(client, "unready", IN=floats(1))
    wait_until(lambda: not client.is_model_ready("unready"))
    ask(client, "unready", IN=floats(1))
    wait_until(lambda: client.is_model_ready("unready"))


# ---- models that cannot be loaded: one clear error, the rest serves ----


@pytest.mark.parametrize("body, text", [
    ("def execute(self, requests:\n    return None\n", "SyntaxError"),
    ("def initialize(self, args):\n    pass\n", "execute"),
    ("def initialize(self, args):\n    raise KeyError('no such thing')\ndef execute(self, requests):\n    return None\n", "no such thing"),
    ("import nothing_of_this_name\ndef execute(self, requests):\n    return None\n", "nothing_of_this_name"),
    ("@staticmethod\ndef auto_complete_config(config):\n    config.set_max_batch_size(5)\n    return 3\ndef execute(self, requests):\n    return None\n", "ModelConfig"),
    ("@staticmethod\ndef auto_complete_config(config):\n    config.add_input({'name': 'IN', 'data_type': 'TYPE_FP64', 'dims': [1]})\n    return config\n"
     "def execute(self, requests):\n    return None\n", "expects datatype TYPE_FP32 for input 'IN'"),
])
def test_models_that_do_not_load(running, client, folder, body, text):
    shutil.rmtree(folder / "broken", ignore_errors=True)
    python_models.write(folder, "broken", "IN:FP32:1", "OUT:FP32:1", body)
    with pytest.raises(InferenceServerException) as caught:
        client.load_model("broken")
    assert text in caught.value.message(), caught.value.message()
    assert not client.is_model_ready("broken") and client.is_server_live()
    assert ask(client, "identity", IN=floats(1)).tolist() == [1]


def test_parameter_with_a_wrong_value(client, folder):
    python_models.write(folder, "forced", "IN:FP32:1", "OUT:FP32:1", "def execute(self, requests):\n    return None\n",
                        more='parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }')
    with pytest.raises(InferenceServerException) as caught:
        client.load_model("forced")
    assert "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: " in caught.value.message()


# ---- environments ----

ENV_MODEL = """
def execute(self, requests):
    import only_here, sys
    text = [only_here.NAME, sys.prefix, os.environ.get("VIRTUAL_ENV", "")]
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(text, dtype=np.object_))]) for _ in requests]
"""


def make_environment(path):
    """A virtual environment with this interpreter, this numpy, and a module of its own."""
    base = pathlib.Path(sys._base_executable).resolve()
    packages = path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (path / "bin").mkdir()
    (path / "bin" / "python3").symlink_to(base)
    (path / "bin" / "python").symlink_to("python3")
    (path / "lib64").symlink_to("lib")
    (path / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    (packages / "numpy.pth").write_text(f"{NUMPY}\n")
    (packages / "only_here.py").write_text("NAME = 'of the environment'\n")
    return path


def env_model(folder, name, where):
    python_models.write(folder, name, "IN:FP32:1", "OUT:STRING:-1", ENV_MODEL,
                        more=f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{where}" }} }}')


def said(client, model):
    return [one.decode() for one in ask(client, model, IN=floats(1))]


def test_environment_as_a_folder(client, folder, tmp_path):
    path = make_environment(tmp_path / "venv")
    env_model(folder, "in_folder", path)
    client.load_model("in_folder")
    assert said(client, "in_folder") == ["of the environment", str(path), str(path)]


def test_environment_as_an_archive(start, tmp_path):
    """Unpacked once for two models, gone when the server has gone."""
    models, temporary = tmp_path / "models", tmp_path / "tmp"
    models.mkdir()
    temporary.mkdir()
    env_model(models, "packed", "$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    env_model(models, "packed_too", models / "packed" / "env.tar.gz")
    with tarfile.open(models / "packed" / "env.tar.gz", "w:gz") as archive:
        archive.add(make_environment(tmp_path / "venv"), ".")
    server = start(repositories=[models], env={"PROA_PYTHON": sys.executable, "TMPDIR": str(temporary)})
    with http.InferenceServerClient(server.http) as client:
        name, prefix, venv = said(client, "packed")
        assert name == "of the environment" and prefix == venv and prefix.startswith(str(temporary))
        assert said(client, "packed_too") == [name, prefix, venv] and len(list(temporary.glob("proa-env-*"))) == 1
    assert server.stop() == 0
    assert list(temporary.glob("proa-env-*")) == []


def test_environments_that_are_none(client, folder, tmp_path):
    (tmp_path / "noise.tar.gz").write_bytes(b"no archive" * 100)
    with tarfile.open(tmp_path / "escape.tar.gz", "w:gz") as archive:
        archive.add(__file__, "../../escaped.py")
    for name, text in (("absent", "cannot open the execution environment '"), ("noise.tar.gz", "cannot unpack '"),
                       ("escape.tar.gz", "leaves the folder")):
        shutil.rmtree(folder / "homeless", ignore_errors=True)
        env_model(folder, "homeless", tmp_path / name)
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("homeless")
        assert text in caught.value.message()


# ---- examples/python ----


def test_example_add_sub(client):
    a, b = np.arange(8, dtype=np.float32).reshape(2, 4), np.ones((2, 4), np.float32)
    result = client.infer("add_sub", tensors(INPUT0=a, INPUT1=b))
    assert (result.as_numpy("OUTPUT0") == a + b).all() and (result.as_numpy("OUTPUT1") == a - b).all()


def test_example_pick_best(client):
    answer = ask(client, "pick_best", "BEST", MODELS=texts("add_sub", "add_sub", "add_sub"), INPUT0=floats(1, 2, 3, 4), INPUT1=floats(1, 1, 1, 1))
    assert answer.tolist() == [2, 3, 4, 5]
    assert "nobody" in failure(client, "pick_best", MODELS=texts("add_sub", "nobody"), INPUT0=floats(1, 2, 3, 4), INPUT1=floats(1, 1, 1, 1))


def test_example_countdown(stream):
    assert stream("countdown", "FROM", ints(5), "NUMBER") == ([5, 4, 3, 2, 1], None)


def test_nothing_is_left_in_shared_memory(running):
    """After all of these tests neither the server nor one of its models has a file in /dev/shm."""
    assert not shared_files(running.process.pid)
