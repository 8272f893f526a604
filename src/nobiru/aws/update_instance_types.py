"""Makes the bundled table of instance types again: `python -m nobiru.aws.update_instance_types [--check]`.

Asks ec2:DescribeInstanceTypes of the region in the environment, over AWS's standard credentials and endpoints; AWS_ENDPOINT_URL may
name an emulator, whose data then is the source.  `--check` compares only, and exits 1 where the table is old.
"""

import gzip
import sys
from datetime import UTC, datetime
from pathlib import Path

import boto3
import msgspec

from nobiru.aws.instance_types import InstanceType, Table, bundled, from_answer

TARGET = Path(__file__).parent / "data" / "instance_types.json.gz"


def fetch() -> list[InstanceType]:
    """All types of the region, by name."""
    pages = boto3.client("ec2").get_paginator("describe_instance_types").paginate()
    types = [from_answer(dict(item)) for page in pages for item in page["InstanceTypes"]]
    return sorted(types, key=lambda each: each.name)


def main(arguments: list[str]) -> int:
    types = fetch()
    if "--check" in arguments:
        same = types == bundled().types
        sys.stdout.write("the table is up to date\n" if same else f"the table of {bundled().date} is old: update it\n")
        return 0 if same else 1
    endpoint = boto3.client("ec2").meta.endpoint_url
    source = "ec2:DescribeInstanceTypes" if "amazonaws.com" in endpoint else "an emulator of ec2:DescribeInstanceTypes"
    table = Table(date=datetime.now(UTC).date().isoformat(), source=source, types=types)
    TARGET.write_bytes(gzip.compress(msgspec.json.encode(table), mtime=0))
    sys.stdout.write(f"{len(types)} instance types written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
