# shellcheck shell=bash disable=SC2034,SC2154 # sourced by scripts/test-real
# nginx: the server that most receivers stand behind, over HTTP/2 and HTTP/1.1.
commands=(nginx openssl)
packages=(nginx-light openssl)
tests=TestRealNginx

# Requests go on to a socket that the test listens on, so that it sees what
# arrived. Few requests per connection: nginx then says goodbye (GOAWAY, or
# Connection: close) again and again while requests come in.
nginx_config() {
  cat <<CONF
daemon off;
pid $scratch/nginx.pid;
error_log stderr error;
worker_processes 1;
$( ((EUID == 0)) && echo 'user root;')
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path $scratch/nginx-body;
  proxy_temp_path $scratch/nginx-proxy;
  fastcgi_temp_path $scratch/nginx-fastcgi;
  uwsgi_temp_path $scratch/nginx-uwsgi;
  scgi_temp_path $scratch/nginx-scgi;
  client_max_body_size 32m;
  keepalive_requests 20;
  ssl_certificate $scratch/cert.pem;
  ssl_certificate_key $scratch/key.pem;
  server { listen 127.0.0.1:$1 ssl http2; location / { proxy_pass http://unix:$scratch/upstream.sock; } }
  server { listen 127.0.0.1:$2 ssl; location / { proxy_pass http://unix:$scratch/upstream.sock; } }
}
CONF
}

nginx_ready() { (exec 3<>"/dev/tcp/127.0.0.1/$1" 4<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; }

start() {
  local h2 h1
  certificate || return
  # Somebody may take a port between the look and the bind: try again.
  for _ in 1 2 3; do
    h2=$(free_port) h1=$(free_port)
    nginx_config "$h2" "$h1" >"$scratch/nginx.conf"
    serve nginx nginx -c "$scratch/nginx.conf" -e stderr
    if await nginx_ready "$h2" "$h1"; then
      export DISPATCHER_REAL_NGINX_H2=$h2 DISPATCHER_REAL_NGINX_H1=$h1
      export DISPATCHER_REAL_NGINX_UPSTREAM=$scratch/upstream.sock
      return 0
    fi
  done
  return 1
}
