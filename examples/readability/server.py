# SPDX-License-Identifier: Apache-2.0
"""`proa serve` over a copy of the pipeline's configurations, for scripts that measure it."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile


class Proa:
    """proa: the program. folder: what prepare.py made. on_gpu: names of the models that run on GPU number `gpu`.
    parameters: (model, key, value) to add to configurations. options: for the command line."""

    def __init__(self, proa, folder, on_gpu=(), parameters=(), options=(), gpu=0):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="proa-readability-"))
        for source in sorted((folder / "repository").resolve().iterdir()):
            (self.folder / source.name).mkdir()
            (self.folder / source.name / "1").symlink_to(source / "1")
            config = (source / "config.pbtxt").read_text()
            if source.name in on_gpu:
                config = config.replace("kind: KIND_CPU", f"kind: KIND_GPU gpus: [ {gpu} ]")
            for model, key, value in parameters:
                if model == source.name:
                    config += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            (self.folder / source.name / "config.pbtxt").write_text(config)
        command = [proa, "serve", "--json", "--http-port=0", "--grpc-port=0", "--metrics-port=0",
                   f"--model-repository={self.folder}", *options]
        self.log = self.folder / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{proa} did not start:\n{self.log.read_text()[-3000:]}")
        ports = json.loads(line)
        self.port, self.metrics_port = ports["http_port"], ports["metrics_port"]

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder)


def parameter(text):
    """MODEL:KEY=VALUE of a command line."""
    match = re.fullmatch(r"(\w+):(\w+)=(.*)", text)
    if not match:
        raise ValueError(f"'{text}' is not MODEL:KEY=VALUE")
    return match.groups()
