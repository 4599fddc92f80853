//go:build !linux

package transport

import "net"

// softened changes nothing where quic-go uses no segmentation offload.
func softened(conn net.PacketConn) net.PacketConn { return conn }
