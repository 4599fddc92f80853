package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// MaxPattern is the longest topic pattern, in bytes.
const MaxPattern = 512

// checkPatterns refuses what the index cannot hold. Patterns are stored in
// keys, where a zero byte ends them.
func checkPatterns(patterns []string) error {
	for i, p := range patterns {
		switch {
		case len(p) > MaxPattern:
			return fmt.Errorf("topics[%d] has %d bytes, want at most %d: %w", i, len(p), MaxPattern, ErrBadRecord)
		case strings.ContainsRune(p, 0) || !utf8.ValidString(p):
			return fmt.Errorf("topics[%d] %q is not text: %w", i, p, ErrBadRecord)
		}
	}
	return nil
}

// index moves a subscriber's rows from the patterns it had to those it has, in
// the batch that changes its record.
func (tx *registryTx) index(tenant delivery.TenantNum, sub delivery.SubscriberNum, had, has []string) error {
	if !slices.Equal(had, has) && !slices.Contains(tx.indexed, tenant) {
		tx.indexed = append(tx.indexed, tenant)
	}
	var errs []error
	for _, p := range had {
		if !slices.Contains(has, p) {
			errs = append(errs, tx.delete(keyTopic(tenant, p, sub)))
		}
	}
	for _, p := range has {
		if !slices.Contains(had, p) {
			errs = append(errs, tx.set(keyTopic(tenant, p, sub), nil))
		}
	}
	return errors.Join(errs...)
}

// Match returns the subscribers of a tenant that want a topic, each once, in
// the order of their numbers: active, paused and disabled ones, not deleted
// ones. It agrees with [delivery.MatchTopic] and costs one seek per segment of
// the topic and one step per match, whatever else is registered. The numbers
// are appended to dst.
func (r *Registry) Match(tenant delivery.TenantNum, topic string, dst []delivery.SubscriberNum) ([]delivery.SubscriberNum, error) {
	start := len(dst)
	err := r.read(func(db *pebble.DB) error {
		r.topics.use(db)
		key := topicKey{tenant, topic}
		known, generation, ok := r.topics.get(key, dst)
		if ok {
			dst = known
			return nil
		}
		var err error
		dst, err = matchIndex(db, tenant, topic, dst)
		if err == nil {
			r.topics.put(key, generation, dst[start:])
		}
		return err
	})
	if err != nil {
		return dst[:start], fmt.Errorf("match topic in tenant %d: %w", tenant, err)
	}
	return dst, nil
}

// matchIndex is Match without the cache.
func matchIndex(from pebble.Reader, tenant delivery.TenantNum, topic string, dst []delivery.SubscriberNum) (_ []delivery.SubscriberNum, err error) {
	start := len(dst)
	patterns := patternsFor(topic)
	prefix := keyTopics(tenant)
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
	if err != nil {
		return dst, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	key := make([]byte, 0, 64)
	for _, p := range patterns {
		key = keyTopicPattern(key[:0], tenant, p)
		if dst, err = appendMatches(dst, it, key); err != nil {
			return dst, err
		}
	}
	found := dst[start:]
	if len(patterns) > 1 {
		slices.Sort(found)
		found = slices.Compact(found)
	}
	return dst[:start+len(found)], nil
}

func appendMatches(dst []delivery.SubscriberNum, it *pebble.Iterator, prefix []byte) ([]delivery.SubscriberNum, error) {
	for valid := it.SeekGE(prefix); valid && bytes.HasPrefix(it.Key(), prefix); valid = it.Next() {
		num, err := lastSubscriber(it.Key()[len(prefix):])
		if err != nil {
			return dst, err
		}
		dst = append(dst, num)
	}
	return dst, it.Error()
}

// patternsFor returns every pattern that can be stored and matches a topic: the
// topic itself, "*", and "prefix.*" for each of its prefixes that end before a
// dot. It is [delivery.MatchTopic] turned around, so that the index is asked for
// few keys and not for all. Topics of any length and content give a bounded
// list, without a zero byte.
func patternsFor(topic string) []string {
	var out []string
	if len(topic) <= MaxPattern && !strings.ContainsRune(topic, 0) {
		out = append(out, topic)
	}
	add := func(p string) {
		if p != topic {
			out = append(out, p)
		}
	}
	if topic != "" && !delivery.IsOperational(topic) {
		add("*")
	}
	for i := range min(len(topic)-1, MaxPattern-1) {
		if topic[i] == 0 {
			break
		}
		if topic[i] == '.' {
			add(topic[:i+1] + "*")
		}
	}
	return out
}

// patternsOf finds the patterns of a subscriber in the index itself, by reading
// the whole index of its tenant: for a record that cannot be read any more.
func patternsOf(from pebble.Reader, tenant delivery.TenantNum, sub delivery.SubscriberNum) (patterns []string, err error) {
	prefix := keyTopics(tenant)
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		row := it.Key()[len(prefix):]
		if len(row) < 9 {
			continue
		}
		if num, _ := lastSubscriber(row); num == sub {
			patterns = append(patterns, string(row[:len(row)-9]))
		}
	}
	return patterns, it.Error()
}
