"""The control plane's programs: compiled once from module sources into the user's cache, and found there again.

Knows the Go toolchain and the cache; refuses to know how the programs are started.
Invariant: the folder that `find` answers from appears by one rename, so it is whole or absent.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

MODULE = Path(__file__).parent / "gomodule"

# Each program and the `package main` that gomodule/tools.go pins for it. etcd is the release that this Kubernetes
# itself requires: ten more seconds of compiling, and no version that differs from machine to machine.
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}

# Clients parse the server's version, and a plain `go build` leaves a placeholder there: Kubernetes' own builds set
# these variables of both packages through the linker.
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")

PROGRESS_EVERY_S = 15.0

# util-linux: setpriv ties a program's life to the test's, unshare gives a pod's process its own mounts.
HOST_TOOLS = ("setpriv", "unshare")

Say = Callable[[str], None]


class Unavailable(Exception):
    """One line: what this machine lacks for a control plane, and how to get it."""


class BuildFailed(Exception):
    """The Go toolchain is there, and its build failed; the message ends with its last lines."""


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths of the built programs, and the Kubernetes release that they are."""

    version: str
    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path


def kubernetes_version() -> str:
    """The Kubernetes release that gomodule/go.mod asks for, like v1.36.1."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, "gomodule/go.mod no longer requires k8s.io/kubernetes"
    return found.group(1)


def go_flags() -> list[str]:
    """The flags of `go build` that shape the programs: part of what names the cache's folder."""
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    settings = [f"-X {package}.{name}={value}" for package in VERSION_PACKAGES for name, value in values.items()]
    return ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", " ".join(["-s -w", *settings])]


def folder() -> Path:
    """Where this recipe's programs live: the cache, then the release and a hash of everything that shapes them."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "tools.go"):
        digest.update((MODULE / name).read_bytes())
    digest.update("\0".join([*go_flags(), *PROGRAMS.values(), sys.platform, platform.machine()]).encode())
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "nobiru" / f"{kubernetes_version()}-{digest.hexdigest()[:12]}"


def find() -> Programs:
    """The programs, if they are built and this machine can run them.

    Raises:  Unavailable, naming what is missing and how to get it.
    """
    check_host()
    if not folder().is_dir():
        check_go()
        raise Unavailable("the control plane is not built yet: run `make cluster`, which builds it once (5-8 minutes)")
    return programs_in(folder())


def programs_in(built: Path) -> Programs:
    """The paths of the programs inside one built folder."""
    paths = {name.replace("-", "_"): built / "bin" / name for name in PROGRAMS}
    return msgspec.convert({"version": kubernetes_version(), **paths}, Programs, dec_hook=lambda _, path: path)


def build(say: Say) -> Programs:
    """The programs, compiled now unless the cache has them; `say` gets a line of progress every now and then.

    Raises:  Unavailable as `find` does; BuildFailed with the compiler's last lines.
    """
    check_host()
    built = folder()
    if built.is_dir():
        return programs_in(built)
    check_go()
    built.parent.mkdir(parents=True, exist_ok=True)
    with only_builder(built.with_name(f"{built.name}.lock"), say):
        if not built.is_dir():  # another builder may have finished while this one waited
            for leftover in built.parent.glob(f"{built.name}.partial-*"):
                shutil.rmtree(leftover, ignore_errors=True)  # of a build that was killed
            partial = Path(tempfile.mkdtemp(prefix=f"{built.name}.partial-", dir=built.parent))
            compile_into(partial / "bin", say)
            partial.rename(built)
    say(f"built into {built}")
    return programs_in(built)


def check_host() -> None:
    """Says nothing if this kind of machine can run a control plane; raises Unavailable otherwise."""
    if sys.platform != "linux":
        raise Unavailable(
            f"a real control plane needs Linux, and this is {sys.platform}: run `make cluster` in a container"
        )
    lacking = [tool for tool in HOST_TOOLS if shutil.which(tool) is None]
    if lacking:
        raise Unavailable(f"no {' and no '.join(lacking)} on PATH: install util-linux 2.33 or newer")


def check_go() -> None:
    """Says nothing if the Go on PATH can build gomodule; raises Unavailable otherwise."""
    wanted = re.search(r"^go (\d+\.\d+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None, "gomodule/go.mod no longer names its Go release"
    advice = f"install Go {wanted.group(1)} or newer, put its bin folder on PATH, and run `make cluster`"
    if shutil.which("go") is None:
        raise Unavailable(f"a real control plane is built with Go, and no `go` is on PATH: {advice}")
    # `go list -m` reads go.mod and nothing else: it fails at once where the toolchain is older than go.mod asks for.
    answer = subprocess.run(["go", "list", "-m"], cwd=MODULE, env=go_env(), capture_output=True, text=True, timeout=120)
    if answer.returncode != 0:
        said = answer.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable(f"this Go cannot build the control plane ({said[-1].strip()}): {advice}")


def go_env() -> dict[str, str]:
    """The environment of every `go` that runs here: the user's own, without what would reach into another build."""
    unwanted = {"GOFLAGS", "GOOS", "GOARCH"}
    return {name: value for name, value in os.environ.items() if name not in unwanted} | {
        "CGO_ENABLED": "0",
        "GOWORK": "off",
    }


@contextmanager
def only_builder(lock: Path, say: Say) -> Iterator[None]:
    """Holds the lock file for the time of one build; a second builder waits here and says so."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build of the same control plane is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_into(target: Path, say: Say) -> None:
    """Fills `target` with all programs.

    Raises:  BuildFailed with the compiler's last lines.
    """
    target.mkdir(parents=True)
    started_s = time.monotonic()
    say(f"building Kubernetes {kubernetes_version()} and its etcd from source, once: 5-8 minutes on two cores")
    total = count_packages(say)
    # One call for all four programs of Kubernetes: they share most packages, and one links while others compile.
    # etcd comes by itself because its package's last name would make it a file called `v3`.
    kubernetes = [package for name, package in PROGRAMS.items() if name != "etcd"]
    done = 0
    for out, packages in ((f"{target}/", kubernetes), (str(target / "etcd"), [PROGRAMS["etcd"]])):
        done = run_go_build([*go_flags(), "-o", out, *packages], started_s=started_s, done=done, total=total, say=say)
    say(f"compiled and linked in {time.monotonic() - started_s:.0f} s")


def count_packages(say: Say) -> int:
    """How many packages a cold build compiles; the first `go` call, so it also downloads the module sources."""
    say("fetching module sources")
    arguments = ["go", "list", "-mod=readonly", "-deps", *PROGRAMS.values()]
    answer = subprocess.run(arguments, cwd=MODULE, env=go_env(), capture_output=True, text=True)
    if answer.returncode != 0:
        raise BuildFailed("the module sources could not be fetched:\n" + "\n".join(answer.stderr.splitlines()[-10:]))
    return len(answer.stdout.split())


def run_go_build(arguments: list[str], *, started_s: float, done: int, total: int, say: Say) -> int:
    """Runs one `go build -v` to its end and gives how many packages are compiled by now (`done` before it)."""
    last_lines: deque[str] = deque(maxlen=20)
    lines_count = 0

    def follow() -> None:
        nonlocal lines_count
        assert process.stderr is not None
        for line in process.stderr:
            last_lines.append(line.rstrip())
            lines_count += 1

    # A builder that is killed takes its compiler along, or the next one would share the cores with it.
    command = ["setpriv", "--pdeathsig", "TERM", "--", "go", "build", "-v", *arguments]
    with subprocess.Popen(command, cwd=MODULE, env=go_env(), stderr=subprocess.PIPE, text=True) as process:
        reader = threading.Thread(target=follow, name="go build -v", daemon=True)
        reader.start()
        while process.poll() is None:
            reader.join(timeout=PROGRESS_EVERY_S)
            if reader.is_alive():
                passed_s = time.monotonic() - started_s
                say(f"{passed_s:4.0f} s: {done + lines_count} packages of at most {total} compiled")
        reader.join()
    if process.returncode != 0:
        raise BuildFailed(f"go build ended with {process.returncode}:\n" + "\n".join(last_lines))
    return done + lines_count
