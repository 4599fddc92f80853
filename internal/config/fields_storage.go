package config

import "time"

func (c *Config) storageFields() []*field {
	r, s := &c.Retention, &c.Storage
	return []*field{
		{
			path: "retention.events", live: true, value: durationValue(&r.Events, time.Hour, 3650*day),
			doc: "Events and their timelines.",
		},
		{
			path: "retention.dead_letters", live: true, value: durationValue(&r.DeadLetters, time.Hour, 3650*day),
			doc: "Dead letters, counted from their death.",
		},
		{
			path: "retention.dedupe", value: durationValue(&r.Dedupe, time.Minute, 60*day),
			doc: "For how long the same id counts as the same event.",
		},
		{
			path: "storage.memtable", value: sizeValue(&s.Memtable, 256*KiB, GiB),
			doc: "One of the store's memory tables, of which there are at most four.",
		},
		{
			path: "storage.cache", value: sizeValue(&s.Cache, MiB, 1024*GiB),
			doc: "The store's block cache. What memory tables need comes on top.",
		},
		{
			path: "storage.spool_over", value: sizeValue(&s.SpoolOver, KiB, 64*MiB),
			doc: "Payloads above this size get a file of their own.",
		},
		{
			path: "storage.commit_delay", value: durationValue(&s.CommitDelay, 100*time.Microsecond, 10*time.Millisecond),
			doc: "How long outcomes wait for company before they are written and synced. A publish\ntakes them along; those of strict order do not wait. A crash repeats what waits.",
		},
		{
			path: "storage.dedupe_memory", value: sizeValue(&s.DedupeMemory, MiB, GiB),
			doc: "Filter that spares new ids a look at the disk: about 1MiB for a million ids.",
		},
		{
			path: "storage.min_free", value: sizeValue(&s.MinFree, 0, 1024*TiB),
			doc: "Free disk space below which publishes are refused with 503; 0 is never. Deliveries\ngo on and make room. If min_free_percent of the disk is less, that counts.",
		},
		{
			path: "storage.min_free_percent", value: floatValue(&s.MinFreePercent, 0.1, 99, "%"),
			doc: "The same as a share of the disk.",
		},
	}
}
