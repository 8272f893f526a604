"""A real Kubernetes control plane for tests: built once from module sources, started in seconds on 127.0.0.1.

`python -m tests.cluster.controlplane build` makes the programs, `up` runs a control plane by hand, `where` says
where they are. Tests ask for the `control_plane` fixture. It refuses to know the product: what runs against the
API server is the test's business.
"""
