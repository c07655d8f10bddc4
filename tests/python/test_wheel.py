# SPDX-License-Identifier: Apache-2.0
"""The wheel: its size, what it needs of a machine, and a translation in a fresh virtual environment."""
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("PROA", ROOT / "build/release/proa")).resolve().parent
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PROA_LIBRARY", "PYTHONPATH")}
PROGRAM = f"""
import proa
llm = proa.LLM({str(ROOT / "models/m30k-t5")!r})
outputs = llm.generate(["translate English to German: A dog runs."], proa.SamplingParams(temperature=0))
print(outputs[0].outputs[0].text, "/site-packages/" in proa.__file__)
"""


@pytest.fixture(scope="module")
def wheel():
    env = {**CLEAN, "PROA_BUILD": str(BUILD)}
    done = subprocess.run([ROOT / "tools/wheel"], env=env, capture_output=True, text=True)
    if "No matching distribution" in done.stderr or "Retrying" in done.stderr:
        pytest.skip("PyPI cannot be reached: " + done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (ROOT / "build/wheel/dist").glob("proa-*.whl")
    return path


def test_one_wheel_for_all_versions_of_python(wheel):
    tags = wheel.stem.split("-")[2:]
    assert tags[:2] == ["py3", "none"] and tags[2].startswith("manylinux_")
    assert wheel.stat().st_size < 8 << 20
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {"proa/libproa.so", "proa/_cdef.py", "proa/py.typed", "proa/session.py"} <= set(names)
    assert any("libjson-c" in name for name in names) and not any("libssl" in name for name in names)


def interpreter(version):
    """This one, one in the PATH, or one of pyenv. A shim of pyenv may stand for none."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = [*versions.glob(f"{version}.*/bin/python{version}"), shutil.which(f"python{version}")]
    for path in found:
        if path and subprocess.run([path, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0:
            return path
    pytest.skip(f"no Python {version}")


# One wheel for all of them, without code for one version: the oldest, this one and the newest. Each takes some 20 seconds.
@pytest.mark.parametrize("version", sorted({"3.9", f"3.{sys.version_info[1]}", "3.14"}))
def test_it_translates_in_a_fresh_environment(wheel, tmp_path, version):
    subprocess.run([interpreter(version), "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, env=CLEAN)
    done = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, check=True, env=CLEAN, cwd=tmp_path)
    assert done.stdout == "Ein Hund rennt. True\n"
