# SPDX-License-Identifier: Apache-2.0
"""The examples of deploy/: manifests against their schemas, and what each must have: probes, an end that waits, no root."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "proa"
PROA = os.environ.get("PROA", str(ROOT / "build" / "release" / "proa"))

VALUES = {
    "defaults": {},
    "gpus": {"gpus": 4, "replicas": 3, "args": ["--tp", "4"], "runtimeClassName": "nvidia"},
    "secrets": {"hfTokenSecret": "hub", "apiKeysSecret": "keys", "metrics": {"podMonitor": True, "annotations": False}},
    "hosts": {"hosts": 2, "replicas": 2, "gpus": 8, "hostKeysSecret": "group", "cache": {"existingClaim": "models"}},
    "claim": {"cache": {"existingClaim": "models"}, "service": {"type": "LoadBalancer"}, "drainSeconds": 300},
}


def render(values):
    """The objects that the chart makes, by kind and name."""
    helm = pytest.importorskip("helm_python")
    texts = helm.Chart.load(str(CHART)).render(values, name="chat", namespace="llm")
    objects = [o for name, text in texts.items() if name.endswith(".yaml") for o in yaml.safe_load_all(text) if o]
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def pod_of(objects):
    """The pod that serves: the leader of several hosts."""
    if ("StatefulSet", "chat") in objects:
        return objects["StatefulSet", "chat"]["spec"]["template"]["spec"]
    return group_of(objects)["leaderTemplate"]["spec"]


def group_of(objects):
    return objects["LeaderWorkerSet", "chat-hosts"]["spec"]["leaderWorkerTemplate"]


def pods_of(objects):
    """All pods."""
    several = ("LeaderWorkerSet", "chat-hosts") in objects
    return [pod_of(objects), group_of(objects)["workerTemplate"]["spec"]] if several else [pod_of(objects)]


def parts_for_kubernetes(manifest):
    """What of a manifest Kubernetes' own schemas describe; the rest is checked here."""
    if manifest["kind"] == "PodMonitor":  # of an operator, whose schema is not at hand
        assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
        return []
    if manifest["kind"] != "LeaderWorkerSet":
        return [manifest]
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(manifest, json.loads((Path(__file__).parent / "leaderworkerset.schema.json").read_text()))
    group = manifest["spec"]["leaderWorkerTemplate"]
    return [{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": group[name]}
            for name in ("leaderTemplate", "workerTemplate")]  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_manifests_are_valid(name):
    validate = pytest.importorskip("kubernetes_validate")
    for manifest in render(VALUES[name]).values():
        for part in parts_for_kubernetes(manifest):
            for version in ("1.30", validate.latest_version()):
                validate.validate(part, version, strict=True)


def test_the_schema_of_leaderworkersets_refuses():
    jsonschema = pytest.importorskip("jsonschema")
    manifest = render(VALUES["hosts"])["LeaderWorkerSet", "chat-hosts"]
    for place, name, value in ((manifest["spec"], "replica", 1), (group_of({("LeaderWorkerSet", "chat-hosts"): manifest}), "size", 0)):
        before = dict(place)
        place[name] = value
        with pytest.raises(jsonschema.ValidationError):
            parts_for_kubernetes(manifest)
        place.clear()
        place.update(before)


@pytest.mark.parametrize("name", VALUES)
def test_pods_are_confined(name):
    for pod in pods_of(render(VALUES[name])):
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert not pod["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {m["mountPath"] for m in container["volumeMounts"]} >= {"/cache", "/tmp", "/dev/shm"}
        assert {"name": "HF_HOME", "value": "/cache/huggingface"} in container["env"]


@pytest.mark.parametrize("name", VALUES)
def test_pods_start_and_end_in_time(name):
    pod = pod_of(render(VALUES[name]))
    container = pod["containers"][0]
    drain = int(container["args"][container["args"].index("--exit-timeout-secs") + 1])
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert drain == VALUES[name].get("drainSeconds", 60)
    assert pod["terminationGracePeriodSeconds"] > drain + wait
    probes = {"startupProbe": "ready", "readinessProbe": "ready", "livenessProbe": "live"}
    if "hosts" in VALUES[name]:
        del probes["livenessProbe"]  # proa-group restarts the server
        assert "livenessProbe" not in container
    for probe, path in probes.items():
        assert container[probe]["httpGet"] == {"path": f"/v2/health/{path}", "port": "http"}
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 3600
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports == {"http": 8000, "grpc": 8001, "metrics": 8002}


def test_a_group_of_several_hosts():
    objects = render(VALUES["hosts"])
    assert ("StatefulSet", "chat") not in objects and group_of(objects)["size"] == 2
    leader, worker = pods_of(objects)
    for pod in (leader, worker):
        container = pod["containers"][0]
        assert container["command"] == ["proa-host"] and container["args"][0] == "serve"
        assert {"name": "PROA_HOST_RANKS", "value": "8"} in container["env"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
        assert {"name": "host-keys", "mountPath": "/host-keys", "readOnly": True} in container["volumeMounts"]
    # All pods get SIGTERM at once. The worker's ranks must outlive the last request of the leader.
    wait = int(worker["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    drain = int(leader["containers"][0]["args"][leader["containers"][0]["args"].index("--exit-timeout-secs") + 1])
    first = int(leader["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert drain + first < wait < worker["terminationGracePeriodSeconds"]
    for service in (objects["Service", "chat"], objects["Service", "chat-pods"]):
        assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert ("Service", "chat-hosts") not in objects  # LeaderWorkerSet makes it


@pytest.mark.parametrize("missing, message", [("hostKeysSecret", "id and id.pub"), ("cache", "cache.existingClaim")])
def test_a_group_without_what_it_needs_is_refused(missing, message):
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=message):
        render({name: value for name, value in VALUES["hosts"].items() if name != missing})


def test_values_become_options():
    objects = render(VALUES["gpus"])
    container = pod_of(objects)["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert container["resources"]["limits"]["memory"] == "8Gi"
    assert container["args"][2:4] == ["--device", "cuda"] and container["args"][-2:] == ["--tp", "4"]
    assert ("PodDisruptionBudget", "chat") in objects
    objects = render(VALUES["secrets"])
    container = pod_of(objects)["containers"][0]
    assert container["args"][container["args"].index("--api-key-file") + 1] == "/keys/keys"
    assert ("PodMonitor", "chat") in objects and ("PodDisruptionBudget", "chat") not in objects
    token = next(e for e in container["env"] if e["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "hub", "key": "token"}
    stateful = render(VALUES["claim"])["StatefulSet", "chat"]["spec"]
    assert "volumeClaimTemplates" not in stateful
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "models"}} in stateful["template"]["spec"]["volumes"]


@pytest.mark.parametrize("values", [{"gpus": -1}, {"model": ""}, {"modle": "x"}, {"service": {"type": "Elsewhere"}}])
def test_wrong_values_are_refused(values):
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError):
        helm.Chart.load(str(CHART)).validate_schema(values)


@pytest.mark.parametrize("name", ["compose.yaml", "gpu.yaml"])
def test_compose_files(name):
    pytest.importorskip("check_jsonschema")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose" / name],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    service = yaml.safe_load((DEPLOY / "compose" / name).read_text())["services"]["proa"]
    assert service["command"][0] == "serve"
    if name == "compose.yaml":
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        drain = int(service["command"][service["command"].index("--exit-timeout-secs") + 1])
        assert int(service["stop_grace_period"].rstrip("s")) > drain


def test_health_check_of_compose():
    """It fails where nothing listens, and its request is one that a server takes."""
    check = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]["proa"]["healthcheck"]["test"]
    assert check[:3] == ["CMD", "bash", "-c"]
    away = check[3].replace("8000", "9")
    assert subprocess.run(["bash", "-c", away], capture_output=True, timeout=20, check=False).returncode != 0
    assert subprocess.run(["bash", "-nc", check[3]], timeout=20, check=False).returncode == 0


def test_unit():
    unit = (DEPLOY / "systemd" / "proa.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    assert settings["DynamicUser"] == "yes" and settings["ProtectSystem"] == "strict"
    drain = int(re.search(r"--exit-timeout-secs (\d+)", settings["ExecStart"]).group(1))
    assert int(settings["TimeoutStopSec"]) > drain
    for line in (DEPLOY / "systemd" / "proa-gpu.conf").read_text().splitlines():
        assert line.startswith(("#", "[Service]")) or "=" in line


def test_systemd_verifies_the_unit(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("no systemd-analyze")
    unit = (DEPLOY / "systemd" / "proa.service").read_text().replace("/usr/bin/proa", "/bin/true")
    (tmp_path / "proa.service").write_text(unit)  # the program need not be installed
    done = subprocess.run([analyze, "verify", "--man=no", tmp_path / "proa.service"], capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "proa.service" in line]
    assert not complaints and done.returncode == 0, done.stderr


def test_slurm_script(tmp_path):
    """It runs a program that stands for `proa`, passes its options, and passes SIGTERM on."""
    script = DEPLOY / "slurm" / "proa.sbatch"
    assert subprocess.run(["bash", "-n", script], timeout=20, check=False).returncode == 0
    program = tmp_path / "proa"
    program.write_text('#!/bin/bash\necho "$@" >&2\ntrap "echo drained >&2; exit 0" TERM\nkill -TERM $PPID\nsleep 20 >/dev/null 2>&1 & wait\n')
    program.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MODEL": "m", "PROA": str(program), "PROA_ARGS": "--tp 2",
           "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "3"}  # fmt: skip
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert "serve m --device cuda --http-port 20007" in done.stderr and "--tp 2" in done.stderr
    assert "--threads 3" in done.stderr and "drained" in done.stderr
    missing = subprocess.run(["bash", script], env={"PATH": env["PATH"], "HOME": "/"}, capture_output=True, text=True,
                             timeout=20, check=False)  # fmt: skip
    assert missing.returncode != 0 and "MODEL" in missing.stderr


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_options_exist():
    """Each option of `proa serve` that an example gives."""
    if not Path(PROA).exists():
        pytest.skip("proa is not built")
    known = options_of(subprocess.run([PROA, "serve", "--help"], capture_output=True, text=True, timeout=20,
                                      check=False).stdout)  # fmt: skip
    given = set()
    for values in VALUES.values():
        given |= options_of(json.dumps(pod_of(render(values))["containers"][0]["args"]))
    for name in ("compose/compose.yaml", "compose/gpu.yaml"):
        service = yaml.safe_load((DEPLOY / name).read_text())["services"]["proa"]
        given |= options_of(" ".join(service["command"]))
    given |= options_of(re.search(r"ExecStart=.*", (DEPLOY / "systemd" / "proa.service").read_text()).group())
    given |= options_of((DEPLOY / "systemd" / "proa.env").read_text())
    given |= options_of((DEPLOY / "slurm" / "proa.sbatch").read_text().split('"$proa" serve')[1].split("server=")[0])
    assert len(given) > 8 and given <= known, given - known
