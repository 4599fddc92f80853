//go:build real

package realtest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Shared limits stand on this: one script, run whole, that reads the server's
// clock, so that the clocks of the nodes do not matter.
func TestRealRedisRunsScriptsThatReadItsClock(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: environment(t, "DISPATCHER_REAL_REDIS"), DialTimeout: 5 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	ctx := t.Context()
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	script := redis.NewScript(`
		local now = redis.call('TIME')
		redis.call('SET', KEYS[1], now[1], 'PX', ARGV[1])
		return tonumber(now[1])`)
	before := time.Now().Add(-2 * time.Second).Unix()
	got, err := script.Run(ctx, client, []string{"realtest:clock"}, 60_000).Int64()
	if err != nil {
		t.Fatal(err)
	}
	if after := time.Now().Add(2 * time.Second).Unix(); got < before || got > after {
		t.Errorf("the server's clock says %d, ours is between %d and %d", got, before, after)
	}
	stored, err := client.Get(ctx, "realtest:clock").Int64()
	if err != nil || stored != got {
		t.Errorf("stored %d, %v; the script returned %d", stored, err, got)
	}
}
