# SPDX-License-Identifier: Apache-2.0
"""The models that test_python_contract.py serves: a line of their configuration each, and their model.py."""
import textwrap

# A tensor as (name, type, dims); options behind a | are the configuration's own text.
HEAD = "import asyncio, json, os, threading, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"


def tensors(side, spec):
    rows = []
    for one in spec.split():
        name, kind, dims = one.split(":")[:3]
        more = " ".join(f"{word}: true" for word in one.split(":")[3:])
        rows.append(f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] {more} }}')
    return f"{side} [ {', '.join(rows)} ]\n" if rows else ""


def write(folder, name, inputs, outputs, body, batch=0, more=""):
    """A model's folder; without inputs and outputs there is no config.pbtxt."""
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1" / "model.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    if inputs is not None:
        text = f'name: "{name}"\nbackend: "python"\nmax_batch_size: {batch}\n{more}\n' + tensors("input", inputs) + tensors("output", outputs)
        (folder / name / "config.pbtxt").write_text(text)


DECOUPLED = "model_transaction_policy { decoupled: true }"
BATCHED = "dynamic_batching { preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 5000000 }"

CALLS_NEXT = """
        def execute(self, requests):
            responses = []
            for request in requests:
                left = int(pb_utils.get_input_tensor_by_name(request, "LEFT").as_numpy()[0])
                if left == 0:
                    responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([7], np.int32))]))
                    continue
                tensor = pb_utils.Tensor("LEFT", np.array([left - 1], np.int32))
                reply = pb_utils.InferenceRequest(model_name=NEXT, requested_output_names=["OUT"], inputs=[tensor]).exec()
                responses.append(pb_utils.InferenceResponse(error=reply.error()) if reply.has_error() else reply)
            return responses
        """

MODELS = {
    # name: (inputs, outputs, body, batch, more)
    "args": ("IN:INT32:1", "OUT:STRING:-1", """
        def initialize(self, args):
            assert all(type(value) is str for value in args.values()), args
            self.args = args
        def execute(self, requests):
            config = json.loads(self.args["model_config"])
            text = [self.args[key] for key in ("model_name", "model_version", "model_instance_kind", "model_instance_device_id")]
            text += [os.path.basename(self.args["model_repository"]), config["input"][0]["data_type"], config["parameters"]["k"]["string_value"]]
            text += [pb_utils.get_model_dir(), str(pb_utils.using_decoupled_model_transaction_policy(config))]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(text, dtype=np.object_))]) for _ in requests]
        """, 0, 'parameters { key: "k" value { string_value: "v" } }'),
    "identity": ("IN:FP32:-1", "OUT:FP32:-1", """
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
        """),
    "types": ("B:BOOL:-1:optional U8:UINT8:-1:optional U16:UINT16:-1:optional U32:UINT32:-1:optional U64:UINT64:-1:optional I8:INT8:-1:optional "
              "I16:INT16:-1:optional I32:INT32:-1:optional I64:INT64:-1:optional F16:FP16:-1:optional F32:FP32:-1:optional F64:FP64:-1:optional "
              "S:STRING:-1:optional", "B:BOOL:-1 U8:UINT8:-1 U16:UINT16:-1 U32:UINT32:-1 U64:UINT64:-1 I8:INT8:-1 I16:INT16:-1 I32:INT32:-1 I64:INT64:-1 "
              "F16:FP16:-1 F32:FP32:-1 F64:FP64:-1 S:STRING:-1", """
        def execute(self, requests):
            return [self.answer(request) for request in requests]
        def answer(self, request):
            outputs = []
            for tensor in request.inputs():
                array = tensor.as_numpy()
                assert tensor.is_cpu() and tensor.shape() == list(array.shape)
                assert pb_utils.triton_to_numpy_type(tensor.triton_dtype()) == array.dtype.type
                assert pb_utils.numpy_to_triton_type(array.dtype.type) == tensor.triton_dtype()
                outputs.append(pb_utils.Tensor(tensor.name(), array[::-1]))
            return pb_utils.InferenceResponse(outputs)
        """),
    "strings": ("IN:STRING:-1,-1", "OUT:STRING:-1,-1", """
        def execute(self, requests):
            responses = []
            for request in requests:
                array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                assert array.dtype == np.object_ and all(type(one) is bytes for one in array.reshape(-1))
                framed = pb_utils.serialize_byte_tensor(array)
                assert (pb_utils.deserialize_bytes_tensor(framed).reshape(array.shape) == array).all()
                upper = np.array([one.upper() for one in array.reshape(-1)], dtype=np.object_).reshape(array.shape)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", upper)]))
            return responses
        """),
    "optional": ("A:INT32:1 B:INT32:1:optional", "SUM:INT32:1 COUNT:INT32:1", """
        def execute(self, requests):
            responses = []
            for request in requests:
                b = pb_utils.get_input_tensor_by_name(request, "B")
                total = request.inputs()[0].as_numpy() + (100 if b is None else b.as_numpy())
                count = np.array([len(request.inputs())], np.int32)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total), pb_utils.Tensor("COUNT", count)]))
            return responses
        """),
    "ragged": ("IN:INT32:-1:allow_ragged_batch", "SUM:INT32:1 TOGETHER:INT32:1", """
        def execute(self, requests):
            together = np.array([[len(requests)]], np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", r.inputs()[0].as_numpy().sum(axis=1, keepdims=True, dtype=np.int32)),
                                                pb_utils.Tensor("TOGETHER", together)]) for r in requests]
        """, 4, BATCHED),
    "dlpack": ("IN:FP32:-1 FLAGS:BOOL:-1", "OUT:FP32:-1 FLAGS:BOOL:-1 CHECKS:INT32:1", """
        def execute(self, requests):
            responses = []
            for request in requests:
                tensor = pb_utils.get_input_tensor_by_name(request, "IN")
                flags = pb_utils.get_input_tensor_by_name(request, "FLAGS")
                seen = np.from_dlpack(tensor)
                good = seen.__array_interface__["data"][0] == tensor.as_numpy().__array_interface__["data"][0]
                good += tensor.__dlpack_device__() == (1, 0)
                back = pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())
                doubled = pb_utils.Tensor.from_dlpack("OUT", np.ascontiguousarray(seen * 2))
                for bad in (lambda: pb_utils.Tensor.from_dlpack("X", 3), lambda: pb_utils.Tensor.from_dlpack("X", np.ones((2, 4))[:, ::2])):
                    try:
                        bad()
                    except pb_utils.TritonModelException:
                        good += 1
                good += (back.as_numpy() == seen).all()
                checks = pb_utils.Tensor("CHECKS", np.array([good], np.int32))
                responses.append(pb_utils.InferenceResponse([doubled, pb_utils.Tensor.from_dlpack("FLAGS", flags.to_dlpack()), checks]))
            return responses
        """),
    "request": ("IN:INT32:1", "OUT:STRING:1", """
        def execute(self, requests):
            responses = []
            for r in requests:
                seen = {"id": r.request_id(), "correlation_id": r.correlation_id(), "flags": r.flags(), "timeout": r.timeout(),
                        "parameters": json.loads(r.parameters()), "outputs": sorted(r.requested_output_names()), "cancelled": r.is_cancelled(),
                        "model": r.model_name(), "version": r.model_version(), "trace": r.trace().get_context()}
                text = pb_utils.Tensor("OUT", np.array([json.dumps(seen)], dtype=np.object_))
                responses.append(pb_utils.InferenceResponse([text], parameters={"text": "t", "number": 7, "flag": True}))
            return responses
        """),
    "errors": ("CASE:STRING:1", "OUT:INT32:1", """
        def execute(self, requests):
            case = requests[0].inputs()[0].as_numpy()[0].decode()
            one = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], np.int32))])
            if case == "raise":
                raise ValueError("this went wrong")
            if case.isdigit():
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError("told so", int(case)))]
            if case == "plain":
                return [pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError("only a text"))]
            if case == "sent":
                requests[0].get_response_sender().send(one, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return None
            return {"none": None, "text": "text", "empty": [], "two": [one, one], "number": [3], "nothing": [None], "good": [one]}[case]
        """),
    "bls": ("MODEL:STRING:1 IN:FP32:-1", "OUT:FP32:-1 CODE:INT32:1", """
        def execute(self, requests):
            responses = []
            for request in requests:
                name = pb_utils.get_input_tensor_by_name(request, "MODEL").as_numpy()[0].decode()
                tensor = pb_utils.get_input_tensor_by_name(request, "IN")  # passed on as it came
                call = pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUT"], inputs=[tensor], request_id="inner",
                    preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0))
                reply = call.exec()
                code = np.array([reply.error().code() if reply.has_error() else -1], np.int32)
                if reply.has_error() and name.startswith("fail"):
                    responses.append(pb_utils.InferenceResponse(error=reply.error()))
                    continue
                out = np.zeros(0, np.float32) if reply.has_error() else pb_utils.get_output_tensor_by_name(reply, "OUT").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out), pb_utils.Tensor("CODE", code)]))
            return responses
        """),
    "bls_decoupled": ("IN:INT32:-1 HOW:STRING:1", "OUT:INT32:-1", """
        async def execute(self, requests):
            return [await self.answer(request) for request in requests]
        async def answer(self, request):
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            how = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy()[0]
            zeros = np.zeros(len(values), np.uint32)
            call = pb_utils.InferenceRequest(model_name="repeat_int32", requested_output_names=["OUT"], inputs=[
                pb_utils.Tensor("IN", values), pb_utils.Tensor("DELAY", zeros), pb_utils.Tensor("WAIT", np.zeros(1, np.uint32))])
            if how == b"sync":
                replies = list(call.exec(decoupled=True))
            elif how == b"async":
                replies = [reply async for reply in await call.async_exec(decoupled=True)]
            elif how == b"mixed":
                replies = list(await call.async_exec(decoupled=True))
            elif how == b"wrong":
                replies = [call.exec()]
            else:
                pb_utils.get_input_tensor_by_name(request, "IN")
                iterator = call.exec(decoupled=True)
                replies = [next(iterator)]
                iterator.cancel()
            for reply in replies:
                if reply.has_error():
                    return pb_utils.InferenceResponse(error=reply.error())
            numbers = [pb_utils.get_output_tensor_by_name(reply, "OUT").as_numpy()[0] for reply in replies]
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(numbers, np.int32))])
        """),
    "calls_itself": ("LEFT:INT32:1", "OUT:INT32:1", CALLS_NEXT.replace("NEXT", "'calls_itself'"), 0, "instance_group [ { count: 2 kind: KIND_CPU } ]"),
    "calls_back": ("LEFT:INT32:1", "OUT:INT32:1", CALLS_NEXT.replace("NEXT", "'calls_forth'")),
    "calls_forth": ("LEFT:INT32:1", "OUT:INT32:1", CALLS_NEXT.replace("NEXT", "'calls_back'")),
    "calls_slow": ("LEFT:INT32:1", "OUT:INT32:1", CALLS_NEXT.replace("NEXT", "'slow'")),
    "slow": ("LEFT:INT32:1", "OUT:INT32:1", """
        def execute(self, requests):
            open(os.path.join(os.path.dirname(pb_utils.get_model_dir()), "started"), "w").close()
            end = time.monotonic() + 20
            while not requests[0].is_cancelled() and time.monotonic() < end:
                time.sleep(0.005)
            with open(os.path.join(os.path.dirname(pb_utils.get_model_dir()), "cancelled"), "w") as file:
                file.write(str(requests[0].is_cancelled()))
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
        """),
    "bls_threads": ("IN:FP32:-1 HOW:STRING:1", "OUT:FP32:-1", """
        def execute(self, requests):
            for request in requests:
                how = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy()[0].decode()
                values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                args = (values, request.get_response_sender())
                if how == "threads":
                    threading.Thread(target=self.call, args=args).start()
                else:
                    threading.Thread(target=lambda: asyncio.run(self.calls(*args))).start()
        def made(self, value):
            return pb_utils.InferenceRequest(model_name="identity", requested_output_names=["OUT"],
                                             inputs=[pb_utils.Tensor("IN", np.array([value], np.float32))])
        def call(self, values, sender):
            replies = [self.made(value).exec() for value in values]
            self.send(replies, sender)
        async def calls(self, values, sender):
            self.send(await asyncio.gather(*[self.made(value).async_exec() for value in values]), sender)
        def send(self, replies, sender):
            array = np.concatenate([pb_utils.get_output_tensor_by_name(one, "OUT").as_numpy() for one in replies])
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """, 0, DECOUPLED),
    "square": ("IN:INT32:1", "OUT:INT32:1", """
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                count = int(request.inputs()[0].as_numpy()[0])
                if count < 0:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)),
                                flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                    continue
                for _ in range(count):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([count], np.int32))]))
                if count != 3:  # of 3, the sender is let go without a flag
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                    try:
                        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                        raise AssertionError("sent behind the end")
                    except pb_utils.TritonModelException as error:
                        assert str(error) == "Unable to send response. Response sender has been closed.", error
        """, 0, DECOUPLED),
    "square_async": ("IN:INT32:1", "OUT:INT32:1", """
        async def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                count = int(request.inputs()[0].as_numpy()[0])
                for _ in range(count):
                    await asyncio.sleep(0.001)
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([count], np.int32))]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """, 0, DECOUPLED),
    "decoupled_returns": ("IN:INT32:1", "OUT:INT32:1", """
        def execute(self, requests):
            return []
        """, 0, DECOUPLED),
    "metrics": ("OP:STRING:1 VALUE:FP32:1", "OUT:FP64:1", """
        def initialize(self, args):
            family = pb_utils.MetricFamily(name="probe_count", description="Things \\"counted\\"", kind=pb_utils.MetricFamily.COUNTER)
            self.counter = family.Metric(labels={"who": "a\\"b", "where": "here"})
            self.again = pb_utils.MetricFamily("probe_count", "Things \\"counted\\"", pb_utils.MetricFamily.COUNTER).Metric(
                labels={"who": "a\\"b", "where": "here"})
            self.gauge = pb_utils.MetricFamily("probe_level", "A level", pb_utils.MetricFamily.GAUGE).Metric()
            self.histogram = pb_utils.MetricFamily("probe_times", "Times", pb_utils.MetricFamily.HISTOGRAM).Metric(
                labels={"x": "y"}, buckets=[0.1, 1, 10])
        def execute(self, requests):
            return [self.answer(r.inputs()) for r in requests]
        def answer(self, inputs):
            what, op = inputs[0].as_numpy()[0].decode().split(".")
            metric, value = getattr(self, what), float(inputs[1].as_numpy()[0])
            try:
                result = metric.value() if op == "value" else getattr(metric, op)(value)
            except pb_utils.TritonModelException as error:
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([result or 0.0], np.float64))])
        """),
    "control": ("OP:STRING:-1", "OUT:STRING:1", """
        def execute(self, requests):
            responses = []
            for request in requests:
                op, *args = [one.decode() for one in request.inputs()[0].as_numpy()]
                try:
                    text = str(getattr(self, op)(*args))
                except pb_utils.TritonModelException as error:
                    text = "error: " + str(error)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text], dtype=np.object_))]))
            return responses
        def ready(self, *args):
            return pb_utils.is_model_ready(*args)
        def load(self, name):
            return pb_utils.load_model(name)
        def files(self, name):
            code = "import triton_python_backend_utils as pb_utils\\nclass TritonPythonModel:\\n    def execute(self, requests):\\n"
            code += "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', r.inputs()[0].as_numpy() * 3)]) for r in requests]\\n"
            config = {"name": name, "backend": "python", "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
                      "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]}
            return pb_utils.load_model(model_name=name, config=json.dumps(config), files={"file:1/model.py": code.encode()})
        def unload(self, name):
            return pb_utils.unload_model(name)
        def log(self, text):
            for level in ("info", "warn", "error", "verbose"):
                getattr(pb_utils.Logger, "log_" + level)(level + " " + text)
            pb_utils.Logger.log("plain " + text, pb_utils.Logger.WARNING)
        """),
    "complete": (None, None, """
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(4)
            config.set_dynamic_batching()
            config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [2]})
            config.add_input({"name": "MORE", "data_type": "TYPE_FP32", "dims": [2], "optional": True})
            config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [2]})
            return config
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
        """),
    "complete_decoupled": (None, None, """
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(0)
            config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
            config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]})
            config.set_model_transaction_policy({"decoupled": True})
            return config
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for _ in range(2):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """),
    "later": ("IN:FP32:-1", "OUT:FP32:-1", """
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() * 2)]) for r in requests]
        def finalize(self):
            with open(os.path.join(os.path.dirname(pb_utils.get_model_dir()), "finalized"), "a") as file:
                file.write("once\\n")
        """),
    "unready": ("IN:FP32:-1", "OUT:FP32:-1", """
        def initialize(self, args):
            self.good = True
        def is_ready(self):
            return self.good
        def execute(self, requests):
            self.good = not self.good
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
        """),
    "waits": ("IN:INT32:1", "OUT:INT32:1", """
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([0], np.int32))]))
                end = time.monotonic() + 20
                while not request.is_cancelled() and time.monotonic() < end:
                    time.sleep(0.005)
                with open(os.path.join(os.path.dirname(pb_utils.get_model_dir()), "cancelled"), "w") as file:
                    file.write(str(request.is_cancelled()))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """, 0, DECOUPLED),
    "again": ("IN:INT32:1", "OUT:INT32:1", """
        def initialize(self, args):
            self.times = {}
        def execute(self, requests):
            responses = []
            for request in requests:
                key = request.correlation_id()
                self.times[key] = self.times.get(key, 0) + 1
                if self.times[key] < int(request.inputs()[0].as_numpy()[0, 0]):
                    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                    responses.append(None)
                    continue
                times = np.array([[self.times.pop(key)]], np.int32)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", times)]))
            return responses
        """, 2, "sequence_batching { iterative_sequence: true }"),
}


def write_all(folder):
    for name, (inputs, outputs, body, *rest) in MODELS.items():
        write(folder, name, inputs, outputs, body, *rest)
