"""Long-lived child processes of a test: started, stopped, killed, paused, and never outliving the test process.

Knows processes, ports and log files; refuses to know what the programs are.
Invariant: a process started here dies with the process that started it, even when that one is killed.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

Answer = TypeVar("Answer")

# The kernel sends the parent-death signal when the *thread* that started the child ends. A thread of an event
# loop's pool ends with that loop, so every child is started by this one thread, which lasts as long as the process.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawn")

# Every process started in this test run, for the log tails of a failing test.
STARTED: "list[LoggedProcess]" = []

POLL_EVERY_S = 0.03


class NotReady(Exception):
    """Something did not come up in time; the message ends with the log tails that may say why."""


class LoggedProcess:
    """One program with its arguments, environment and log file; it may be started again after it ended."""

    def __init__(self, name: str, argv: Sequence[str], *, log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.env = env
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the program; its output is appended to the log. The program must not be running."""
        assert not self.running, f"{self.name} is already running"
        self._process = _SPAWNER.submit(self._spawn).result()
        if self not in STARTED:
            STARTED.append(self)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,  # Ctrl-C reaches the test alone, which then ends this in order
            )

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a paused one is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; it must have been started."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, minus the signal's number if a signal ended it, None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float = 10.0) -> int:
        """Its exit code, once it ends by itself.

        Raises:  NotReady with the log's tail if it still runs after `timeout_s`.
        """
        assert self._process is not None, f"{self.name} was never started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NotReady(f"{self.name} still runs after {timeout_s} s\n{self.log_tail()}") from None

    def stop(self, timeout_s: float = 20.0) -> None:
        """Ends it with SIGTERM, as a kubelet would; with SIGKILL if it takes longer than `timeout_s`."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it with SIGKILL and waits until it is gone."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stops it in its tracks (SIGSTOP), as a machine that hangs does."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused one go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Everything it has written so far, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines_max: int = 25) -> str:
        """The log's last lines under a heading with its name and state."""
        state = "running" if self.running else f"ended with {self.returncode}"
        lines = self.log().splitlines()[-lines_max:]
        return "\n".join([f"--- {self.name} ({state}), end of {self.log_path}", *lines])


def wait_until(what: str, check: Callable[[], Answer | None], timeout_s: float = 15.0) -> Answer:
    """The first answer of `check` that is true; asked again and again for `timeout_s`.

    Raises:  NotReady naming `what` and the last answer.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise NotReady(f"not within {timeout_s} s: {what}; last answer {answer!r}")
        time.sleep(POLL_EVERY_S)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on.

    They lie below the range that the kernel gives to outgoing connections, so that a server that is down for a
    moment (an API server killed by a test) finds its port still free.
    """
    ephemeral_first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(10_000, ephemeral_first) if ephemeral_first > 11_000 else range(61_000, 65_536)
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = random.choice(candidates)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports
