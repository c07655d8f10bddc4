# SPDX-License-Identifier: Apache-2.0
"""What a model.py imports, as Triton's documentation describes it: requests, responses, senders, calls of other models,
model control, metrics, log. Tensors are in proa_tensor.py, configurations in proa_config.py.

It knows no bytes: all that it says to the server goes through the channel that _attach was given.
"""
import asyncio
import collections
import functools
import inspect
import json
import sys
import threading
import weakref

from proa_config import (ModelConfig, get_input_config_by_name, get_output_config_by_name,
                         using_decoupled_model_transaction_policy)
from proa_tensor import (Tensor, TritonModelException, deserialize_bytes_tensor, numpy_to_triton_type, serialize_byte_tensor,
                         triton_string_to_numpy, triton_to_numpy_type)

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_GPU = 2

_channel = None
_model_dir = ""
_decoupled = False
_model_name, _model_version = "", -1
_output_names = frozenset()  # of the configuration


def _attach(channel, model_dir="", decoupled=False, model_name="", model_version=-1, output_names=()):
    """Called once by the process that runs the model, before model.py is imported."""
    global _channel, _model_dir, _decoupled, _model_name, _model_version, _output_names
    _channel, _model_dir, _decoupled = channel, model_dir, decoupled
    _model_name, _model_version, _output_names = model_name, int(model_version), frozenset(output_names)


def _server():
    if _channel is None:
        raise TritonModelException("there is no server here that could be asked")
    return _channel


def get_model_dir():
    """The folder in which model.py lies."""
    return _model_dir


# ---- errors ----


class TritonError:
    """An error as part of a response; not an exception."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    __slots__ = ("_message", "_code")

    def __init__(self, message, code=INTERNAL):
        if code not in range(8):
            raise TritonModelException(f"unknown error code {code}")
        self._message, self._code = str(message), code

    def code(self):
        return self._code

    def message(self):
        return self._message

    def __str__(self):
        return self._message


# The server's codes are gRPC's.
_WIRE_OF_CODE = (2, 13, 5, 3, 14, 12, 6, 1)
_CODE_OF_WIRE = {wire: code for code, wire in enumerate(_WIRE_OF_CODE)}


def _error_of(head):
    """The TritonError of a head that has come; None if it holds none."""
    if not head or "error" not in head:
        return None
    return TritonError(head["error"], _CODE_OF_WIRE.get(head.get("code", 13), TritonError.INTERNAL))


# ---- requests ----


class PreferredMemory:
    """Where a caller would like the outputs of another model; without it they are where that model has made them."""

    __slots__ = ("preferred_memory_type", "preferred_device_id")

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        if preferred_memory_type not in (TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU):
            raise TritonModelException(f"unknown preferred_memory_type {preferred_memory_type}")
        self.preferred_memory_type, self.preferred_device_id = preferred_memory_type, preferred_device_id


class InferenceTrace:
    """The trace that a request belongs to: a call with it (InferenceRequest(trace=request.trace())) is part of that."""

    __slots__ = ("_context", "_number")

    def __init__(self, context=None, number=0):
        self._context, self._number = context, number

    def get_context(self):
        return self._context


def _parameters_of(parameters):
    """Checks and copies the parameters of a request or response."""
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TritonModelException("parameters must be a dict")
    for key, value in parameters.items():
        if not isinstance(key, str) or not isinstance(value, (str, bool, int, float)):
            raise TritonModelException("parameters must map str to str, bool, int or float; found "
                                       f"{type(key).__name__} to {type(value).__name__}")
    return dict(parameters)


class InferenceRequest:
    """A request: one that came, or one that a model makes to call another."""

    # A request that came sets only what its head says: most say nothing.
    _id, _correlation_id, _outputs, _flags, _timeout, _priority = "", 0, (), 0, 0, 0
    _model, _version, _memory, _trace, _parameters = None, None, None, None, None
    _number, _reply, _sender, _rescheduled = 0, None, None, False

    def __init__(self, request_id="", correlation_id=0, inputs=(), requested_output_names=(), model_name="", model_version=-1,
                 flags=0, timeout=0, preferred_memory=None, trace=None, parameters=None):
        for tensor in inputs:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"Input tensor for request with request id: '{request_id}' and model name: "
                                           f"'{model_name}' should not be empty.")
        for name in requested_output_names:
            if not name:
                raise TritonModelException(f"Requested output name for request with request id: '{request_id}' and model name: "
                                           f"'{model_name}' should not be empty.")
        self._id, self._correlation_id = request_id, correlation_id
        self._inputs, self._outputs = list(inputs), list(requested_output_names)
        self._model, self._version = model_name, model_version
        self._flags, self._timeout = flags, timeout
        self._memory, self._trace, self._parameters = preferred_memory, trace, _parameters_of(parameters)

    def request_id(self):
        return self._id

    def correlation_id(self):
        return self._correlation_id

    def inputs(self):
        return self._inputs

    def requested_output_names(self):
        """A set of names. A request that came without any wants all outputs of the model, so these are its names."""
        if not self._outputs and self._number:
            return set(_output_names)
        return set(self._outputs)

    def model_name(self):
        return _model_name if self._model is None else self._model

    def model_version(self):
        return _model_version if self._version is None else self._version

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = flags

    def timeout(self):
        return self._timeout

    def preferred_memory(self):
        return self._memory

    def trace(self):
        if not isinstance(self._trace, InferenceTrace):
            self._trace = InferenceTrace(self._trace, self._number)
        return self._trace

    def parameters(self):
        """JSON text of an object."""
        return json.dumps(self._parameters or {})

    def is_cancelled(self):
        """Has the client given this request up?"""
        return bool(self._number) and _server().cancelled(self._number)

    def get_response_sender(self):
        """What sends this request's responses, during execute or long after it."""
        if not self._number:
            raise TritonModelException("a request that this model made itself has no response sender")
        if self._reply is None:
            self._reply = _Reply(self._number, self._outputs)
            self._sender = InferenceResponseSender(self._reply)
        return self._sender

    def set_release_flags(self, flags):
        """TRITONSERVER_REQUEST_RELEASE_RESCHEDULE: the request comes once more, instead of being answered."""
        if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
            raise TritonModelException(f"unknown request release flags {flags}")
        self._rescheduled = flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE

    # A call of another model.

    def _head(self, decoupled):
        head = {"model": self.model_name(), "version": int(self.model_version()), "decoupled": decoupled, "parent": _current_number()}
        for key, value in (("id", self._id), ("correlation_id", self._correlation_id), ("flags", self._flags),
                           ("timeout", self._timeout), ("parameters", self._parameters), ("outputs", self._outputs)):
            if value:
                head[key] = value
        if self._memory is not None:
            on_gpu = self._memory.preferred_memory_type == TRITONSERVER_MEMORY_GPU
            head["memory"] = int(self._memory.preferred_device_id) if on_gpu else -1
        if isinstance(self._trace, InferenceTrace) and self._trace._number:
            head["trace"] = self._trace._number
        return head

    def exec(self, decoupled=False):
        """Calls the model and waits: an InferenceResponse, or with decoupled=True a ResponseIterator."""
        call = _Call(self, decoupled)
        if decoupled:
            return ResponseIterator(call)
        return call.only()

    def async_exec(self, decoupled=False):
        """exec for coroutines: the call begins now, and what is returned is to be awaited."""
        loop = asyncio.get_running_loop()
        if decoupled:
            future = loop.create_future()
            future.set_result(ResponseIterator(_Call(self, True)))
            return future
        return _Call(self, False).future(loop)


_executing = threading.local()


def _current_number():
    return getattr(_executing, "number", 0)


def _request(number, head, tensors):
    """A request as it has come from the server."""
    self = InferenceRequest.__new__(InferenceRequest)
    self._number, self._inputs = number, [Tensor._from_wire(*one) for one in tensors]
    if head:
        get = head.get
        self._id, self._correlation_id, self._outputs = get("id", ""), get("correlation_id", 0), get("outputs", ())
        self._flags, self._timeout, self._priority = get("flags", 0), get("timeout", 0), get("priority", 0)
        self._trace, self._parameters = get("trace"), get("parameters")
    return self


# ---- responses ----


class InferenceResponse:
    """Output tensors, or an error."""

    __slots__ = ("_tensors", "_error", "_parameters")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TritonModelException("Output tensor for inference response should not be empty.")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"error must be a TritonError, found {type(error).__name__}")
        self._tensors, self._error, self._parameters = list(output_tensors), error, _parameters_of(parameters)

    def output_tensors(self):
        return self._tensors

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        """JSON text of an object."""
        return json.dumps(self._parameters)


def _response(response, wanted=()):
    """(head, tensors) of a response; with `wanted`, only the outputs of these names."""
    head = {}
    if response._parameters:
        head["parameters"] = response._parameters
    if response._error is not None:
        head["error"], head["code"] = response._error.message(), _WIRE_OF_CODE[response._error.code()]
        return head, ()
    if not wanted:
        return head, [tensor._wire() for tensor in response._tensors]
    return head, [tensor._wire() for tensor in response._tensors if tensor._name in wanted]


def _response_of_wire(head, tensors):
    response = InferenceResponse.__new__(InferenceResponse)
    response._tensors, response._error = [Tensor._from_wire(*one) for one in tensors or ()], _error_of(head)
    response._parameters = (head or {}).get("parameters") or {}
    return response


class _Reply:
    """The way back of one request, shared by it and its sender. When both have gone, it is closed."""

    __slots__ = ("number", "wanted", "sent", "closed", "lock")

    def __init__(self, number, wanted):
        self.number, self.wanted, self.sent, self.closed, self.lock = number, frozenset(wanted), False, False, threading.Lock()

    def send(self, response, final):
        with self.lock:
            if self.closed:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
            if _decoupled:
                self._respond(response, final)
            elif response is None and not self.sent:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send complete final before "
                                           "sending a response.")
            elif response is not None and self.sent:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send more than one response.")
            elif response is not None:
                self._respond(response, True)  # the one response is the last, whenever the flag comes
                self.sent = True
            self.closed = final

    def _respond(self, response, final):
        head, tensors = (None, ()) if response is None else _response(response, self.wanted)
        _server().respond(self.number, head, tensors, final)

    def __del__(self):
        if self.closed or self.sent or _channel is None:
            return
        try:  # no sender is left: the client must not wait for ever
            head = None if _decoupled else {"error": "the model let go of the response sender without a response", "code": 13}
            _channel.respond(self.number, head, (), True)
        except Exception:
            pass  # the server has gone, or the interpreter is ending


class InferenceResponseSender:
    """Sends responses to one request, from any thread."""

    __slots__ = ("_reply", )

    def __init__(self, reply):
        self._reply = reply

    def send(self, response=None, flags=0):
        """A response, or with TRITONSERVER_RESPONSE_COMPLETE_FINAL the last one, which may be None."""
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"response must be an InferenceResponse, found {type(response).__name__}")
        self._reply.send(response, bool(flags))

    def is_cancelled(self):
        return _server().cancelled(self._reply.number)


def _check_responses(returned, requests, decoupled, model_name):
    """What execute returned, as a list beside `requests`: an InferenceResponse each, or None where a sender answers."""
    if decoupled:
        if returned is not None:
            raise TritonModelException(f"Python model '{model_name}' is using the decoupled mode and the execute function must "
                                       "return None.")
        return [None] * len(requests)
    if returned is None:
        return [None] * len(requests)
    if not isinstance(returned, list):
        raise TritonModelException(f"Expected a list in the execute return, found type '{type(returned)}'.")
    if len(returned) != len(requests):
        raise TritonModelException("Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                                   f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:"
                                   f"{len(returned)}\n")
    for response in returned:
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException("Expected an 'InferenceResponse' object in the execute function return list, found type "
                                       f"'{type(response)}'.")
    return returned


# ---- calls of other models ----


class _Call:
    """One call of a model that is under way. Its replies may arrive on any thread that looks at the channel."""

    def __init__(self, request, decoupled):
        self.replies, self.ended, self.lock, self.waiters = collections.deque(), False, threading.Lock(), []
        self.channel, tensors = _server(), [tensor._wire() for tensor in request._inputs]
        self.handle = self.channel.infer(request._head(decoupled), tensors, self._on_reply)

    def _on_reply(self, head, tensors, final):
        with self.lock:
            if head or tensors or not final:  # a final flag alone is no response
                self.replies.append(_response_of_wire(head, tensors))
            self.ended = self.ended or final
            waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter()

    def cancel(self):
        if not self.ended:
            self.channel.infer_cancel(self.handle)

    def moved(self):
        return bool(self.replies) or self.ended

    def next(self):
        """The next response; None behind the last."""
        self.channel.wait(self.moved)
        return self.replies.popleft() if self.replies else None

    def only(self):
        """The response of a model that gives one: waits for the end."""
        self.channel.wait(lambda: self.ended)
        return self._single()

    def _single(self):
        return self.replies[0] if self.replies else InferenceResponse()

    def tell(self, waiter):
        """waiter() is called once, when something has moved; at once if it has."""
        with self.lock:
            if not self.moved():
                self.waiters.append(waiter)
                return
        waiter()

    def future(self, loop):
        future = loop.create_future()

        def settle():
            if not future.done() and self.ended:
                future.set_result(self._single())

        def moved():
            if self.ended:
                loop.call_soon_threadsafe(settle)
            else:
                with self.lock:
                    self.waiters.append(moved)

        _look_at_channel(loop, self.channel)
        self.tell(moved)
        future.add_done_callback(lambda done: self.cancel() if done.cancelled() else None)
        return future


_looking = weakref.WeakKeyDictionary()  # loop: the channel that it looks at


def _look_at_channel(loop, channel):
    """Has a coroutine's loop take what comes from the server while it waits."""
    if _looking.get(loop) is not channel:
        loop.add_reader(channel.fileno(), channel.pump)
        _looking[loop] = channel


class ResponseIterator:
    """The responses of a decoupled model, one after the other: for loops and for `async for`."""

    def __init__(self, call):
        self._call = call

    def __iter__(self):
        return self

    def __next__(self):
        response = self._call.next()
        if response is None:
            raise StopIteration
        return response

    def __aiter__(self):
        return self

    async def __anext__(self):
        loop = asyncio.get_running_loop()
        _look_at_channel(loop, self._call.channel)
        while not self._call.moved():
            future = loop.create_future()
            self._call.tell(functools.partial(loop.call_soon_threadsafe, lambda: future.done() or future.set_result(None)))
            await future
        response = self._call.next()
        if response is None:
            raise StopAsyncIteration
        return response

    def cancel(self):
        """No more responses are wanted; what is under way may still come."""
        self._call.cancel()


# ---- tensors by name ----


def _tensor_by_name(tensors, name):
    for tensor in tensors:
        if tensor._name == name:
            return tensor
    return None


def get_input_tensor_by_name(inference_request, name):
    """The input of that name; None if the request has none."""
    return _tensor_by_name(inference_request._inputs, name)


def get_output_tensor_by_name(inference_response, name):
    """The output of that name; None if the response has none."""
    return _tensor_by_name(inference_response._tensors, name)


# ---- model control ----


def load_model(model_name, config="", files=None):
    """Loads or reloads a model; config is JSON text, files maps "file:1/model.py" to bytes."""
    files = files or {}
    tensors = [(name, "UINT8", (len(content), ), content) for name, content in files.items()]
    _server().call("load", {"model": model_name, "config": config, "files": list(files)}, tensors)


def unload_model(model_name, unload_dependents=False):
    _server().call("unload", {"model": model_name, "dependents": bool(unload_dependents)})


def is_model_ready(model_name, model_version=""):
    return bool(_server().call("ready", {"model": model_name, "version": str(model_version)})[0].get("ready"))


# ---- metrics ----


class Metric:
    """One figure of a family, told apart by its labels. Made by MetricFamily.Metric."""

    __slots__ = ("_family", "_number", "__weakref__")

    def __init__(self, family, number):
        self._family, self._number = family, number

    def _do(self, op, kinds, value=None):
        kind = self._family._kind
        if kind not in kinds:
            raise TritonModelException(f"TRITONSERVER_METRIC_KIND_{_KINDS[kind].upper()} does not support {op.capitalize()}")
        head = {"metric": self._number, "op": op}
        if value is not None:
            head["value"] = float(value)
        return _server().call("metric_do", head)[0].get("value")

    def increment(self, value):
        if self._family._kind == MetricFamily.COUNTER and value < 0:
            raise TritonModelException("TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative "
                                       "values.")
        self._do("increment", (MetricFamily.COUNTER, MetricFamily.GAUGE), value)

    def set(self, value):
        self._do("set", (MetricFamily.GAUGE, ), value)

    def observe(self, value):
        self._do("observe", (MetricFamily.HISTOGRAM, ), value)

    def value(self):
        return self._do("value", (MetricFamily.COUNTER, MetricFamily.GAUGE))

    def __del__(self):
        _let_go("metric_free", "metric", self)


_KINDS = ("counter", "gauge", "histogram")


class MetricFamily:
    """Figures of one name in /metrics."""

    COUNTER, GAUGE, HISTOGRAM = range(3)

    __slots__ = ("_kind", "_number", "__weakref__")

    def __init__(self, name, description, kind):
        if kind not in range(3):
            raise TritonModelException(f"unknown kind of metric {kind}")
        self._kind = kind
        head = {"name": name, "description": description, "metric": _KINDS[kind]}
        self._number = _server().call("family", head)[0]["family"]

    def Metric(self, labels=None, buckets=None):
        """The figure with these labels (a dict of str); a histogram has buckets, in ascending order."""
        if (self._kind == MetricFamily.HISTOGRAM) != (buckets is not None):
            raise TritonModelException("buckets are for histograms, and a histogram needs them")
        head = {"family": self._number, "labels": {str(key): str(value) for key, value in (labels or {}).items()}}
        if buckets is not None:
            head["buckets"] = [float(bound) for bound in buckets]
        return Metric(self, _server().call("metric", head)[0]["metric"])

    def __del__(self):
        _let_go("family_free", "family", self)


def _let_go(kind, key, owner):
    number = getattr(owner, "_number", None)
    if number is None or _channel is None:
        return
    try:
        _channel.post(kind, {key: number})
    except Exception:
        pass  # the server has gone, or the interpreter is ending


# ---- log ----


class Logger:
    """The server's log. All functions are the class's own: pb_utils.Logger.log_info("...")."""

    INFO, WARNING, ERROR, VERBOSE = range(4)
    _LEVELS = ("info", "warning", "error", "verbose")

    @staticmethod
    def _write(level, message):
        if _channel is None:
            print(message, file=sys.stderr)
        else:
            _channel.post("log", {"level": level, "text": str(message)})

    @staticmethod
    def log(message, level=INFO):
        Logger._write(Logger._LEVELS[level], message)

    @staticmethod
    def log_info(message):
        Logger._write("info", message)

    @staticmethod
    def log_warn(message):
        Logger._write("warning", message)

    @staticmethod
    def log_error(message):
        Logger._write("error", message)

    @staticmethod
    def log_verbose(message):
        Logger._write("verbose", message)


# ---- what the process's loop calls ----


def _auto_complete(model_class, config_text):
    """Runs auto_complete_config, if the class has one: the configuration as JSON text."""
    function = getattr(model_class, "auto_complete_config", None)
    if function is None:
        return config_text
    if not inspect.isfunction(function):
        raise TritonModelException("auto_complete_config must be a static function of the class")
    config = function(ModelConfig(config_text))
    if not isinstance(config, ModelConfig):
        raise TritonModelException(f"auto_complete_config function in model '{json.loads(config_text).get('name', '')}' must return "
                                   "a valid pb.ModelConfig object.")
    return json.dumps(config.as_dict())
