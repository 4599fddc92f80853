// Package storage is the durable queue on Pebble.
package storage
