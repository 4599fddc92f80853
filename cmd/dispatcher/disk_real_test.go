//go:build real

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// smallDisk is a file system of a few MiB, and a ballast on it that is not the
// node's.
type smallDisk struct {
	t       *testing.T
	dir     string // the mount
	ballast string
}

func mountDisk(t *testing.T, mib int) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: t.TempDir()}
	d.ballast = filepath.Join(d.dir, "ballast")
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs", d.dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a tmpfs, which needs root: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "umount", d.dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", d.dir, err, out)
		}
	})
	return d
}

func (d *smallDisk) free() int {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		d.t.Fatal(err)
	}
	return int(s.Bavail) * int(s.Bsize)
}

// leave fills the disk until so many bytes are free.
func (d *smallDisk) leave(bytes int) {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for zero := make([]byte, 4096); d.free() > bytes; {
		if _, err := f.Write(zero); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			d.t.Fatal(err)
		}
	}
}

// room takes the ballast away.
func (d *smallDisk) room() {
	d.t.Helper()
	if err := os.Remove(d.ballast); err != nil {
		d.t.Fatal(err)
	}
}

// refusal is an answer to a publish that was not accepted.
type refusal struct {
	status     int
	retryAfter string
	body       string
}

// put publishes one event with a payload of 32 KiB that does not compress.
func (p *process) put(id string) *refusal {
	p.t.Helper()
	noise := make([]byte, 16<<10)
	_, _ = rand.Read(noise)
	body := fmt.Sprintf(`{"id":%q,"topic":"t.x","payload":{"noise":%q}}`, id, hex.EncodeToString(noise))
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/tenants/t/events", bytes.NewReader([]byte(body)))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatalf("publish %s: %v\n%s", id, err, p.logged())
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusAccepted {
		return nil
	}
	return &refusal{resp.StatusCode, resp.Header.Get("Retry-After"), string(raw)}
}

// fill publishes until the first refusal and returns what was acknowledged.
func (p *process) fill(prefix string) (acked []string, r *refusal) {
	p.t.Helper()
	for i := range 20_000 {
		id := fmt.Sprintf("%s-%05d", prefix, i)
		if r = p.put(id); r != nil {
			return acked, r
		}
		acked = append(acked, id)
	}
	p.t.Fatalf("%d publishes did not fill the disk", len(acked))
	return nil, nil
}

func (p *process) ready() (bool, string) {
	p.t.Helper()
	status, body := p.try(http.MethodGet, "/readyz", nil)
	return status == http.StatusOK, string(body)
}

// checkRefusal holds a refusal against what a publisher is promised.
func checkRefusal(t *testing.T, r *refusal, says string) {
	t.Helper()
	if r.status != http.StatusServiceUnavailable || r.retryAfter == "" || !strings.Contains(r.body, says) {
		t.Errorf("refused with %d, Retry-After %q, %s\nwant a 503 with Retry-After that says %q", r.status, r.retryAfter, r.body, says)
	}
}

// diskNode starts a node with one paused subscriber on the disk.
func diskNode(t *testing.T, d *smallDisk, flags ...string) (*process, *testnet.Receiver, []string) {
	t.Helper()
	receiver, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	flags = append([]string{"--allow-private", "127.0.0.0/8", "--allow-http", "--storage-memtable", "4MiB"}, flags...)
	node := serve(t, filepath.Join(d.dir, "data"), flags...)
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": "s", "url": receiver.URL("", "/h")}, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/pause", nil, nil)
	return node, receiver, flags
}

// arrived waits until the receiver has everything.
func arrived(t *testing.T, receiver *testnet.Receiver, acked []string) {
	t.Helper()
	eventually(t, time.Minute, "everything acknowledged arrives", func() bool {
		for _, id := range acked {
			if !receiver.Tally().Has(id) {
				return false
			}
		}
		return true
	})
}

// TestRealDiskAtTheWatermarkRefusesDrainsAndRecovers fills a disk to the watermark:
// publishes get a 503, what is queued goes out, and once there is room the same
// process accepts again.
func TestRealDiskAtTheWatermarkRefusesDrainsAndRecovers(t *testing.T) {
	d := mountDisk(t, 256)
	node, receiver, _ := diskNode(t, d, "--storage-min-free", "96MiB", "--storage-min-free-percent", "90")
	if ok, why := node.ready(); !ok {
		t.Fatalf("not ready on an empty disk: %s", why)
	}
	d.leave(128 << 20)
	acked, r := node.fill("watermark")
	checkRefusal(t, r, "disk")
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged before the watermark: nothing was tested")
	}
	if ok, why := node.ready(); ok || !strings.Contains(why, "disk") {
		t.Errorf("ready %v below the watermark: %s", ok, why)
	}
	left := d.free()
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/resume", nil, nil)
	arrived(t, receiver, acked)
	if r := node.put("refused"); r == nil {
		t.Error("a publish was accepted while the disk was full")
	}
	d.room()
	eventually(t, 20*time.Second, "ready again", func() bool { ok, _ := node.ready(); return ok })
	if r := node.put("after"); r != nil {
		t.Fatalf("with room again: %+v", r)
	}
	arrived(t, receiver, []string{"after"})
	if receiver.Tally().Has("refused") {
		t.Error("a refused event was delivered")
	}
	t.Logf("%d acknowledged, refused with %d MiB free: Retry-After %s, %s", len(acked), left>>20, r.retryAfter, strings.TrimSpace(r.body))
}

// TestRealDiskWithoutAByteLosesNothingAcknowledged has no watermark: writes fail.
// Publishes are refused, the store opens itself again once there is room; and a node
// that was killed on the full disk says what is wrong, and loses nothing.
func TestRealDiskWithoutAByteLosesNothingAcknowledged(t *testing.T) {
	d := mountDisk(t, 192)
	node, receiver, flags := diskNode(t, d, "--storage-min-free", "0")
	d.leave(24 << 20)
	acked, r := node.fill("first")
	checkRefusal(t, r, "no space left")
	if ok, why := node.ready(); ok || !strings.Contains(why, "no space left") {
		t.Errorf("ready %v without a byte: %s", ok, why)
	}
	d.room()
	eventually(t, 30*time.Second, "the store is opened again", func() bool { ok, _ := node.ready(); return ok })
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged: nothing was tested")
	}
	first := len(acked)

	d.leave(24 << 20)
	more, r := node.fill("second")
	checkRefusal(t, r, "no space left")
	acked = append(acked, more...)
	node.kill()
	d.leave(0)
	out, err := startOnFull(t, d, flags)
	if err == nil {
		t.Error("a node started on a disk without a byte")
	}
	if !strings.Contains(out, "no space left") || !strings.Contains(out, "free some space on its disk") {
		t.Errorf("started on a full disk it says:\n%s", out)
	}
	d.room()
	node = serve(t, filepath.Join(d.dir, "data"), flags...)
	if r := node.put("after"); r != nil {
		t.Fatalf("with room again: %+v", r)
	}
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/resume", nil, nil)
	arrived(t, receiver, append(acked, "after"))
	c := receiver.Tally().Counts()
	t.Logf("%d and %d acknowledged before ENOSPC, all arrived, %d requests; on the full disk: %s", first, len(more), c.Requests, lastLine(out))
}

// startOnFull starts a node that is expected to give up, and returns what it said.
func startOnFull(t *testing.T, d *smallDisk, flags []string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	args := append([]string{"serve", "--data", filepath.Join(d.dir, "data"), "--listen", "127.0.0.1:0", "--ingress-listen", "127.0.0.1:0"}, flags...)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "DISPATCHER_TEST_AS_MAIN=1", "DISPATCHER_API_TOKEN=")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("it neither starts nor ends:\n%s", out)
	}
	return string(out), err
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
