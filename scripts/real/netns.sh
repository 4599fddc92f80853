# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# Network namespaces: what leaves a node for addresses that policy denies. The
# test makes and removes them; it counts packets by itself.
commands=(ip)
packages=(iproute2)
tests=TestRealNetNS

start() {
  if ((EUID != 0)); then
    say "network namespaces need root: sudo scripts/test-real netns" >&2
    return 1
  fi
}
