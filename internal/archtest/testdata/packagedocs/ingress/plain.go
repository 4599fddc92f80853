package ingress
