#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes NAME.json beside each NAME.pb: what Google's protobuf (PyPI, 7.36.2) prints as JSON, with the options that Triton
sets. tests/unit/proto/test_proto_json.c reads them. Needs protoc."""
import pathlib
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

here = pathlib.Path(__file__).resolve().parent
with tempfile.NamedTemporaryFile() as f:
    subprocess.run(["protoc", "-I", here.parents[2] / "src/proto", "-o", f.name, "model_config.proto"], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(f.name).read_bytes())
pool = descriptor_pool.DescriptorPool()
for file in files.file:
    pool.Add(file)
ModelConfig = message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))
for wire in sorted(here.glob("*.pb")):
    text = json_format.MessageToJson(ModelConfig.FromString(wire.read_bytes()), preserving_proto_field_name=True,
                                     always_print_fields_with_no_presence=True, indent=1, sort_keys=True)
    wire.with_suffix(".json").write_text(text + "\n")
