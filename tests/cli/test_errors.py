# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is one line on standard error and a status that is not 0."""
import fcntl
import json
import os
import pty
import select
import re
import shutil
import signal
import struct
import subprocess
import termios

import pytest
from harness import BERT, GOLDEN, LM, PROA, T5, fails, ok, proa

COMMANDS = ["run", "serve", "client", "eval", "bench", "explain", "inspect", "convert", "tune", "pull", "chat", "top", "version"]

ANY_PORTS = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")  # another program may have the usual ones


@pytest.mark.parametrize("args, words", [
    (["run", LM, "x", "--max-token", "3"], ["unknown option '--max-token' of 'proa run'", "did you mean '--max-tokens'?"]),
    (["run", LM, "x", "--foo"], ["unknown option '--foo' of 'proa run'"]),
    (["run", LM, "x", "-t"], ["unknown option '-t'"]),
    (["run", LM, "x", "--max-tokens", "many"], ["--max-tokens 'many' is not a whole number (0.."]),
    (["run", LM, "x", "--max-tokens", "3.5"], ["--max-tokens '3.5'"]),
    (["run", LM, "x", "--max-tokens", "-1"], ["--max-tokens -1 is outside 0.."]),
    (["run", LM, "x", "--max-tokens", "99999999999999999999"], ["is outside"]),
    (["run", LM, "x", "--max-tokens"], ["--max-tokens needs a value"]),
    (["run", LM, "x", "--max-tokens="], ["--max-tokens ''"]),
    (["run", LM, "x", "--top-p", "1.5"], ["--top-p 1.5 is outside 0..1"]),
    (["run", LM, "x", "--temperature", "nan"], ["--temperature 'nan' is not a number"]),
    (["run", LM, "x", "--threads", "100000"], ["--threads 100000 is outside 0..256"]),
    (["run", LM, "x", "--json=yes"], ["--json takes no value"]),
    (["run", LM, "x", "--dtype", "f64"], ["--dtype 'f64' is none of auto|exact|f32|bf16|f16"]),
    (["run", LM, "x", "--early-stopping", "maybe"], ["none of false|true|never"]),
    (["run", LM, "x", "y"], ["'y' is one argument too many"]),
    (["run"], ["needs MODEL"]),
    (["run", LM, "x", "--ids", "1"], ["give one of PROMPT, --ids and --input"]),
    (["run", LM, "x", "--output", "y"], ["--output needs --input"]),
    (["run", LM, "x", "--beams", "2", "--penalty-alpha", "0.6"], ["contradict"]),
    (["rnu", LM], ["unknown command 'rnu' (did you mean 'run'?)"]),
    (["frobnicate"], ["unknown command 'frobnicate'"]),
    (["help", "evil"], ["did you mean 'eval'?"]),
    (["eval", LM], ["give one of --data"]),
    (["eval", T5, "--source", "x"], ["--source and --target go together"]),
    (["explain", "--synthetic", "x" * 200], ["--synthetic 'xxx", "is no NAME"]),
    (["run", LM, "x", "--kv-cache-free-gpu-mem-fraction", "1.5"], ["--kv-cache-free-gpu-mem-fraction 1.5 is outside 0..1"]),
    (["bench", LM, "--synthetic", "t5-small"], ["one argument too many"]),
    (["serve", LM, "--host-policy=x"], ["--host-policy 'x' is not of the form POLICY,SETTING=VALUE"]),
    (["serve", LM, "--pinned-memory-pool-byte-size=x"], ["--pinned-memory-pool-byte-size 'x' is not of the form BYTES"]),
    (["serve", LM, "--cuda-memory-pool-byte-size=0"], ["--cuda-memory-pool-byte-size '0' is not of the form GPU:BYTES"]),
    (["serve", LM, "--model-load-gpu-limit=0:x"], ["--model-load-gpu-limit '0:x'"]),
    (["serve", LM, "--metrics-interval-ms=x"], ["--metrics-interval-ms 'x'"]),
    (["serve", LM, "--allow-gpu-metrics=maybe"], ["--allow-gpu-metrics 'maybe' is neither true nor false"]),
    (["serve", LM, "--vertex-ai-port=x"], ["--vertex-ai-port 'x'"]),
    (["serve", LM, "--response-cache-byte-size=9999", "--cache-config=local,size=9999"], ["Incompatible flags --response-cache-byte-size and"]),
    (["serve", LM, "--cache-config=local,size=0"], ["--cache-config 'local,size=0'"]),
    (["serve", LM, "--model-config-name="], ["empty argument for --model-config-name"]),
    (["serve", LM, "--api-key="], ["empty argument for --api-key"]),
    (["serve", LM, "--port", "9000"], ["unknown option '--port'", "did you mean '--http-port'?"]),
    (["serve", LM, "--tp_size=2"], ["unknown option '--tp_size'", "did you mean '--tp'?"]),
    (["run", LM, "x", "--num-beams", "4"], ["did you mean '--beams'?"]),
    (["run", LM, "x", "--port", "9000"], ["unknown option '--port' of 'proa run' (see 'proa run --help')"]),
    *[([command, LM, *more, "--device", device], [f"--device: device '{device}' is none of cpu, cuda, cuda:N"])
      for command, more in (("run", ["x"]), ("serve", []), ("chat", []), ("convert", ["/nowhere"]))
      for device in ("gpu", "tpu", "cuda:", "cuda:x", "")],
    (["serve", LM, "--backend-config", "engine,kv_tokns=64"], ["engine,kv_tokns: backend 'engine' has no such setting", "'kv_tokens'?"]),
    (["serve", LM, "--backend-config=engine,nothing_of_it=1"], ["engine,nothing_of_it: backend 'engine' has no such setting"]),
    ([], ["no command given"]),
])
def test_wrong_usage(args, words):
    line = fails(*args, status=2)
    assert all(word in line for word in words), line


@pytest.mark.parametrize("args, words", [
    (["run", "/nonexistent", "x"], ["/nonexistent"]),
    (["run", GOLDEN, "x"], ["config.json"]),
    (["run", LM / "config.json", "x"], ["config.json"]),
    (["run", LM, "x", "--quant", "fp8"], ["quant 'fp8' is made on a GPU only"]),
    (["run", LM, "x", "--kv-dtype", "fp8"], ["kv-dtype 'fp8' is offered on a GPU only"]),
    (["run", LM, "x", "--lora-max", "1", "--lora-dtype", "fp8"], ["lora-dtype 'fp8' is offered beside weights in fp8 only"]),
    (["run", LM, "--ids", "5 x 7"], ["--ids: 'x' is not a whole number"]),
    (["run", LM, "--ids", "5 -7"], ["--ids: -7 is outside 0.."]),
    (["run", LM, "--ids", ""], ["--ids is empty"]),
    (["run", LM, "--ids", "1 99999"], ["99999", "0 to 8191"]),
    (["run", T5, "--ids", "1 2", "--decoder-ids", "0 99999"], ["99999", "0 to 8063"]),
    (["run", LM, "x", "--device", "cuda:99"], ["device 'cuda:99'"]),  # no plug-in, no driver, no GPU, or not so many
    (["bench", LM, "--device", "cuda:99"], ["device 'cuda:99'"]),
    (["bench", "--synthetic", "gptj-6b"], ["'synthetic:gptj-6b'", "on a GPU only"]),
    (["run", "--ids=5", "--synthetic=gptj"], ["no synthetic model is named 'gptj'", "gptj-6b, llama2-7b"]),
    (["run", LM, "word " * 5000, "--max-tokens", "4"], ["the model takes at most 1023"]),
    (["run", LM, "--input", "/nonexistent"], ["cannot open '/nonexistent'"]),
    (["run", LM, "--input", GOLDEN], ["it is a folder"]),
    (["run", LM, "--input", "-", "--output", "/nonexistent/out"], ["cannot write '/nonexistent/out'"]),
    (["run", GOLDEN / "arch/llama", "text needs a tokenizer"], ["tokenizer"]),
    (["run", GOLDEN / "arch/llama", "--input", "-"], ["tokenizer"]),
    (["run", LM, "--ids", "1", "--kv-tokens", "64", "--max-tokens", "500"], ["--kv-tokens"]),
    (["run", T5, "x", "--kv-tokens", "4000000000"], ["needs ", "weights 28.1 MB", "(--step-tokens)", "; --kv-tokens ", " would fit"]),
    (["tune", LM, "--device", "cuda:99"], ["device 'cuda"]),
    (["serve", LM, *ANY_PORTS, "--rate-limit-resource=R1", "--log-info=false"], ["--rate-limit-resource option format is", "Got R1"]),
    (["serve", LM, *ANY_PORTS, "--rate-limit-resource=R1:x", "--log-info=false"], ["Got R1:x"]),
    (["bench", LM, "--batches", ""], ["--batches is empty"]),
    (["bench", LM, "--batches", "0"], ["--batches: 0 is outside 1..4096"]),
    (["bench", LM, "--prompt", "1024"], ["--prompt 1024", "context"]),
    (["eval", LM, "--data", "/nonexistent"], ["/nonexistent"]),
    (["eval", LM, "--golden", "/nonexistent"], ["/nonexistent"]),
    (["eval", BERT, "--data", "x"], ["perplexity"]),
    (["eval", LM, "--labels", "x"], ["head"]),
    (["explain", "/nonexistent"], ["/nonexistent"]),
])
def test_one_clear_line(args, words):
    line = fails(*args, stdin="x\n")
    assert all(word in line for word in words), line


def test_nothing_is_printed_before_a_failure():
    assert proa("run", LM, "--ids", "1 99999", "--json").stdout == ""


def test_a_plot_that_cannot_be_written_is_told_before_measuring(tmp_path):
    for path in (tmp_path / "none/plot.svg", tmp_path):
        run = proa("bench", LM, "--batches", 1, "--plot", path)
        assert run.returncode == 1 and run.stdout == "", run
        assert run.stderr.startswith(f"proa: cannot write '{path}': ") and len(run.stderr.splitlines()) == 1
    proa("bench", tmp_path / "no-model", "--plot", tmp_path / "plot.svg")
    assert not list(tmp_path.iterdir())  # nothing is left where nothing was drawn


def test_closed_pipe():
    """A reader that has gone is an error, not a killing signal."""
    r, w = os.pipe()
    os.close(r)
    p = subprocess.run([PROA, "run", LM, "It was", "--max-tokens", "50"], stdout=w, stderr=subprocess.PIPE, text=True)
    os.close(w)
    assert p.returncode == 1 and p.stderr.splitlines()[-1] == "proa: cannot write to standard output: Broken pipe"


@pytest.mark.parametrize("args", [["help", "serve"], ["run", "--help"], ["help"], ["help", "decoding"]])
def test_help_into_a_closed_pipe(args):
    """`proa help run | head` says nothing about its reader."""
    r, w = os.pipe()
    os.close(r)
    p = subprocess.run([PROA, *args], stdout=w, stderr=subprocess.PIPE, text=True)
    os.close(w)
    assert p.stderr == "" and p.returncode == -signal.SIGPIPE


def test_help_of_help():
    assert proa("help", "--help").stdout == proa("help", "-h").stdout == proa("help").stdout != ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("args", [
    ["run", LM, "It was", "--max-tokens", "5"], ["run", LM, "It was", "--max-tokens", "5", "--json"],
    ["run", LM, "--logits", "--ids", "1"], ["version"], ["version", "--json"], ["explain", LM, "--no-measure"],
    ["run", LM, "--input", "/dev/null", "--output", "/dev/full"], ["help"], *[["help", command] for command in COMMANDS],
    ["eval", BERT, "--labels", GOLDEN / "data/polarity-test.tsv", "--limit", "5"],
])
def test_full_disk(args):
    with open("/dev/full", "w") as full:
        p = subprocess.run([PROA, *args], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    expected = 0 if "/dev/null" in args else 1  # no line in, no byte out
    assert p.returncode == expected, p.stderr
    if expected:
        assert "cannot write to standard output" in p.stderr.splitlines()[-1]


def test_full_output_file(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    line = fails("run", LM, "--input", "-", "--output", "/dev/full", "--max-tokens", 2, stdin="a\nb\n")
    assert "cannot write to /dev/full" in line


def test_a_line_that_is_too_long(tmp_path):
    (tmp_path / "in").write_text("It was\n" + "x" * ((1 << 20) + 1) + "\n")
    run = proa("run", LM, "--input", tmp_path / "in", "--max-tokens", 2)
    assert run.returncode == 1 and len(run.stdout.splitlines()) == 1  # what came before it is there
    assert ":2: the line is longer than 1048576 bytes" in run.stderr.splitlines()[-1]


def test_a_truncated_gzip_file(tmp_path):
    whole = (GOLDEN / "data/test_2016_flickr.en.gz").read_bytes()
    (tmp_path / "in.gz").write_bytes(whole[:500])
    assert "cannot unpack" in fails("eval", LM, "--data", tmp_path / "in.gz")


def test_a_broken_model_folder(tmp_path):
    shutil.copytree(GOLDEN / "arch/llama", tmp_path / "m")
    weights = tmp_path / "m/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors" in fails("run", tmp_path / "m", "--ids", "1")
    (tmp_path / "m/config.json").write_text("{")
    assert "config.json" in fails("run", tmp_path / "m", "--ids", "1")


def test_control_characters_do_not_reach_the_terminal():
    line = fails("run", "no\x1b[31m\nmodel", "x")
    assert "\x1b" not in line


@pytest.mark.parametrize("command", ["run", "eval", "bench", "explain", "version"])
def test_help_names_every_common_option(command):
    text = ok(command, "--help")
    assert text == ok("help", command)
    for option in ("--device", "--dtype", "--quant", "--threads", "--seed", "--json"):
        assert option in text
    assert text.startswith(f"usage: proa {command}") and "examples" in text


def test_help_as_json_has_the_rows_of_the_text():
    commands = json.loads(ok("help", "--json"))["commands"]
    assert [c["name"] for c in commands] == COMMANDS
    for command in commands:
        text = ok("help", command["name"])
        rows = [row for table in command["tables"] for row in table["rows"]]
        assert text.startswith(f"usage: {command['usage']}\n") and len(rows) == len(re.findall(r"^  (?:--)?\w\S*", text.split("\nexamples\n")[0], re.M))
        for row in rows:
            assert re.search(rf"^  {re.escape(row['name'])}(?: |$)", text, re.M), row
            assert (row["help"] or "").split(" ")[0] in text
    assert json.loads(ok("help", "top", "--json"))["commands"][0] == next(c for c in commands if c["name"] == "top")
    fails("help", "nothing", "--json", status=2)


def help_on_terminal(columns, *args):
    """The help as a terminal of so many columns shows it."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = subprocess.Popen([PROA, "help", *args], stdin=subprocess.DEVNULL, stdout=its, stderr=its)
    text = b""
    # `its` stays open: once no process has it, a read may fail before the last bytes have come through
    while child.poll() is None or select.select([ours], [], [], 0.1)[0]:
        if select.select([ours], [], [], 0.02)[0]:
            text += os.read(ours, 65536)
    os.close(its)
    os.close(ours)
    assert child.wait(60) == 0
    return text.decode().replace("\r\n", "\n")


def width_of(text):
    return max(map(len, text.split("\nexamples\n")[0].splitlines()))


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_is_wrapped_to_the_terminal(command):
    args = [command] if command else []
    text = ok("help", *args)
    assert 60 < width_of(text) <= 80
    assert help_on_terminal(80, *args) == text
    assert width_of(help_on_terminal(70, *args)) <= 70
    wide = help_on_terminal(300, *args)
    assert width_of(wide) <= 120
    assert wide.split() == text.split()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_a_straight_column(command):
    lines = ok(command, "--help").split("\nexamples\n")[0].splitlines()
    for line, after in zip(lines, [*lines[1:], ""]):
        if line.startswith(28 * " "):
            assert line[28] != " " and "(default )" not in line
        elif line.startswith("  --") and not after.startswith(28 * " "):
            assert line[27] == " " and line[28] != " " and "(default )" not in line, line


def test_common_options_are_taken_everywhere():
    ok("version", "--device", "cpu", "--dtype", "bf16", "--quant", "none", "--threads", "1", "--seed", "3", "--json")


def test_features():
    assert ok("version").startswith("proa ")
    assert "cuda" in ok("version", "--features") and "zlib" in ok("version", "--features")
