// Package transport does one HTTP exchange: it makes and keeps connections over
// QUIC and TCP, writes a POST on one of them exactly once, and says afterwards
// what is known about it.
package transport
