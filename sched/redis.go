package sched

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

//go:embed redis_take.lua
var takeScript string

// RedisConfig is what a [RedisLimiter] needs to know.
type RedisConfig struct {
	// URL is redis://[user:password@]host:port[/db], or rediss:// for TLS.
	URL string
	// Timeout is how long one decision may take before local buckets make it.
	// Default 5 ms.
	Timeout time.Duration
	// Prefix begins every key. Default "dispatcher:limit:".
	Prefix string
	// AskAgainAfter is the first wait before a Redis that was slow or away is
	// asked again; it doubles up to 5 s. Default 100 ms.
	AskAgainAfter time.Duration
	// Changed is told when the shared buckets were lost (local ones stand in) and
	// when they are back. Nil = nobody is.
	Changed func(shared bool, err error)
	// Logger gets the same for the operator. Default: discarded.
	Logger *slog.Logger
}

func (c RedisConfig) withDefaults() RedisConfig {
	def(&c.Timeout, 5*time.Millisecond)
	def(&c.Prefix, "dispatcher:limit:")
	def(&c.AskAgainAfter, 100*time.Millisecond)
	if c.Changed == nil {
		c.Changed = func(bool, error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

const askAgainMax = 5 * time.Second

// errRedisSlow: no answer within the timeout.
var errRedisSlow = errors.New("no answer in time")

// RedisLimiter holds token buckets in Redis, so that nodes share them. A
// decision is one round trip, which decisions that meet share: a script takes a token of every bucket or none, by
// Redis's own clock, so that the nodes' clocks do not matter. When Redis does
// not answer in time, local buckets decide, and Redis is asked again later;
// nothing has to be restarted. While they do, each node grants the whole rate.
//
// A token that was granted too late to be used is lost, which errs on the side
// of the receiver.
type RedisLimiter struct {
	cfg    RedisConfig
	client *redis.Client
	script *redis.Script
	local  *LocalLimiter
	batch  batcher

	mu     sync.Mutex
	away   bool          // local buckets decide
	asking bool          // with away: somebody tries
	wait   time.Duration // with away: the current wait
	until  time.Time     // with away: when it is tried again
}

// silenceClient keeps the client library from writing to standard error past the
// logger that was injected: what it would say there is told by heard.
var silenceClient = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

// Printf implements the client's logger.
func (silence) Printf(context.Context, string, ...any) {}

// NewRedisLimiter returns a limiter. It does not need Redis to be there yet.
func NewRedisLimiter(cfg RedisConfig) (*RedisLimiter, error) {
	cfg = cfg.withDefaults()
	silenceClient()
	opts, err := redis.ParseURL(cfg.URL)
	if err != nil {
		// The URL has a password; the parser's error may quote it.
		return nil, errors.New("redis limiter: url cannot be parsed")
	}
	if cfg.Timeout < 0 || cfg.AskAgainAfter < 0 {
		return nil, fmt.Errorf("redis limiter: timeout %s or ask_again_after %s is negative", cfg.Timeout, cfg.AskAgainAfter)
	}
	// A decision is made by its timeout in any case; these bound what lingers.
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = time.Second, time.Second, time.Second
	opts.PoolTimeout = time.Second
	opts.MaxRetries = -1 // a repeated script would take a second token
	opts.DialerRetries = 1
	opts.ContextTimeoutEnabled = true
	opts.Protocol, opts.DisableIdentity = 2, true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l := &RedisLimiter{
		cfg: cfg, client: redis.NewClient(opts), script: redis.NewScript(takeScript), local: NewLocalLimiter(),
	}
	l.batch.send = l.send
	return l, nil
}

// Close closes the connections.
func (l *RedisLimiter) Close() error { return l.client.Close() }

// Shared reports whether the buckets are shared at the moment.
func (l *RedisLimiter) Shared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.away
}

// redisAnswer is what Redis said.
type redisAnswer struct {
	drawn Drawn
	err   error
}

// Take implements [Limiter].
func (l *RedisLimiter) Take(ctx context.Context, d Draw) Drawn {
	if !l.mayAsk() {
		return l.local.Take(ctx, d)
	}
	// The client may take longer than it is asked to (a dial, a full pool): the
	// decision does not wait for it.
	q := &question{draw: d, until: time.Now().Add(l.cfg.Timeout), answer: make(chan redisAnswer, 1)}
	l.batch.ask(ctx, q)
	timer := time.NewTimer(l.cfg.Timeout)
	defer timer.Stop()
	var got redisAnswer
	select {
	case got = <-q.answer:
	case <-timer.C:
		got.err = errRedisSlow
	}
	l.heard(got.err)
	if got.err != nil {
		return l.local.Take(ctx, d)
	}
	return got.drawn
}

// mayAsk reports whether Redis is to be asked. While it is away one caller
// tries from time to time, and all the others do not wait for it.
func (l *RedisLimiter) mayAsk() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.away {
		return true
	}
	if l.asking || time.Now().Before(l.until) {
		return false
	}
	l.asking = true
	return true
}

// heard notes whether Redis answered.
func (l *RedisLimiter) heard(err error) {
	l.mu.Lock()
	was := l.away
	l.asking = false
	switch {
	case err == nil:
		l.away, l.wait = false, 0
	case !was:
		l.away, l.wait = true, l.cfg.AskAgainAfter
	default:
		l.wait = min(2*max(l.wait, l.cfg.AskAgainAfter), askAgainMax)
	}
	l.until = time.Now().Add(l.wait)
	away := l.away
	l.mu.Unlock()
	if was == away {
		return
	}
	if away {
		l.cfg.Logger.Warn("redis does not answer; limits are local until it does", "error", err)
	} else {
		l.cfg.Logger.Info("redis answers; limits are shared again")
	}
	l.cfg.Changed(!away, err)
}

// send asks Redis a batch of questions in one round trip, and answers them.
func (l *RedisLimiter) send(ctx context.Context, batch []*question) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	unknown := l.trip(ctx, batch, false)
	if len(unknown) > 0 {
		l.trip(ctx, unknown, true)
	}
}

// trip makes one round trip. It returns the questions that Redis did nothing
// about, because it does not know the script; with load they bring it along.
func (l *RedisLimiter) trip(ctx context.Context, batch []*question, load bool) (unknown []*question) {
	pipe := l.client.Pipeline()
	replies, tenants := make([]*redis.Cmd, len(batch)), make([]int64, len(batch))
	for i, q := range batch {
		keys, args, tenantAt := l.buckets(q.draw)
		run := l.script.EvalSha
		if load && i == 0 {
			run = l.script.Eval // and the others find it loaded
		}
		replies[i], tenants[i] = run(ctx, pipe, keys, args...), tenantAt
	}
	_, _ = pipe.Exec(ctx) // what failed is in each reply
	for i, q := range batch {
		if !load && redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			unknown = append(unknown, q)
			continue
		}
		drawn, err := drawnOf(replies[i], tenants[i])
		q.answer <- redisAnswer{drawn, err}
	}
	return unknown
}

// drawnOf reads the script's reply; tenantAt is the tenant's bucket in it.
func drawnOf(cmd *redis.Cmd, tenantAt int64) (Drawn, error) {
	reply, err := cmd.Int64Slice()
	if err != nil {
		return Drawn{}, err
	}
	buckets := max(1, tenantAt)
	if len(reply) != 2 || reply[0] < 0 || reply[0] > buckets || reply[1] < 0 {
		return Drawn{}, fmt.Errorf("script answered %v", reply)
	}
	if reply[0] == 0 {
		return Drawn{}, nil
	}
	wait := time.Duration(min(reply[1], math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
	return Drawn{Wait: max(wait, time.Microsecond), Tenant: reply[0] == tenantAt}, nil
}

// buckets names the buckets of a draw. The braces keep a tenant's keys on one
// node of a Redis cluster, as a script needs them.
func (l *RedisLimiter) buckets(d Draw) (keys []string, args []any, tenantAt int64) {
	tag := l.cfg.Prefix + "{" + strconv.FormatUint(uint64(d.Tenant), 10) + "}"
	add := func(key string, limit delivery.RateLimit) {
		keys = append(keys, key)
		args = append(args, strconv.FormatFloat(limit.PerSecond, 'g', -1, 64), burstOf(limit))
	}
	if d.SubscriberLimit.PerSecond > 0 {
		add(tag+":"+strconv.FormatUint(uint64(d.Subscriber), 10), d.SubscriberLimit)
	}
	if d.TenantLimit.PerSecond > 0 {
		add(tag, d.TenantLimit)
		tenantAt = int64(len(keys))
	}
	return keys, args, tenantAt
}
