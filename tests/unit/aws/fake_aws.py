"""A server on 127.0.0.1 that answers AWS's query protocol with what a test says, and keeps what it was asked.

For what a simulated cloud would not do on its own: throttling, refusals, silence, nonsense.
"""

import re
import threading
import urllib.parse
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from msgspec import Struct

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Reply(Struct, frozen=True, kw_only=True):
    """One answer; `silent` never comes."""

    body: str
    status: int = 200
    silent: bool = False


class Asked(Struct, frozen=True, kw_only=True):
    """One request."""

    action: str
    parameters: dict[str, str]
    access_key: str
    user_agent: str


def failure(code: str, message: str = "it failed", status: int = 400) -> Reply:
    """An error as AWS words it, readable by Auto Scaling's and EC2's clients alike."""
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return Reply(
        body=f"<ErrorResponse>{error}<Errors>{error}</Errors><RequestId>r</RequestId></ErrorResponse>", status=status
    )


def silence() -> Reply:
    """The connection is taken, and nothing ever comes."""
    return Reply(body="", silent=True)


def groups_reply(*members: str) -> Reply:
    """A DescribeAutoScalingGroups answer of these members (`group_xml`)."""
    listed = "".join(f"<member>{member}</member>" for member in members)
    return Reply(
        body=f"<DescribeAutoScalingGroupsResponse><DescribeAutoScalingGroupsResult><AutoScalingGroups>{listed}"
        "</AutoScalingGroups></DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>"
    )


def group_xml(name: str, desired: int, *, max_size: int = 6, instances: int = 0) -> str:
    """One group without a launch configuration."""
    machines = "".join(
        f"<member><InstanceId>i-{number}</InstanceId><AvailabilityZone>a</AvailabilityZone>"
        "<LifecycleState>InService</LifecycleState></member>"
        for number in range(instances)
    )
    return (
        f"<AutoScalingGroupName>{name}</AutoScalingGroupName><MinSize>0</MinSize><MaxSize>{max_size}</MaxSize>"
        f"<DesiredCapacity>{desired}</DesiredCapacity><Instances>{machines}</Instances>"
    )


SET_DONE = Reply(body="<SetDesiredCapacityResponse><ResponseMetadata/></SetDesiredCapacityResponse>")
TERMINATE_DONE = Reply(
    body="<TerminateInstanceInAutoScalingGroupResponse><TerminateInstanceInAutoScalingGroupResult/>"
    "</TerminateInstanceInAutoScalingGroupResponse>"
)


class FakeAws:
    """The server; replies are given in order for each action, the last one again and again."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._replies: dict[str, list[Reply]] = {}
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def answer(self, action: str, *replies: Reply) -> None:
        """What calls of the action get from now on."""
        self._replies[action] = list(replies)

    def actions(self) -> list[str]:
        """The names of the calls, in order."""
        return [each.action for each in self.asked]

    def environment(self) -> dict[str, str]:
        """The environment variables that lead AWS's SDKs here."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_REGION": "ap-northeast-1",
            "AWS_DEFAULT_REGION": "ap-northeast-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "2",
        }

    def reply_to(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        replies = self._replies.get(asked.action, [failure("InvalidAction")])
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def wait_for_end(self) -> None:
        self._ended.wait(30)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(fake: FakeAws) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            parameters = dict(urllib.parse.parse_qsl(content))
            reply = fake.reply_to(_asked(parameters, self.headers))
            if reply.silent:
                fake.wait_for_end()
                self.close_connection = True
                return
            body = reply.body.encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


def _asked(parameters: dict[str, str], headers: Message) -> Asked:
    signed = re.search(r"Credential=([^/]+)/", headers.get("Authorization", ""))
    return Asked(
        action=parameters.get("Action", ""),
        parameters=parameters,
        access_key=signed[1] if signed else "",
        user_agent=headers.get("User-Agent", ""),
    )
