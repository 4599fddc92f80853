// Package ingress is described here, too.
package ingress
