// Package kernel reads what the kernel did to our listeners before a server
// could see it: connections and datagrams that were dropped because a queue was
// full. An HTTP server that is too slow to accept looks idle to itself; these
// figures are the only place where its losses show.
//
//	SYN ─► SYN queue ─► accept queue ─► accept(2) ─► net/http
//	          │             │
//	          │             └ full: ListenOverflows, ListenDrops   (namespace)
//	          │               depth and limit: Socket.Queue, Limit (one socket)
//	          └ full: SyncookiesSent                               (namespace)
//
//	datagram ─► receive buffer ─► recvmmsg(2) ─► QUIC
//	               └ full: UDPRcvbufErrors                         (namespace)
//	                       Socket.Drops                            (one socket)
//
// [ReadCounters] parses /proc/net and covers the network namespace, so other
// processes in it count too. [Inspect] asks the kernel about one socket, over
// sock_diag, and finds it by its inode.
//
// It only reads. It deliberately has no idea of what is much, keeps nothing
// between two calls, and changes no setting; whoever samples compares. Outside
// Linux everything answers [ErrUnsupported].
package kernel
