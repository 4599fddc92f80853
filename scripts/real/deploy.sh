# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# What reads the files below deploy/: systemd for the unit, Prometheus for the
# rules and the dashboard's queries, Kubernetes' own types for the manifests.
commands=(systemd-analyze promtool)
packages=(systemd prometheus)
tests=TestRealDeploy

start() {
  (cd tools/manifests && GOWORK=off go build -o "$scratch/manifests" .) &&
    export DISPATCHER_REAL_MANIFESTS=$scratch/manifests
}
