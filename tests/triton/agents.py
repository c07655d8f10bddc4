# SPDX-License-Identifier: Apache-2.0
"""One compiled repository agent (tests/wire/libraries/triton_agent.c) in both servers: the calls that it gets while models
are loaded, answer and are unloaded."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import models
from parts import Scene, answer_of, load, settle, wait_for
from servers import ROOT, Pair

# Models and the parameters of their agents.
AGENTS = {
    "plain": [{}, {}],
    "moved": [{"move": "yes"}, {}],
    "twice": [{}, {"move": "yes"}],
    "refused": [{}, {"fail": "LOAD"}],
    "late": [{"late": "LOAD_COMPLETE"}, {"fail": "UNLOAD"}],
    "broken": [{"move": "yes"}, {}],
}
# OUT: does it run from the copy that an agent has made?
CODE = """
def initialize(self, args):
    import os
    here = os.path.dirname(os.path.abspath(__file__))
    if os.path.exists(os.path.join(here, "broken")):
        raise ValueError("broken")
    self.opened = os.path.exists(os.path.join(here, "opened"))

def execute(self, requests):
    return [out(np.array([self.opened], np.int32)) for _ in requests]
"""


def write(folder, name, probes, log):
    agents = ""
    for number, probe in enumerate(probes):
        values = {"log": log, "name": number, **probe}
        agents += 'agents { name: "probe" %s } ' % " ".join(f'parameters {{ key: "{k}" value: "{v}" }}' for k, v in values.items())
    models.write_python(folder, name, CODE, "IN:INT32:-1", "OUT:INT32:-1", more=f"model_repository_agents {{ {agents} }}")
    (folder / name / "1/sealed").write_text("")
    if name == "broken":
        (folder / name / "1/broken").write_text("")


def calls_of(log):
    return log.read_text().splitlines() if log.exists() else []


def story(server, model, log):
    """One life of a model. Triton finishes the agents of a failed load later, if at all; and has another status for it."""
    log.unlink(missing_ok=True)
    loaded = load(server, model) == 200
    answer = answer_of(server, model) if loaded else None
    if loaded:
        load(server, model, unload=True)
        wait_for(lambda: sum("finalize" in call for call in calls_of(log)) == len(AGENTS[model]), 10)
    calls = [call for call in calls_of(log) if loaded or "finalize" not in call]
    return {"loaded": loaded, "answer": answer, "calls": calls}


def compare_agents(_, report):
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        print("no compiler: the agent is not compared")
        return
    with tempfile.TemporaryDirectory(prefix="proa-agents-") as folder:
        repository, library = pathlib.Path(folder) / "repository", pathlib.Path(folder) / "agents/probe/libtritonrepoagent_probe.so"
        log = pathlib.Path(folder) / "log"
        library.parent.mkdir(parents=True)
        subprocess.run([compiler, "-shared", "-fPIC", "-fvisibility=hidden", ROOT / "tests/wire/libraries/triton_agent.c", "-o", library],
                       check=True)
        for name, probes in AGENTS.items():
            write(repository, name, probes, log)
        with Pair(folder, [repository], ["--model-control-mode=explicit", f"--repoagent-directory={library.parents[1]}"]) as pair:
            for name in AGENTS:
                found = [story(server, name, log) for server in pair.both()]
                report.check(f"agents: '{name}' has been called", found[0]["calls"])
                report.judge(Scene(f"agents: {name}"), *found)
                settle(pair)
