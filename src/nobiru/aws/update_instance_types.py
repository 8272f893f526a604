"""Makes the bundled table of instance types again: `python -m nobiru.aws.update_instance_types [--check] [--source TEXT]`.

It asks ec2:DescribeInstanceTypes with AWS's standard credentials, region and endpoint.  Without an AWS account, an emulator serves:
`moto_server -H 127.0.0.1 -p 5000` and `AWS_ENDPOINT_URL=http://127.0.0.1:5000`; its data then is the source, and `--source` names it.
Types that AWS does not sell any more, but that still run, are in EARLIER.  `--check` only compares, and exits 1 where the table differs.
"""

import argparse
import gzip
import sys
from datetime import UTC, datetime
from pathlib import Path

import boto3
import msgspec

from nobiru.aws.answers import InstanceTypeAnswer, items, read
from nobiru.aws.instance_types import TABLE, InstanceType, Table, bundled, from_answer

TARGET = Path(__file__).parent / TABLE
_GIB = 1024
# Name, vCPUs, memory in MiB, ENIs, IPv4 addresses per ENI, GPUs, maker, GPU name.
# Source: EC2 user guide, "Previous generation instances" and "Instance type specifications"; awslabs/amazon-eks-ami eni-max-pods.txt.
EARLIER: tuple[tuple[str, int, int, int, int, int, str, str], ...] = (
    ("f1.2xlarge", 8, 122 * _GIB, 4, 15, 0, "", ""),
    ("f1.4xlarge", 16, 244 * _GIB, 8, 30, 0, "", ""),
    ("f1.16xlarge", 64, 976 * _GIB, 8, 50, 0, "", ""),
    ("g2.2xlarge", 8, 15 * _GIB, 4, 15, 1, "nvidia", "K520"),
    ("g2.8xlarge", 32, 60 * _GIB, 8, 30, 4, "nvidia", "K520"),
    ("g3s.xlarge", 4, 31232, 4, 15, 1, "nvidia", "M60"),
    ("g3.4xlarge", 16, 122 * _GIB, 8, 30, 1, "nvidia", "M60"),
    ("g3.8xlarge", 32, 244 * _GIB, 8, 30, 2, "nvidia", "M60"),
    ("g3.16xlarge", 64, 488 * _GIB, 15, 50, 4, "nvidia", "M60"),
    ("g4ad.xlarge", 4, 16 * _GIB, 2, 4, 1, "amd", "Radeon Pro V520"),
    ("g4ad.2xlarge", 8, 32 * _GIB, 2, 4, 1, "amd", "Radeon Pro V520"),
    ("g4ad.4xlarge", 16, 64 * _GIB, 3, 10, 1, "amd", "Radeon Pro V520"),
    ("g4ad.8xlarge", 32, 128 * _GIB, 4, 15, 2, "amd", "Radeon Pro V520"),
    ("g4ad.16xlarge", 64, 256 * _GIB, 8, 30, 4, "amd", "Radeon Pro V520"),
    ("p2.xlarge", 4, 61 * _GIB, 4, 15, 1, "nvidia", "K80"),
    ("p2.8xlarge", 32, 488 * _GIB, 8, 30, 8, "nvidia", "K80"),
    ("p2.16xlarge", 64, 732 * _GIB, 8, 30, 16, "nvidia", "K80"),
    ("p3.2xlarge", 8, 61 * _GIB, 4, 15, 1, "nvidia", "V100"),
    ("p3.8xlarge", 32, 244 * _GIB, 8, 30, 4, "nvidia", "V100"),
    ("p3.16xlarge", 64, 488 * _GIB, 8, 30, 8, "nvidia", "V100"),
)


def earlier() -> list[InstanceType]:
    """The types of EARLIER."""
    return [
        InstanceType(
            name=name,
            vcpu=vcpu,
            memory_mib=memory_mib,
            eni_max=enis,
            ipv4_per_eni=addresses,
            gpu_count=gpus,
            gpu_maker=maker,
            gpu_name=gpu_name,
        )
        for name, vcpu, memory_mib, enis, addresses, gpus, maker, gpu_name in EARLIER
    ]


def fetch() -> tuple[InstanceType, ...]:
    """All types of the region and the earlier ones, by name."""
    found = {each.name: each for each in earlier()}
    for page in boto3.client("ec2").get_paginator("describe_instance_types").paginate():
        for item in items(page, "InstanceTypes"):
            each = from_answer(read(item, InstanceTypeAnswer))
            found[each.name] = each
    return tuple(found[name] for name in sorted(found))


def main(arguments: list[str]) -> int:
    """Writes or checks the table; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m nobiru.aws.update_instance_types")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--source", default="", help="where the data comes from, kept in the table")
    given = parser.parse_args(arguments)
    types = fetch()
    if given.check:
        same = types == bundled().types
        sys.stdout.write("the table is up to date\n" if same else f"the table of {bundled().date} differs: update it\n")
        return 0 if same else 1
    endpoint = boto3.client("ec2").meta.endpoint_url
    source = given.source or f"ec2:DescribeInstanceTypes at {endpoint}"
    table = Table(date=datetime.now(UTC).date().isoformat(), source=source, types=types)
    TARGET.write_bytes(gzip.compress(msgspec.json.encode(table), mtime=0))
    sys.stdout.write(f"{len(types)} instance types written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
