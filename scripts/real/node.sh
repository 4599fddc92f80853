# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# Libraries that providers publish for receivers, on Node.js: they must accept
# what we sign, and we must accept what they sign.
commands=(node npm)
packages=(nodejs npm)
tests=TestRealLibrary

# The libraries are installed beside a copy of the script, never in the
# checkout: versions and hashes come from the lock file.
start() {
  mkdir "$scratch/node" &&
    cp internal/realtest/node/* "$scratch/node/" &&
    timeout 240 npm --prefix "$scratch/node" ci --ignore-scripts --no-audit --no-fund --loglevel=error \
      >"$scratch/npm.log" 2>&1 &&
    export DISPATCHER_REAL_NODE=$scratch/node
}
