# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# Redis: what nodes share when they are told to (rate limits, protocol memory).
commands=(redis-server)
packages=(redis-server)
tests=TestRealRedis

redis_ready() {
  local line
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf 'PING\r\n' >&3
  read -r -t 1 line <&3
  exec 3>&-
  [[ $line == +PONG* ]]
}

start() {
  local port
  # Somebody may take the port between the look and the bind: try again.
  for _ in 1 2 3; do
    port=$(free_port)
    serve redis redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no \
      --dir "$scratch" --daemonize no
    if await redis_ready "$port"; then
      export DISPATCHER_REAL_REDIS=127.0.0.1:$port
      return 0
    fi
  done
  return 1
}
