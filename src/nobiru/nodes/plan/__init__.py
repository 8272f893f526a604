"""Deciding: pure functions from a Snapshot and a Memory to a Plan."""
