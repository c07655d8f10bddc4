# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium spoken to through its DevTools pipe: enough to open a page, type, and ask what it shows."""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="proa-browser-")
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()
        # Chromium reads commands from its file 3 and writes answers to its file 4
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (read_there, write_there)]
        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", "about:blank"], pass_fds=(3, 4), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)))
        for fd in ends:
            os.close(fd)
        os.close(read_there)
        os.close(write_there)
        self.input, self.output = os.fdopen(read_here, "rb"), os.fdopen(write_here, "wb")
        self.count, self.rest, self.errors, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.output.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.input.close()
        self.profile.cleanup()

    def _message(self):
        while b"\0" not in self.rest:
            more = os.read(self.input.fileno(), 65536)
            if not more:
                raise AssertionError("the browser has gone")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.output.write(json.dumps(message).encode() + b"\0")
        self.output.flush()
        while (answer := self._message()).get("id") != self.count:
            self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _note(self, event):
        """What a user would find in the console."""
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])

    def look(self, width=1440, height=900, dark=False, calm=False):
        """The size of the window, the colours and whether motion is to be reduced."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}])

    def open(self, url, **look):
        """A fresh page, without what earlier ones have stored."""
        self.look(**look)
        self.errors.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Storage.clearDataForOrigin", origin=url.split("#")[0].rstrip("/"), storageTypes="all")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def ask(self, expression):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.ask(f"!!({expression})"):
            assert time.monotonic() < end, f"never: {expression}"
            time.sleep(0.05)

    def press(self, key, shift=False):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
                      modifiers=8 if shift else 0, **(text if kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def fill(self, element, text):
        """Sets a field by its id, as a user who types or pastes."""
        self.ask(f"(e => {{ e.value = {json.dumps(text)}; for (const kind of ['input', 'change']) "
                 f"e.dispatchEvent(new Event(kind, {{bubbles: true}})); }})(document.getElementById({json.dumps(element)}))")

    def click(self, selector):
        self.ask(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector):
        return self.ask(f"document.querySelector({json.dumps(selector)}).innerText")

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
