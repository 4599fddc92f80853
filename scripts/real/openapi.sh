# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# Redocly CLI: a linter that other people's OpenAPI documents are held to.
commands=(node npm)
packages=(nodejs npm)
tests=TestRealOpenAPI

# Installed beside a copy of its rules, never in the checkout: version and hash
# come from the lock file.
start() {
  mkdir "$scratch/openapi" &&
    cp -r internal/realtest/openapi/. "$scratch/openapi/" &&
    timeout 240 npm --prefix "$scratch/openapi" ci --ignore-scripts --no-audit --no-fund --loglevel=error \
      >"$scratch/npm-openapi.log" 2>&1 &&
    export DISPATCHER_REAL_OPENAPI=$scratch/openapi
}
