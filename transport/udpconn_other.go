//go:build !linux

package transport

import "net"

// softened changes nothing where quic-go uses no segmentation offload.
func softened(conn net.PacketConn) net.PacketConn { return conn }

// bufferSizes cannot tell.
func bufferSizes(net.PacketConn) (read, write int, ok bool) { return 0, 0, false }
