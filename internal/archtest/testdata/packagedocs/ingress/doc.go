// Package ingress is described here.
package ingress
