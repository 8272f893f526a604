"""The first moments of a pod's process: its own view of the file system, then the program in its place.

Runs inside fresh mount and UTS namespaces as `python -I -S pod_init.py pod.json`; standard library only.
Invariant: mount points that the machine lacks are made on in-memory file systems of this namespace, never on disk.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

# linux/mount.h
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_UNBINDABLE = 1 << 17
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1  # linux/prctl.h

# As a shell reports a command that could not be run, and a container runtime one whose set-up failed.
EXIT_SETUP_FAILED = 125
EXIT_NOT_FOUND = 127

LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """mount(2); raises OSError naming both paths."""
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} on {target}: {os.strerror(code)}")


class Root:
    """The pod's root: this machine's file system, with some folders replaced by copies that may be added to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.opened: set[str] = set()
        self.mounted: list[str] = []

    def inside(self, path: str) -> str:
        """Where an absolute path of the pod lies before the root is changed."""
        return self.path + path if path != "/" else self.path

    def open_up(self, folder: str) -> None:
        """Makes `folder` one of ours: in memory, with the machine's entries bound into it."""
        if folder in self.opened:
            return
        target = self.inside(folder)
        if os.path.isdir(folder):
            mount("tmpfs", target, "tmpfs", 0)
            if folder == "/":
                # Else binding the machine's folder that this one lies in would bind it into itself.
                mount("none", target, "", MS_UNBINDABLE)
            for name in os.listdir(folder):
                self.keep(os.path.join(folder, name))
        else:
            self.open_up(os.path.dirname(folder))
            os.mkdir(target)
        self.opened.add(folder)

    def keep(self, path: str) -> None:
        """Binds one entry of the machine's file system to the same place in the pod's."""
        target = self.inside(path)
        try:
            if os.path.islink(path):
                os.symlink(os.readlink(path), target)
                return
            make_mount_point(target, like=path)
            mount(path, target, "", MS_BIND | MS_REC)
        except FileNotFoundError:
            pass  # gone since it was listed: a busy /tmp or /run

    def add(self, source: str, path: str, *, read_only: bool) -> None:
        """Mounts `source` at `path` of the pod, whatever is or is not there on the machine."""
        path = os.path.realpath(path)  # /var/run is a link on most machines
        target = self.inside(path)
        if any(path.startswith(f"{other}/") for other in self.mounted):
            os.makedirs(os.path.dirname(target), exist_ok=True)
        elif not os.path.exists(path) or os.path.isdir(path) != os.path.isdir(source):
            self.open_up(os.path.dirname(path))
            remove(target)
        if not os.path.lexists(target):
            make_mount_point(target, like=source)
        mount(source, target, "", MS_BIND | MS_REC)
        if read_only:
            mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | locked_flags(target))
        self.mounted.append(path)


def make_mount_point(target: str, *, like: str) -> None:
    """An empty folder or file, as `like` is one or the other: a bind mount needs the same kind."""
    if os.path.isdir(like):
        os.mkdir(target)
    else:
        Path(target).touch()


def remove(target: str) -> None:
    """Takes an entry away that `Root.keep` bound or linked, so that a mount point of the other kind fits there."""
    if os.path.islink(target):
        os.unlink(target)
    elif os.path.lexists(target):
        if LIBC.umount2(target.encode(), MNT_DETACH) != 0:
            raise OSError(ctypes.get_errno(), f"unmount {target}")
        if os.path.isdir(target):
            os.rmdir(target)
        else:
            os.unlink(target)


def locked_flags(path: str) -> int:
    """Mount flags that a user namespace may not drop when it makes a mount read-only."""
    present = os.statvfs(path).f_flag
    pairs = ((os.ST_NOSUID, MS_NOSUID), (os.ST_NODEV, MS_NODEV), (os.ST_NOEXEC, MS_NOEXEC))
    return sum(flag for shown, flag in pairs if present & shown)


def set_up(pod: dict[str, Any]) -> None:
    """Builds the pod's root and moves into it; ends with the parent's death from here on."""
    root = Root(pod["root"])
    root.open_up("/")
    for each in pod["mounts"]:
        root.add(each["source"], each["target"], read_only=each["read_only"])
    os.chroot(root.path)
    os.chdir(pod["working_dir"])
    socket.sethostname(pod["hostname"])
    # A new user namespace clears the death signal that the harness set, so it is set again, then checked for a
    # parent that died in between.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != pod["parent_pid"]:
        sys.exit(EXIT_SETUP_FAILED)


def main() -> None:
    """Becomes the pod's program; says in one line why it could not."""
    pod = json.loads(Path(sys.argv[1]).read_text())
    try:
        set_up(pod)
    except OSError as error:
        print(f"pod_init: the pod's file system could not be set up: {error}", file=sys.stderr)
        sys.exit(EXIT_SETUP_FAILED)
    try:
        os.execve(pod["argv"][0], pod["argv"], pod["env"])
    except OSError as error:
        print(f"pod_init: {pod['argv'][0]}: {error.strerror}", file=sys.stderr)
        sys.exit(EXIT_NOT_FOUND)


if __name__ == "__main__":
    main()
