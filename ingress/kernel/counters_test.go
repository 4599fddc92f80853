package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sampleNetstat = "TcpExt: SyncookiesSent SyncookiesRecv ListenOverflows ListenDrops TCPSynRetrans\n" +
		"TcpExt: 3 0 41 42 7\n" +
		"IpExt: InNoRoutes ListenDrops\n" +
		"IpExt: 9 9\n"
	sampleSNMP = "Tcp: RtoAlgorithm MaxConn\nTcp: 1 -1\n" +
		"Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 1 2 3 4 5 6\n" +
		"UdpLite: InDatagrams RcvbufErrors\nUdpLite: 99 99\n"
	sampleSNMP6 = "Udp6InDatagrams                 \t0\nUdp6RcvbufErrors                \t8\n"
)

func writeProc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCountersAreReadByNameWhateverTheirOrder(t *testing.T) {
	got, err := readCounters(writeProc(t, map[string]string{
		"netstat": sampleNetstat, "snmp": sampleSNMP, "snmp6": sampleSNMP6,
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := Counters{
		ListenOverflows: 41, ListenDrops: 42, SyncookiesSent: 3, SynRetransAnyDirection: 7,
		UDPRcvbufErrors: 5, UDP6RcvbufErrors: 8,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestKernelWithoutIPv6StillCounts(t *testing.T) {
	got, err := readCounters(writeProc(t, map[string]string{"netstat": sampleNetstat, "snmp": sampleSNMP}))
	if err != nil || got.UDPRcvbufErrors != 5 || got.UDP6RcvbufErrors != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSystemWithoutProcSaysSo(t *testing.T) {
	if _, err := readCounters(t.TempDir()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}

func TestCounterThatShrankCountsFromZero(t *testing.T) {
	moved := Counters{ListenDrops: 3, UDPRcvbufErrors: 10}.Sub(Counters{ListenDrops: 7, UDPRcvbufErrors: 4})
	if moved.ListenDrops != 3 || moved.UDPRcvbufErrors != 6 {
		t.Errorf("got %+v", moved)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte(sampleNetstat), "TcpExt")
	f.Add([]byte("Udp: a b\nUdp: 1\nUdp: x\n"), "Udp")
	f.Add([]byte("Udp:"), "")
	f.Fuzz(func(t *testing.T, text []byte, group string) {
		for name := range parseTable(text, group) {
			if name == "" {
				t.Error("a counter without a name")
			}
		}
		parseList(text)
	})
}
