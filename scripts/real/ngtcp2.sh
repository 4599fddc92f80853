# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# ngtcp2: HTTP/3 from people who share no code with our QUIC library.
commands=(gtlsserver openssl cc)
packages=(ngtcp2-server openssl gcc libc6-dev)
tests=TestRealHTTP3

# A UDP port cannot be asked whether it is served; the server says so itself by
# living on, and a port that is taken ends it at once.
ngtcp2_alive() {
  sleep 0.3
  kill -0 "$pid"
}

# ngtcp2_server VARIABLE OPTION… starts one and exports its port.
ngtcp2_server() {
  local variable=$1 port
  shift
  for _ in 1 2 3; do
    port=$(free_port)
    serve "ngtcp2-$port" gtlsserver --quiet --htdocs "$scratch/htdocs" "$@" \
      127.0.0.1 "$port" "$scratch/key.pem" "$scratch/cert.pem"
    if ngtcp2_alive; then
      export "$variable=$port"
      return 0
    fi
  done
  return 1
}

# ngtcp2_fault NAME FAULT starts one that answers as ngtcp2-faults.c says, and
# exports the file that has a byte for every request it was handed.
ngtcp2_fault() {
  local ran=$scratch/ran-$1
  : >"$ran"
  export "DISPATCHER_REAL_HTTP3_$1_RAN=$ran"
  LD_PRELOAD=$scratch/faults.so DISPATCHER_FAULT=$2 DISPATCHER_RAN=$ran ngtcp2_server "DISPATCHER_REAL_HTTP3_$1"
}

start() {
  cc -Wall -Wextra -O1 -shared -fPIC -o "$scratch/faults.so" scripts/real/ngtcp2-faults.c -ldl &&
    certificate &&
    mkdir "$scratch/htdocs" && echo received >"$scratch/htdocs/index.html" &&
    ngtcp2_server DISPATCHER_REAL_HTTP3 &&
    ngtcp2_server DISPATCHER_REAL_HTTP3_RETRY --validate-addr &&
    ngtcp2_server DISPATCHER_REAL_HTTP3_EARLY --early-response &&
    ngtcp2_fault GOAWAY goaway &&
    ngtcp2_fault REJECTED 0x10b &&
    ngtcp2_fault INTERNAL 0x102 &&
    ngtcp2_fault FALLBACK 0x110
}
