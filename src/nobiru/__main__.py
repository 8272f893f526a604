"""`python -m nobiru` is `nobiru`."""

from nobiru.cli.main import main

main()
