"""`python -m tests.cluster.controlplane build|up|where`: the control plane without pytest.

`build` fills the cache. Where that cannot be done it says why in one line, and fails only in CI (the environment
variable CI is set): on a developer's machine the tests of this tier then skip with the same line.
"""

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.cluster.controlplane.build import BuildFailed, Unavailable, build, find
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.controlplane.processes import NotReady

USAGE = "usage: python -m tests.cluster.controlplane build | up | where"


def main(arguments: list[str]) -> int:
    """The exit code: 0 done, 1 the build failed or (in CI, or for `up` and `where`) cannot be done, 2 wrong usage."""
    try:
        match arguments:
            case ["build"]:
                build(say)
            case ["up"]:
                up()
            case ["where"]:
                print(find().kubectl.parent)
            case _:
                print(USAGE, file=sys.stderr)
                return 2
    except Unavailable as lack:
        print(f"control plane: {lack}", file=sys.stderr)
        return 0 if arguments == ["build"] and not os.environ.get("CI") else 1
    except (BuildFailed, NotReady) as failure:
        print(f"control plane: {failure}", file=sys.stderr)
        return 1
    return 0


def say(line: str) -> None:
    """One line of progress, at once even into a pipe."""
    print(f"control plane: {line}", flush=True)


def up() -> None:
    """Runs a control plane with OpenShift's default node selector until interrupted."""
    programs = build(say)
    with (
        tempfile.TemporaryDirectory(prefix="nobiru-cluster-") as directory,
        ControlPlane(programs, Path(directory), Settings.openshift()) as control_plane,
    ):
        say(f"serving {control_plane.server_url}; end it with Ctrl-C")
        print(f"export KUBECONFIG={control_plane.kubeconfig_path()} PATH={programs.kubectl.parent}:$PATH", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
