// Package link is an emulated network between two processes: two TUN devices in
// two network namespaces, and in between this program, which delays, loses and
// queues every packet. TCP and UDP are the real kernel's, so congestion control,
// retransmission timers and socket buffers are what they are in production.
//
//	 client process                 parent process                  server process
//	 namespace A                                                    namespace B
//	┌────────────┐  fd   ┌────────────── up ──────────────┐  fd   ┌────────────┐
//	│ kernel TUN │──────►│ rules ► queue ► rate ► loss ►  │──────►│ TUN kernel │
//	│            │◄──────│  ◄ delay, jitter ◄── down ──   │◄──────│            │
//	└────────────┘       └────────────────────────────────┘       └────────────┘
//	  Join sends the descriptor of its TUN device to the parent over a socket
//
// A direction is a FIFO: a packet that does not fit the droptail queue is
// dropped; one that does occupies the line for its size over the rate (a
// busy-until clock); then it may be lost; else it arrives after the delay and
// its jitter, never before the one ahead of it. Loss is drawn from a seed,
// independently or in bursts (Gilbert–Elliott).
//
// Rules make a server address one whose UDP is blocked, or one whose QUIC dies
// after the handshake.
//
// What it guarantees: nothing that it makes outlives the processes. The
// namespaces have no name and the devices belong to them, so the kernel removes
// both with the last process inside, however that ends: there is nothing that a
// killed run could leave behind. No packet leaves the two namespaces.
//
// What it deliberately does not do: it does not touch routes, addresses or
// firewalls of the machine, and emulates no reordering, duplication or
// corruption.
package link
