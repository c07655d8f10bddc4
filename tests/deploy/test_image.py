# SPDX-License-Identifier: Apache-2.0
"""packaging/Dockerfile as packaging/chroot-image reads it: stages, users, versions. It is built by hand (docs/install.md)."""

import importlib.machinery
import importlib.util
import re
from pathlib import Path

import pytest

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
IMAGES = ("hosts", "cuda", "cuda-hosts", None)  # None: what is made without --target


@pytest.fixture(scope="module")
def stages():
    loader = importlib.machinery.SourceFileLoader("chroot_image", str(PACKAGING / "chroot-image"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("chroot_image", loader))
    loader.exec_module(module)
    return module.stages_of(PACKAGING / "Dockerfile")


def steps_of(stages, stage):
    """All instructions of a stage, those of its beginning first."""
    start, steps = stages[stage]
    return (steps_of(stages, start) if start in stages else []) + steps


def test_images_of_the_head(stages):
    head = (PACKAGING / "Dockerfile").read_text().split("FROM", 1)[0]
    assert set(re.findall(r"^#   ([a-z-]+)  ", head, re.M)) == {name for name in IMAGES if name}
    assert {name for name in IMAGES if name} <= set(stages)


@pytest.mark.parametrize("image", IMAGES)
def test_images_run_as_a_user(stages, image):
    steps = steps_of(stages, image)
    assert [argument for name, argument in steps if name == "USER"][-1] == "proa"
    assert ("ENTRYPOINT", '["proa"]') in steps
    root = [argument for name, argument in steps if name == "RUN" and "apt-get install" in argument]
    assert root and all("rm -rf /packages /var/lib/apt/lists/*" in argument for argument in root)


def test_files_come_from_earlier_stages(stages):
    earlier = []
    for stage, (start, steps) in stages.items():
        assert start == "debian:12-slim" or start in earlier
        for name, argument in steps:
            if name == "COPY" and argument.startswith("--from="):
                assert argument.split()[0][7:] in earlier
        earlier.append(stage)


def test_an_image_for_gpus_has_cublaslt_only(stages):
    copied = [argument for name, argument in steps_of(stages, "cuda") if name == "COPY"]
    assert [re.findall(r"lib\w+\.so\.\d+", argument)[0] for argument in copied if ".so" in argument] == ["libcublasLt.so.13"]
    environment = dict(pair.split("=") for name, argument in steps_of(stages, "cuda") if name == "ENV" for pair in argument.split())
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_wheels_have_one_version(stages):
    commands = " ".join(argument for name, argument in stages["build-cuda"][1] if name == "RUN")
    wheels = dict(re.findall(r"(nvidia-[a-z0-9-]+)==([0-9.]+)", commands))
    assert wheels["nvidia-cuda-nvcc"] == wheels["nvidia-cuda-crt"] == wheels["nvidia-nvvm"]
    assert {wheels[name].split(".")[0] for name in wheels if "nccl" not in name} == {"13"}
