package fault

import (
	"errors"
	"fmt"
	"net"
)

// listen binds TCP and, for HTTP/3, UDP with the same port number. A free TCP
// port can be taken on UDP; then another is tried.
func (s *Server) listen() error {
	const tries = 16
	closed, isClosed := s.standing("closed-port")
	var err error
	for range tries {
		if err = s.bind(isClosed && closed.onNetwork(overTCP), isClosed && closed.onNetwork(overUDP)); err == nil {
			return nil
		}
		s.unbind()
	}
	return err
}

func (s *Server) bind(noTCP, noUDP bool) error {
	addr, err := s.bindTCP(noTCP)
	if err != nil {
		return err
	}
	s.addr, s.port = addr.String(), addr.Port
	if !s.config.HTTP3 {
		return nil
	}
	udpAddr := &net.UDPAddr{IP: addr.IP, Port: addr.Port, Zone: addr.Zone}
	if noUDP {
		return s.reserveUDP(udpAddr)
	}
	socket, err := net.ListenUDP("udp", udpAddr)
	if err != nil {
		return fmt.Errorf("listen on udp: %w", err)
	}
	s.hub = newHub(s, socket)
	return nil
}

func (s *Server) unbind() {
	if s.tcp != nil {
		_ = s.tcp.Close()
		s.tcp = nil
	}
	for _, c := range s.reserved {
		_ = c.Close()
	}
	s.reserved = nil
}

func (s *Server) bindTCP(closed bool) (*net.TCPAddr, error) {
	ln, err := net.Listen("tcp", s.config.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on tcp %s: %w", s.config.Addr, err)
	}
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on tcp %s: it is %v", s.config.Addr, ln.Addr()), ln.Close())
	}
	if !closed {
		s.tcp = ln
		return addr, nil
	}
	defer ln.Close()
	if asked, err := net.ResolveTCPAddr("tcp", s.config.Addr); err != nil || asked.Port != 0 {
		return addr, err // the caller chose the port, and nobody else takes it
	}
	return s.reserveTCP(ln)
}

// reserveTCP returns a port that is closed and stays so: nobody listens on it,
// and a connection that goes out from it keeps it from being given to others.
func (s *Server) reserveTCP(ln net.Listener) (*net.TCPAddr, error) {
	out, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("reserve a tcp port: %w", err)
	}
	s.reserved = append(s.reserved, out)
	in, err := ln.Accept()
	if err != nil {
		return nil, fmt.Errorf("reserve a tcp port: %w", err)
	}
	s.reserved = append(s.reserved, in)
	addr, ok := out.LocalAddr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("reserve a tcp port: it is %v", out.LocalAddr())
	}
	return addr, nil
}

// reserveUDP holds a port without listening on it: a connected socket takes
// packets of its one peer only, and all others are answered as unreachable.
func (s *Server) reserveUDP(addr *net.UDPAddr) error {
	conn, err := net.DialUDP("udp", addr, &net.UDPAddr{IP: addr.IP, Port: 9, Zone: addr.Zone})
	if err != nil {
		return fmt.Errorf("reserve a udp port: %w", err)
	}
	s.reserved = append(s.reserved, conn)
	return nil
}
