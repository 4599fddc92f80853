# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# Full disks: a real node on a small file system in memory. The test mounts it and
# takes it away.
commands=(mount umount)
packages=(mount)
tests=TestRealDisk

start() {
  if ((EUID != 0)); then
    say "mounting a file system needs root: sudo scripts/test-real disk" >&2
    return 1
  fi
}
