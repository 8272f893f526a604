"""The oracle's program: compiled once with the control plane's own module, and found in the user's cache again.

Knows main.go; what it links is what `controlplane/gomodule` pins.
"""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.controlplane import build as controlplane

SOURCE = Path(__file__).with_name("main.go")


def program(say: controlplane.Say) -> Path:
    """The built oracle; compiled now unless the cache has it.

    Raises:  Unavailable where Go is missing or too old; BuildFailed with the compiler's last lines.
    """
    recipe = controlplane.folder()
    digest = hashlib.sha256(recipe.name.encode() + SOURCE.read_bytes()).hexdigest()[:12]
    built = recipe.with_name(f"oracle-{digest}")
    if built.exists():
        return built
    controlplane.check_go()
    built.parent.mkdir(parents=True, exist_ok=True)
    with controlplane.only_builder(built.with_suffix(".lock"), say):
        if not built.exists():
            say("building the oracle: half a minute beside a built control plane, five minutes without")
            compile_to(built)
    return built


def compile_to(built: Path) -> None:
    """Compile main.go; the file appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        partial = Path(folder) / "oracle"
        command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", str(partial), str(SOURCE)]
        answer = subprocess.run(
            command, cwd=controlplane.MODULE, env=controlplane.go_env(), capture_output=True, text=True
        )
        if answer.returncode != 0:
            last = "\n".join(answer.stderr.splitlines()[-20:])
            raise controlplane.BuildFailed(f"go build ended with {answer.returncode}:\n{last}")
        partial.rename(built)
