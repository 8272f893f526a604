"""`python -m tests.docs.verify`: the documentation is in step with the code, or the first line that is not."""

import sys

from tests.docs.links import broken_links
from tests.docs.pages import stale_pages


def main() -> int:
    """The exit code: 0 where everything is in step."""
    lines = [f"{name} is not what the code makes: run python -m tests.docs.update" for name in stale_pages()]
    lines += broken_links()
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
