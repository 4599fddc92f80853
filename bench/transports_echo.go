package bench

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// echoTask asks for round trips of UDP datagrams; its answer is what they took
// in ms. Lost ones are left out.
type echoTask struct {
	Count int           `json:"count"`
	Every time.Duration `json:"every"`
	Wait  time.Duration `json:"wait"` // for one answer
}

func (c *estateClient) echo(ctx context.Context, t echoTask) ([]float64, error) {
	var conn net.Conn
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(c.servers.Echo))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var out []float64
	buffer := make([]byte, 64)
	for i := range t.Count {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sent := []byte(strconv.Itoa(i))
		start := time.Now()
		if _, err := conn.Write(sent); err != nil {
			return nil, err
		}
		_ = conn.SetReadDeadline(start.Add(t.Wait))
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				break // lost
			}
			if string(buffer[:n]) == string(sent) { // and not an older one
				out = append(out, stats.Millis(time.Since(start)))
				break
			}
		}
		time.Sleep(time.Until(start.Add(t.Every)))
	}
	return out, nil
}

// blastTask asks for UDP datagrams into the sink at a rate.
type blastTask struct {
	Count int           `json:"count"`
	Size  int           `json:"size"` // UDP payload
	Every time.Duration `json:"every"`
}

// blasted is what was sent.
type blasted struct {
	Sent int           `json:"sent"`
	Over time.Duration `json:"over_ns"` // from the first to the last
}

// mostBehind bounds how many datagrams make up for a pause of this process at
// once: more would fill a queue that the probe means to leave empty.
const mostBehind = 32

func (c *estateClient) blast(ctx context.Context, t blastTask) (blasted, error) {
	var conn net.Conn
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(c.servers.Sink))
	if err != nil {
		return blasted{}, err
	}
	defer conn.Close()
	payload := make([]byte, t.Size)
	begin := host.Now()
	next := begin
	var out blasted
	for range t.Count {
		if ctx.Err() != nil {
			break
		}
		now := host.Now()
		next = max(next, now-mostBehind*t.Every)
		if ahead := next - now; ahead > time.Millisecond {
			time.Sleep(ahead)
		}
		next += t.Every
		if _, err := conn.Write(payload); err == nil {
			out.Sent++
		}
	}
	out.Over = host.Now() - begin
	return out, ctx.Err()
}
