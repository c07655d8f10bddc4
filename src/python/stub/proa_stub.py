# SPDX-License-Identifier: Apache-2.0
"""The loop of a model's process: it loads model.py, executes requests, and ends with the server."""
import asyncio
import importlib.util
import inspect
import json
import mmap
import os
import socket
import struct
import sys
import threading
import traceback

READY_SECONDS = 5


def main(socket_fd, arena_fd, view_fd, parent, protocol):
    for fd in (socket_fd, arena_fd, view_fd):
        os.set_inheritable(fd, False)
    if os.getppid() != parent or protocol != 1:
        os._exit(1)
    _prefer_for_killing()
    try:
        import proa_channel
    except BaseException as error:
        _tell_without_numpy(socket_fd, view_fd, error)
        os._exit(1)
    channel = proa_channel.Channel(socket_fd, view_fd, arena_fd)
    try:
        Stub(channel, proa_channel).run()
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the server has gone
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the model's would keep us


def _prefer_for_killing():
    """Where memory runs out, the kernel ends this process and not the server."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass  # not allowed here: then it chooses by size


def _tell_without_numpy(socket_fd, arena_fd, error):
    """STARTED with an error, by hand: what else talks to the server needs numpy."""
    text = f"the interpreter {sys.executable} cannot run Python models: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name == "numpy":
        text = f"the interpreter {sys.executable} has no numpy, which Python models need"
    head = json.dumps({"error": text}).encode()
    payload = struct.pack("<IIII", len(head), 0, 0, 0) + head
    with mmap.mmap(arena_fd, 1 << 20) as memory:
        memory[65536:65536 + len(payload)] = payload
        socket.socket(fileno=socket_fd).send(struct.pack("<IIQQQQ", 64, 0, 0, 65536, len(payload), 0))


def describe(error, trace=True):
    """An exception in Triton's form: its type and text, then where it came from, innermost first."""
    text = f"{type(error).__name__}: {str(error) or '<EMPTY MESSAGE>'}"
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<")] if trace else ()
    if frames:
        text += "\n\nAt:\n" + "".join(f"  {one.filename}({one.lineno}): {one.name}\n" for one in reversed(frames))
    return text


class Stub:

    def __init__(self, channel, wire):
        self.channel, self.wire, self.model, self.loop = channel, wire, None, None
        self.name, self.decoupled, self.pb = "", False, None

    def run(self):
        channel, wire = self.channel, self.wire
        channel.say(wire.STARTED)
        tasks = channel.tasks
        does = {wire.OPEN: self.open, wire.EXECUTE: self.execute, wire.READY: self.ready}
        while True:
            channel.peer.settle()
            channel.peer.idle = True
            channel.wait(lambda: tasks)
            channel.peer.idle = False
            messages = tasks.popleft()
            if messages[0][0] == wire.CLOSE:
                break
            does[messages[0][0]](messages)
            messages = None
            channel.rest()
        self.close()

    # ---- load ----

    def open(self, messages):
        head = self.channel.read(messages[0][3], messages[0][4])[0]
        try:
            answer = self.load(head)
        except BaseException as error:  # SystemExit too: the text is what matters
            traceback.print_exc()
            answer = {"error": describe(error)}
        self.channel.say(self.wire.OPENED, 0, answer)

    def load(self, head):
        import triton_python_backend_utils as pb
        path, args = head["model_file"], head["args"]
        self.pb, self.name, self.decoupled = pb, head["name"], head["decoupled"]
        outputs = [one["name"] for one in json.loads(args["model_config"]).get("output", ())]
        pb._attach(self.channel, os.path.dirname(path), self.decoupled, args.get("model_name", ""), args.get("model_version", -1),
                   outputs)
        kind = self.load_class(path)
        if head["mode"] == "complete":
            return {"config": pb._auto_complete(kind, args["model_config"])}
        if not callable(getattr(kind, "execute", None)):
            raise pb.TritonModelException(f"Python model '{self.name}' must have an 'execute' function")
        self.model = kind()
        if hasattr(self.model, "initialize"):
            self.model.initialize(args)
        return {"is_ready": hasattr(self.model, "is_ready")}

    def load_class(self, path):
        folder, name = os.path.split(path)
        name = name[:-3] if name.endswith(".py") else name
        sys.path.insert(0, os.path.dirname(folder))
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None:
            raise ImportError(f"'{path}' is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        kind = getattr(module, "TritonPythonModel", None)
        if kind is None:
            raise AttributeError(f"'{path}' has no class TritonPythonModel")
        return kind

    # ---- execute ----

    def execute(self, messages):
        channel, pb = self.channel, self.pb
        requests = [pb._request(*channel.take_request(one)) for one in messages[1:]]
        pb._executing.number = requests[0]._number
        replies, error = (), None
        try:
            replies = self.answer(requests)
        except BaseException as caught:
            traceback.print_exc()
            error = {"error": f"Failed to process the request(s) for model '{self.name}', message: {describe(caught)}", "code": 13}
            for request in requests:
                channel.requests.pop(request._number, None)  # the server ends them all
            if isinstance(caught, SystemExit):
                self.leave(caught)
        pb._executing.number = 0
        channel.finish(replies, error)

    def leave(self, error):
        """The model wants to end its process, as exit() in a program does."""
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        sys.stdout.flush()
        os._exit(code & 255)

    def answer(self, requests):
        """Executes; the replies of requests that are answered by what was returned."""
        returned = self.model.execute(requests)
        if inspect.iscoroutine(returned):
            returned = self.run_coroutine(returned, requests)
        responses = self.pb._check_responses(returned, requests, self.decoupled, self.name)
        return [self.reply(request, response) for request, response in zip(requests, responses)
                if response is not None or request._rescheduled or not (self.decoupled or request._reply)]

    def reply(self, request, response):
        final = self.wire.FINAL
        if request._rescheduled:
            return request._number, None, (), final | self.wire.RESCHEDULE
        if response is None:
            text = f"Python model '{self.name}' has neither returned nor sent a response"
            return request._number, {"error": text, "code": 13}, (), final
        return (request._number, *self.pb._response(response, request._outputs), final)

    # ---- coroutines ----

    def run_coroutine(self, coroutine, requests):
        """Of a decoupled model it goes on beside the next executions; else it is run to its end."""
        if not self.decoupled:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
            return self.loop.run_until_complete(coroutine)
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self.watch(coroutine, requests), self.loop)
        return None

    async def watch(self, coroutine, requests):
        try:
            self.pb._check_responses(await coroutine, requests, True, self.name)
        except Exception as error:
            traceback.print_exc()
            text = f"Failed to process the request(s) for model '{self.name}', message: {describe(error)}"
            for request in requests:
                self.channel.respond(request._number, {"error": text, "code": 13}, (), True)

    # ---- the rest ----

    def ready(self, _):
        try:
            ready = self.model.is_ready()
            if inspect.iscoroutine(ready):
                ready = asyncio.run(asyncio.wait_for(ready, READY_SECONDS))
            if not isinstance(ready, bool):
                raise TypeError("is_ready() must return a boolean value")
            answer = {"ready": ready}
        except Exception as error:
            answer = {"error": describe(error, False)}
        self.channel.say(self.wire.READINESS, 0, answer)

    def close(self):
        if self.model is not None and hasattr(self.model, "finalize"):
            try:
                self.model.finalize()
            except BaseException:
                traceback.print_exc()
