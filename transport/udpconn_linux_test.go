package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// control builds one control message.
func control(level, kind int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(len(data))))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(kind))
	copy(b[unix.CmsgLen(0):], data)
	return b
}

func train(size uint16) []byte {
	return control(unix.IPPROTO_UDP, unix.UDP_SEGMENT, binary.NativeEndian.AppendUint16(nil, size))
}

func ecn() []byte { return control(unix.IPPROTO_IP, unix.IP_TOS, []byte{2}) }

func TestTrainIsFoundAmongControlMessages(t *testing.T) {
	for _, oob := range [][]byte{train(1280), append(train(1280), ecn()...), append(ecn(), train(1280)...)} {
		if n := trainSize(oob); n != 1280 {
			t.Fatalf("size %d in % x", n, oob)
		}
		if rest := withoutTrain(oob); trainSize(rest) != 0 || len(rest) != len(oob)-len(train(1)) {
			t.Fatalf("% x is left of % x", rest, oob)
		}
	}
	for _, oob := range [][]byte{nil, ecn(), {1, 2, 3}} {
		if n := trainSize(oob); n != 0 {
			t.Fatalf("size %d in % x", n, oob)
		}
	}
}

func FuzzControlMessages(f *testing.F) {
	f.Add(append(ecn(), train(1280)...))
	f.Fuzz(func(t *testing.T, oob []byte) {
		_ = trainSize(oob)
		if rest := withoutTrain(oob); trainSize(rest) != 0 || len(rest) > len(oob) {
			t.Fatalf("% x is left of % x", rest, oob)
		}
	})
}

// writes records what reaches the system.
type writes struct {
	*net.UDPConn
	err     func(b, oob []byte) error
	packets [][]byte
}

func (w *writes) WriteMsgUDP(b, oob []byte, _ *net.UDPAddr) (int, int, error) {
	if err := w.err(b, oob); err != nil {
		return 0, 0, err
	}
	w.packets = append(w.packets, bytes.Clone(b))
	return len(b), len(oob), nil
}

func TestWriteErrorsAreSoftened(t *testing.T) {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	peer := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	other := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}
	payload := bytes.Repeat([]byte("0123456789"), 300)

	t.Run("a refused train goes one by one, on that path only", func(t *testing.T) {
		trains := map[int]int{}
		w := &writes{UDPConn: udp}
		soft := softened(w).(*softUDP)
		to := peer
		w.err = func(_, oob []byte) error {
			if trainSize(oob) > 0 {
				trains[to.Port]++
				if to == peer {
					return syscall.EINVAL
				}
			}
			return nil
		}
		for range 3 {
			if n, _, err := soft.WriteMsgUDP(payload, train(1200), to); n != len(payload) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if len(w.packets) != 9 || len(w.packets[0]) != 1200 || len(w.packets[2]) != 600 {
			t.Fatalf("%d packets", len(w.packets))
		}
		to = other
		if _, _, err := soft.WriteMsgUDP(payload, train(1200), to); err != nil {
			t.Fatal(err)
		}
		if trains[1] != 1 || trains[2] != 1 || len(w.packets) != 10 {
			t.Fatalf("trains tried by path: %v", trains)
		}
	})
	t.Run("single packets", func(t *testing.T) {
		for _, c := range []struct {
			errno  error
			size   int
			wantOK bool
			is     error
		}{
			{syscall.ENOBUFS, 1200, true, nil},
			{syscall.EMSGSIZE, 1400, false, syscall.EMSGSIZE}, // a probe: quic-go knows
			{syscall.EMSGSIZE, 1200, false, nil},
			{syscall.ENETUNREACH, 1200, false, syscall.ENETUNREACH},
			{syscall.EINVAL, 1200, false, syscall.EINVAL},
		} {
			w := &writes{UDPConn: udp, err: func(_, _ []byte) error { return c.errno }}
			_, _, err := softened(w).(*softUDP).WriteMsgUDP(payload[:c.size], nil, peer)
			if (err == nil) != c.wantOK || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v at %d bytes: %v", c.errno, c.size, err)
			}
			if c.is == nil && errors.Is(err, syscall.EMSGSIZE) {
				t.Errorf("%v at %d bytes is still taken for a probe", c.errno, c.size)
			}
		}
	})
}
