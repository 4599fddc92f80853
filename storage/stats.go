package storage

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Stats describes a store.
type Stats struct {
	Epoch       delivery.Epoch `json:"epoch" doc:"how often the store was opened: the fencing token"`
	Partitions  int            `json:"partitions" doc:"of the store"`
	DiskBytes   uint64         `json:"disk_bytes" doc:"tables and log"` // tables and log
	WALBytes    uint64         `json:"wal_bytes" doc:"live log"`        // live log
	MemBytes    uint64         `json:"memtable_bytes" doc:"in memory, not yet in a table"`
	Tables      int64          `json:"tables" doc:"files that hold records"`
	Compactions int64          `json:"compactions_running" doc:"now"`
	Open        int64          `json:"open_deliveries" doc:"neither delivered nor dead nor canceled"` // neither delivered nor dead nor canceled
	Tenants     uint64         `json:"tenants" doc:"registered"`
	Subscribers uint64         `json:"subscribers" doc:"registered"`
	Spooled     int            `json:"spool_files" doc:"large payloads in files of their own"`
}

// Stats reads the store's figures; it scans nothing but the counters of open
// deliveries, one for each hour that has some.
func (s *Store) Stats() (Stats, error) {
	out := Stats{Epoch: s.Lease().Epoch, Partitions: s.Partitions()}
	err := s.view(func(db *pebble.DB) error {
		m := db.Metrics()
		out.DiskBytes, out.WALBytes, out.MemBytes = m.DiskSpaceUsage(), m.WAL.Size, m.MemTable.Size
		out.Tables, out.Compactions = m.Total().TablesCount, m.Compact.NumInProgress
		var err error
		out.Open, err = openDeliveries(db)
		return err
	})
	if err != nil {
		return Stats{}, fmt.Errorf("store stats: %w", err)
	}
	if out.Tenants, out.Subscribers, err = s.registry.Registered(); err != nil {
		return Stats{}, fmt.Errorf("store stats: %w", err)
	}
	names, err := s.spool.dir.list()
	if err != nil {
		return Stats{}, fmt.Errorf("store stats: %w", err)
	}
	out.Spooled = len(names)
	return out, nil
}

// openDeliveries adds up the counters of open deliveries.
func openDeliveries(db *pebble.DB) (total int64, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixOpen}, UpperBound: []byte{prefixOpen + 1}})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n, err := decodeCounter(it.Value())
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, it.Error()
}

// Compact rewrites the whole store so that what was deleted no longer takes
// space. Deliveries go on meanwhile, more slowly.
func (s *Store) Compact(ctx context.Context) error {
	err := s.view(func(db *pebble.DB) error {
		s.fuse.paces.hurry.Add(1)
		defer s.fuse.paces.hurry.Add(-1)
		return db.Compact(ctx, []byte{0}, []byte{0xff}, true)
	})
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	return nil
}
