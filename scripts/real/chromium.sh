# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# Chromium: the dashboard in a browser that people use.
commands=(chromium)
packages=(chromium)
tests=TestRealChromium

# Each test starts its own: a profile that is nobody's, and nothing left behind.
start() {
  DISPATCHER_REAL_CHROMIUM=$(command -v chromium) || return
  export DISPATCHER_REAL_CHROMIUM
}
