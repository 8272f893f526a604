"""The harness itself: what later tests take for granted about the real control plane is proved here."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane.control_plane import ControlPlane, KubectlFailed
from tests.cluster.controlplane.manifests import fill, openshift_rbac_modern, walkthrough
from tests.cluster.controlplane.pod_manifest import NotPlayed
from tests.cluster.controlplane.pod_process import PodProcess, run_as_pod
from tests.cluster.controlplane.processes import wait_until

COMPUTE = {"node-role.kubernetes.io/compute": "true"}

# Prints what a process of a pod can see, for the tests below to compare.
LOOK = """
import json, os, socket, ssl, sys, time, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
def look(path):
    if os.path.isdir(path):
        return sorted(name for name in os.listdir(path) if not name.startswith(".."))
    return open(path).read() if os.path.exists(path) else None
token = open(f"{account}/token").read()
request = urllib.request.Request(
    f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    data=json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode(),
    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
)
tls = ssl.create_default_context(cafile=f"{account}/ca.crt")
user = json.load(urllib.request.urlopen(request, context=tls))["status"]["userInfo"]["username"]
def writable(path):
    try:
        open(f"{path}/written", "w").close()
    except OSError:
        return False
    return True
paths = json.loads(os.environ.get("LOOK_AT", "[]"))
print(json.dumps({
    "args": sys.argv[1:], "env": dict(os.environ), "user": user, "hostname": socket.gethostname(),
    "paths": {path: look(path) for path in paths}, "writable": {path: writable(path) for path in paths},
    "namespace": open(f"{account}/namespace").read(),
}), flush=True)
if os.environ.get("STAY"):
    while True:
        time.sleep(0.05)
        print("token", open(f"{account}/token").read()[-16:], flush=True)
"""


@pytest.fixture(scope="module")
def control_plane(own_control_plane: ControlPlane) -> ControlPlane:
    """Not the shared one: an API server is killed here."""
    return own_control_plane


def as_look(words: list[str]) -> list[str]:
    return [sys.executable, "-c", LOOK, *words]


def pods(control_plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = control_plane.get("pods", namespace=namespace)["items"]
    return found


def scale_up(control_plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """Applies the walk-through's 20 pods and gives them once all exist."""
    control_plane.apply(walkthrough("openshift/scale-up.yaml"), namespace)

    def all_there() -> list[dict[str, Any]] | None:
        found = pods(control_plane, namespace)
        return found if len(found) == 20 else None

    return wait_until("20 pods", all_there)


def test_version(control_plane: ControlPlane) -> None:
    """The server says which release it is, in the form that clients parse."""
    version = json.loads(control_plane.kubectl("get", "--raw", "/version"))

    assert (version["gitVersion"], version["major"], version["minor"]) == ("v1.36.1", "1", "36")


def test_clients_must_verify_tls(control_plane: ControlPlane) -> None:
    """The certificate is good for the address under this control plane's CA, and under no other."""
    url = f"{control_plane.server_url}/livez"

    with urllib.request.urlopen(url, context=ssl.create_default_context(cafile=control_plane.ca_path)) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, context=ssl.create_default_context())


def test_pods_without_nodes_are_unschedulable(control_plane: ControlPlane) -> None:
    """A Deployment becomes pods, and the scheduler marks each Pending with reason Unschedulable."""
    control_plane.namespace("no-nodes")
    scale_up(control_plane, "no-nodes")

    def unschedulable() -> bool:
        return all(
            pod["status"]["phase"] == "Pending"
            and any(
                (condition["type"], condition["status"], condition.get("reason"))
                == ("PodScheduled", "False", "Unschedulable")
                for condition in pod["status"].get("conditions", ())
            )
            for pod in pods(control_plane, "no-nodes")
        )

    wait_until("20 unschedulable pods", unschedulable)


@pytest.mark.parametrize(
    ("name", "annotations", "want"),
    [
        ("selector-default", {}, COMPUTE),
        ("selector-empty", {"openshift.io/node-selector": ""}, None),
        ("selector-own", {"openshift.io/node-selector": "zone=a"}, {"zone": "a"}),
    ],
)
def test_project_node_selector(
    control_plane: ControlPlane, name: str, annotations: dict[str, str], want: dict[str, str] | None
) -> None:
    """A project's pods get the cluster's default selector, or the project's own; an empty one means none."""
    control_plane.namespace(name, annotations)

    created = scale_up(control_plane, name)

    assert [pod["spec"].get("nodeSelector") for pod in created] == [want] * 20


def test_walkthrough_rights(control_plane: ControlPlane, tmp_path: Path) -> None:
    """A service account may do what the walk-through's roles say and nothing else."""
    account = "system:serviceaccount:cluster-autoscaler:cluster-autoscaler"
    for name in ("namespace", "serviceaccount"):
        control_plane.apply(walkthrough(f"openshift/{name}.yaml"))
    for name in ("role", "clusterrole"):
        control_plane.apply(openshift_rbac_modern(walkthrough(f"openshift/{name}.yaml")), "cluster-autoscaler")
    for kind in ("rolebinding", "clusterrolebinding"):
        flags = ["--role=cluster-autoscaler"] if kind == "rolebinding" else ["--clusterrole=cluster-autoscaler"]
        control_plane.kubectl(
            "-n", "cluster-autoscaler", "create", kind, "cluster-autoscaler", f"--user={account}", *flags
        )
    kubeconfig = tmp_path / "kubeconfig"
    token = control_plane.service_account_token("cluster-autoscaler", "cluster-autoscaler", duration_s=600)
    control_plane.write_kubeconfig(kubeconfig, token=token)

    assert json.loads(control_plane.kubectl("get", "nodes", "-o", "json", kubeconfig=kubeconfig))["items"] == []
    configmap = ["create", "configmap", "cluster-autoscaler-status", "-n"]
    control_plane.kubectl(*configmap, "cluster-autoscaler", kubeconfig=kubeconfig)
    with pytest.raises(KubectlFailed, match=f'User "{account}" cannot create resource "configmaps"'):
        control_plane.kubectl(*configmap, "default", kubeconfig=kubeconfig)
    with pytest.raises(KubectlFailed, match=f'User "{account}" cannot list resource "secrets"'):
        control_plane.kubectl("get", "secrets", "-n", "cluster-autoscaler", kubeconfig=kubeconfig)


def test_api_server_killed_and_started(control_plane: ControlPlane) -> None:
    """`kill -9` of the API server loses nothing: same address, same objects, and controllers work again."""
    control_plane.namespace("survivor")
    url = control_plane.server_url

    control_plane.kill_api_server()
    with pytest.raises(KubectlFailed, match="refused"):
        control_plane.kubectl("get", "namespaces", timeout_s=20)
    control_plane.start_api_server()

    assert control_plane.server_url == url
    assert control_plane.get("namespace", "survivor")["metadata"]["name"] == "survivor"
    scale_up(control_plane, "survivor")


WALKTHROUGH_PATHS = ["/var/run/secrets/aws-creds", "/var/run/secrets/aws-creds/creds"]


def look(control_plane: ControlPlane, manifest: str, **arguments: Any) -> dict[str, Any]:
    """What the process of this pod saw; it has ended."""
    with run_as_pod(control_plane, manifest, command_rewrite=as_look, **arguments) as process:
        assert process.wait() == 0, process.log_tail()
        seen: dict[str, Any] = json.loads(process.log())
        return seen


def test_run_as_pod_walkthrough(control_plane: ControlPlane) -> None:
    """The OpenShift Deployment, unchanged: its words, variables, mounted Secret, and its account's token."""
    control_plane.namespace("cluster-autoscaler", {"openshift.io/node-selector": ""})
    control_plane.apply(walkthrough("openshift/serviceaccount.yaml"))
    creds = walkthrough("openshift/creds")
    control_plane.kubectl(
        "-n", "cluster-autoscaler", "create", "secret", "generic", "autoscaler-credentials",
        f"--from-file=creds={Path(__file__).parents[2] / 'scenarios/walkthroughs/openshift/creds'}",
    )  # fmt: skip
    manifest = fill(walkthrough("openshift/cluster-autoscaler.yaml"), **{"Auto Scaling Group名": "compute nodes"})

    seen = look(control_plane, manifest, extra_env={"LOOK_AT": json.dumps(WALKTHROUGH_PATHS)})

    assert seen["args"] == [
        "/bin/cluster-autoscaler", "--alsologtostderr", "--v=4", "--skip-nodes-with-local-storage=False",
        "--leader-elect-resource-lock=configmaps", "--namespace=cluster-autoscaler", "--cloud-provider=aws",
        "--nodes=0:6:compute nodes",
    ]  # fmt: skip
    assert seen["env"]["AWS_REGION"] == "ap-northeast-1"
    assert seen["env"]["AWS_SHARED_CREDENTIALS_FILE"] == WALKTHROUGH_PATHS[1]
    assert seen["paths"] == {WALKTHROUGH_PATHS[0]: ["creds"], WALKTHROUGH_PATHS[1]: creds}
    assert not any(seen["writable"].values())
    assert seen["user"] == "system:serviceaccount:cluster-autoscaler:cluster-autoscaler"
    assert seen["namespace"] == "cluster-autoscaler"
    assert seen["hostname"] == seen["env"]["HOSTNAME"]
    assert seen["hostname"].startswith("cluster-autoscaler-")
    assert not Path("/var/run/secrets/aws-creds").exists()  # the machine itself is untouched
    inherited = {name for name in os.environ if name in seen["env"]} - {"PATH", "HOME", "HOSTNAME"}
    assert not inherited  # nothing of the test's own environment


def one_container(*, volumes: list[dict[str, Any]], **container: Any) -> str:
    """A Deployment of one container in namespace `default`, as text."""
    pod = {"containers": [{"name": "only", **container}], "volumes": volumes}
    spec = {"template": {"spec": pod}}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pod"}, "spec": spec})


HOST_PATHS = [
    ("there", "/etc/ssl/certs/ca-bundle.crt", "", "the bundle"),
    ("missing", "/etc/ssl/certs/ca-certificates.crt", "", []),
    ("missing, made", "/var/lib/made", "FileOrCreate", ""),
]


@pytest.mark.parametrize(("name", "path", "kind", "want"), HOST_PATHS, ids=[case[0] for case in HOST_PATHS])
def test_run_as_pod_host_path(
    control_plane: ControlPlane, tmp_path: Path, name: str, path: str, kind: str, want: object
) -> None:
    """A hostPath shows the node's file; one that is not there is mounted as an empty folder."""
    (tmp_path / "etc/ssl/certs").mkdir(parents=True)
    (tmp_path / "etc/ssl/certs/ca-bundle.crt").write_text("the bundle")
    target = "/etc/ssl/certs/ca-certificates.crt"  # a file on many machines
    manifest = one_container(
        volumes=[{"name": "certs", "hostPath": {"path": path, "type": kind}}],
        volumeMounts=[{"name": "certs", "mountPath": target, "readOnly": True}],
        env=[{"name": "LOOK_AT", "value": json.dumps([target])}],
    )
    before = Path(target).read_bytes() if Path(target).is_file() else None

    seen = look(control_plane, manifest, host_root=tmp_path)

    assert seen["paths"] == {target: want}
    assert not seen["writable"][target]
    assert (Path(target).read_bytes() if Path(target).is_file() else None) == before


def test_run_as_pod_other_volumes(control_plane: ControlPlane) -> None:
    """emptyDir can be written to at any path; given Secrets, item paths, field references and $(NAME) work."""
    manifest = one_container(
        volumes=[
            {"name": "scratch", "emptyDir": {}},
            {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "a", "path": "sub/b"}]}},
        ],
        volumeMounts=[
            {"name": "scratch", "mountPath": "/not-on-this-machine/scratch"},
            {"name": "keys", "mountPath": "/not-on-this-machine/scratch/keys"},
        ],
        command=["./cluster-autoscaler"],
        args=["--namespace=$(WHERE)", "$(UNKNOWN)", "$$(WHERE)"],
        env=[
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
            {"name": "LOOK_AT", "value": '["/not-on-this-machine/scratch", "/not-on-this-machine/scratch/keys/sub/b"]'},
        ],
    )

    seen = look(control_plane, manifest, secrets={"keys": {"a": b"one", "c": b"unseen"}})

    assert seen["args"] == ["./cluster-autoscaler", "--namespace=default", "$(UNKNOWN)", "$(WHERE)"]
    assert seen["env"]["KEY"] == "one"
    scratch, key = seen["paths"]
    assert seen["paths"] == {scratch: ["keys"], key: "one"}
    assert seen["writable"] == {scratch: True, key: False}


REFUSED = [
    ("no such secret", {"secret": {"secretName": "absent"}}, "no secret absent in default"),
    ("hostPath of the wrong type", {"hostPath": {"path": "/etc", "type": "File"}}, "/etc is no File"),
    (
        "a kind that is not played",
        {"nfs": {"server": "a", "path": "b"}},
        "only secret, configMap, hostPath and emptyDir",
    ),
]


@pytest.mark.parametrize(("name", "source", "want"), REFUSED, ids=[case[0] for case in REFUSED])
def test_run_as_pod_refuses(control_plane: ControlPlane, name: str, source: dict[str, Any], want: str) -> None:
    """What a kubelet would not start, or what is not played here, is refused by name and never left out."""
    manifest = one_container(volumes=[{"name": "v", **source}], volumeMounts=[{"name": "v", "mountPath": "/v"}])

    with pytest.raises(NotPlayed, match=want):
        run_as_pod(control_plane, manifest, command_rewrite=as_look)


def test_run_as_pod_token_rotation(control_plane: ControlPlane) -> None:
    """A new token appears in the running process's files, as a kubelet renews it."""
    manifest = one_container(volumes=[], env=[{"name": "STAY", "value": "1"}])

    with run_as_pod(control_plane, manifest, command_rewrite=as_look) as process:
        wait_until("the first token", lambda: "token" in process.log())
        fresh = control_plane.service_account_token("default", "default")
        process.write_token(fresh)
        wait_until("the new token", lambda: f"token {fresh[-16:]}" in process.log())
        assert process.running
    assert process.returncode == -signal.SIGKILL


def test_nothing_outlives_the_test_process(control_plane: ControlPlane, tmp_path: Path) -> None:
    """When the process that started them is killed, plain and pod processes end with it."""
    manifest = one_container(volumes=[], env=[{"name": "STAY", "value": "1"}])
    with run_as_pod(control_plane, manifest, command_rewrite=as_look) as process:
        wait_until("the pod's process", lambda: "token" in process.log())
        starter = tmp_path / "starter.py"
        starter.write_text(STARTER)
        arguments = [sys.executable, str(starter), str(process.directory / "pod.json"), str(tmp_path)]
        parent = subprocess.Popen(arguments, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        assert all(alive(child) for child in children)

        parent.kill()
        parent.wait()

        try:
            wait_until("both children gone", lambda: not any(alive(child) for child in children))
        finally:
            for child in filter(alive, children):
                os.kill(child, signal.SIGKILL)


# Starts a plain process and the given pod's process as the harness does, then hangs until it is killed.
STARTER = """
import json, os, pathlib, signal, sys
sys.path.insert(0, os.getcwd())
from tests.cluster.controlplane.pod_process import POD_INIT, unshare_command
from tests.cluster.controlplane.processes import LoggedProcess, wait_until
specification, directory = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
pod = json.loads(specification.read_text()) | {"parent_pid": os.getpid()}
(directory / "pod.json").write_text(json.dumps(pod))
command = [*unshare_command(), sys.executable, "-I", "-S", str(POD_INIT), str(directory / "pod.json")]
processes = [
    LoggedProcess("plain", ["sleep", "600"], log_path=directory / "plain.log"),
    LoggedProcess("pod", command, log_path=directory / "pod.log"),
]
for process in processes:
    process.start()
wait_until("the pod's process", lambda: "token" in processes[1].log())
print(*(process.pid for process in processes), flush=True)
signal.pause()
"""


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_paused_process(control_plane: ControlPlane) -> None:
    """A paused process does nothing until it is resumed."""
    manifest = one_container(volumes=[], env=[{"name": "STAY", "value": "1"}])
    with run_as_pod(control_plane, manifest, command_rewrite=as_look) as process:
        wait_until("its first line", lambda: "token" in process.log())

        process.pause()
        wait_until("the pause", lambda: state(process) == "T")
        paused = process.log()
        assert wait_until("nothing said", lambda: process.log() == paused)
        process.resume()

        wait_until("more lines", lambda: len(process.log()) > len(paused))


def state(process: PodProcess) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
