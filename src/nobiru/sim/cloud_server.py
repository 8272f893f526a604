"""The simulated cloud as a process of its own: moto's server with our shim on 127.0.0.1, until its parent goes.

    python -m nobiru.sim.cloud_server --region ap-northeast-1 [--timing JSON] [--seed TEXT]

It prints one line, `Ready` as JSON, once it answers; it prints nothing else.
It refuses to know: who uses it.
Invariant: it never outlives the process that holds its standard input.
"""

import argparse
import logging
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from moto.backends import SERVICE_NAMES
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from nobiru.sim.asg_state import Timing
from nobiru.sim.cloud_api import Ready
from nobiru.sim.cloud_control import ADMIN, PREFIX, Control
from nobiru.sim.cloud_moto import Shim, create_user

PARENT_S = 1.0  # how often the parent is looked for, should another process hold the pipe open too
# Loaded before the ready line: moto loads a service at its first call, EC2 in 1.4-1.9 s (moto 5.2.5, two cores).
PRELOADED: tuple[SERVICE_NAMES, ...] = ("autoscaling", "ec2", "iam", "sts")
EVERYTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'

if TYPE_CHECKING:  # the standard library has these types for checkers only
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class Quiet(MotoRequestHandler):
    """A request handler that does not log requests."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""

    def connection_dropped(self, error: BaseException, environ: object = None) -> None:
        """Close the connection: werkzeug leaves it open when a reply was given up before its first byte."""
        self.close_connection = True


class Preloaded(DomainDispatcherApplication):
    """moto's dispatcher with the applications of PRELOADED ready."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        for service in PRELOADED:
            self.app_instances[service] = create_backend_app(service)


def main(argv: list[str] | None = None) -> None:
    """Serve until the parent goes."""
    parser = argparse.ArgumentParser(prog="nobiru.sim.cloud_server")
    parser.add_argument("--region", required=True)
    parser.add_argument("--timing", default="{}")
    parser.add_argument("--seed", default="")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, whose end is ours
    threading.Thread(target=_follow_parent, args=(os.getppid(),), name="parent watch", daemon=True).start()
    warnings.filterwarnings("ignore", module="moto")  # it warns of error codes that its models lack
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    timing = msgspec.json.decode(args.timing, type=Timing)
    shim = Shim(seed=args.seed or os.urandom(8).hex(), timing=timing)
    shim.install()
    server = make_server(
        "127.0.0.1", 0, _dispatch(Preloaded(), Control(shim, args.region)), threaded=True, request_handler=Quiet
    )
    shim.region(args.region).read()
    admin = create_user(args.region, ADMIN, EVERYTHING)
    ready = Ready(port=server.server_port, access_key_id=admin.access_key_id, secret_access_key=admin.secret_access_key)
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()
    server.serve_forever()


def _dispatch(moto: "WSGIApplication", control: "WSGIApplication") -> "WSGIApplication":
    def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        ours = str(environ.get("PATH_INFO", "")).startswith(PREFIX)
        return (control if ours else moto)(environ, start_response)

    return application


def _follow_parent(parent: int) -> None:
    """End this process at once when standard input closes or the parent is another."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], PARENT_S)
        if readable and not os.read(0, 4096):
            break
    os._exit(0)


if __name__ == "__main__":
    main()
