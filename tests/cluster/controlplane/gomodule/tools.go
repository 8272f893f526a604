//go:build tools

// Package controlplane pins the programs of a real Kubernetes control plane, so that `go build` can make them
// from module sources. It holds no code of its own: each import is a `package main` that build.py names.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
