"""The real control plane for the tests of this tier, and its logs beside every failure.

Without the programs the tests skip, saying why and how to get them; with CI set in the environment they fail.
"""

import os
import time
from collections.abc import Generator, Iterator

import pytest

from tests.cluster.controlplane.build import Programs, Unavailable, find
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.controlplane.processes import STARTED

STARTED_AT_S = pytest.StashKey[float]()


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The built programs of the control plane."""
    try:
        return find()
    except Unavailable as lack:
        if os.environ.get("CI"):
            pytest.fail(f"no control plane, and CI must have one: {lack}", pytrace=False)
        pytest.skip(f"no control plane: {lack}")


@pytest.fixture(scope="session")
def control_plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for all tests that leave no nodes behind and use namespaces of their own names.

    It has OpenShift's default node selector.
    """
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane") / "shared", Settings.openshift()) as shared:
        yield shared


@pytest.fixture(scope="module")
def own_control_plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for one test module, which may fill it with nodes and break its parts."""
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane") / "own", Settings.openshift()) as own:
        yield own


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remembers when the test began, to tell its log lines from older ones."""
    item.stash[STARTED_AT_S] = time.time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failure the end of each log that was written to during the test."""
    report = yield
    if report.failed:
        began_s = item.stash.get(STARTED_AT_S, 0.0)
        for process in STARTED:
            if process.log_path.exists() and process.log_path.stat().st_mtime >= began_s:
                report.sections.append((f"log of {process.name}", process.log_tail()))
    return report
