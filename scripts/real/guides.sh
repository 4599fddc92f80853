# shellcheck shell=bash disable=SC2034 # sourced by scripts/test-real
# curl, openssl and jq, which guides tell their readers to call.
commands=(curl openssl jq)
packages=(curl openssl jq ca-certificates)
tests=TestRealGuides

start() { :; }
