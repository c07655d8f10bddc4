# SPDX-License-Identifier: Apache-2.0
"""The binding against the library: declarations, errors, threads, fork, the end of the interpreter."""
import gc
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

import proa
from proa._lib import ffi, lib

ROOT = pathlib.Path(__file__).parents[2]
T5 = ROOT / "models/m30k-t5"
PROMPT = "translate English to German: A dog runs."
GREEDY = proa.SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def llm():
    with proa.LLM(T5) as model:
        yield model


def test_the_layout_of_structs_is_the_compiler_s(tmp_path):
    """cffi in ABI mode computes sizes and offsets itself; a C compiler says what they are."""
    names = ("engine_options", "info", "options", "request", "event", "beam_result", "stats", "decoder_session_input")
    lines = []
    for name in names:
        fields = ffi.typeof(f"proa_{name}").fields
        lines += [f'printf("%zu\\n", offsetof(proa_{name}, {field}));' for field, _ in fields]
        lines += [f'printf("%zu\\n", sizeof(proa_{name}));']
    source = "#include <proa/proa.h>\n#include <stdio.h>\nint main(void) {" + "\n".join(lines) + "}"
    (tmp_path / "layout.c").write_text(source)
    cc = os.environ.get("CC", "cc")
    subprocess.run([cc, "-I", ROOT / "include", tmp_path / "layout.c", "-o", tmp_path / "layout"], check=True)
    theirs = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.split()
    ours = []
    for name in names:
        kind = ffi.typeof(f"proa_{name}")
        ours += [ffi.offsetof(kind, field) for field, _ in kind.fields] + [ffi.sizeof(kind)]
    assert ours == [int(n) for n in theirs]


def test_every_function_of_the_header_is_exported():
    for name in dir(lib):
        if name.startswith("proa_") and not name.startswith("proa_status_"):
            getattr(lib, name)


def test_a_number_out_of_range_names_the_option(llm):
    with pytest.raises(proa.InvalidArgumentError, match=r"'temperature' is -1, must be 0 to 10000"):
        llm.generate(PROMPT, proa.SamplingParams(temperature=-1))


def test_an_unknown_option_names_the_closest(llm):
    with pytest.raises(ValueError, match="did you mean 'temperature'"):
        llm.generate(PROMPT, proa.SamplingParams(extra_args={"temprature": 1}))


def test_an_unknown_engine_option_is_named():
    with pytest.raises(TypeError, match="unknown engine option 'thread'"):
        proa.LLM(T5, thread=2)


def test_a_missing_folder_is_not_found():
    with pytest.raises(proa.NotFoundError, match="/nonexistent"):
        proa.LLM("/nonexistent")


def test_a_text_with_nul_and_beyond_ascii_passes_whole(llm):
    ids = llm.engine.encode("Ein Mädchen \0 läuft.")
    assert len(ids) > len(llm.engine.encode("Ein Mädchen "))


def test_many_threads_share_an_engine(llm):
    texts = []

    def run():
        texts.append(llm.generate(PROMPT, GREEDY)[0].outputs[0].text)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["Ein Hund rennt."] * 8


def test_the_gil_is_released_while_the_engine_runs():
    """A thread that waits for the library does not hold up another one."""
    with proa.LLM(ROOT / "models/classics-10m", threads=1) as model:
        params = proa.SamplingParams(temperature=0, max_tokens=300, ignore_eos=True)
        worker = threading.Thread(target=model.generate, args=("It was", params))
        turns = 0
        worker.start()
        while worker.is_alive():
            turns += 1
            time.sleep(0.001)
        assert turns > 5


def test_a_child_of_a_fork_gets_an_error_and_may_open_again(llm):
    code = f"""
import os, sys, proa
llm = proa.LLM({str(T5)!r})
greedy = proa.SamplingParams(temperature=0)
assert llm.generate({PROMPT!r}, greedy)[0].outputs[0].text == "Ein Hund rennt."
child = os.fork()
if child == 0:
    try:
        llm.generate({PROMPT!r}, greedy)
    except proa.UnavailableError as error:
        assert "before a fork" in str(error)
        text = proa.LLM({str(T5)!r}).generate({PROMPT!r}, greedy)[0].outputs[0].text
        sys.exit(7 if text == "Ein Hund rennt." else 1)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert llm.generate({PROMPT!r}, greedy)[0].outputs[0].text == "Ein Hund rennt."
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_engine_that_is_left_open_does_not_hold_up_the_end():
    code = f"""
import proa, sys
engine = proa.LLM({str(ROOT / 'models/classics-10m')!r}).engine
engine.submit(text="It was", options={{"max_tokens": 400, "ignore_eos": True}}, changed=lambda request, done: None)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_closed_engine_says_so():
    model = proa.LLM(T5)
    model.close()
    model.close()
    with pytest.raises(proa.UnavailableError, match="the engine is closed"):
        model.generate(PROMPT, GREEDY)


def test_an_engine_without_owner_is_freed():
    threads = len(os.listdir("/proc/self/task"))
    model = proa.LLM(T5)
    assert len(os.listdir("/proc/self/task")) > threads
    del model
    gc.collect()
    assert len(os.listdir("/proc/self/task")) <= threads


def test_options_in_json_are_freed_with_their_lists():
    out, err = ffi.new("proa_options **"), ffi.new("proa_err *")
    assert lib.proa_options_new(out, b'{"stop_strings": ["a"], "top_k": 3}', err) == lib.PROA_OK
    assert out[0].top_k == 3 and ffi.string(out[0].stop_strings.text[0]) == b"a"
    lib.proa_options_free(out[0])
    for text in (b"[]", b"{", b'{"top_k": "x"}'):
        assert lib.proa_options_new(out, text, err) == lib.PROA_INVALID
        assert out[0] == ffi.NULL
