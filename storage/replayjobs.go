package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// ReplayJob is a bulk replay that outlives its request and the process. What its
// record says is another package's business. What is kept here is that the record
// is written with the replays that it tells of, in one batch, so that a job that
// goes on after a crash neither repeats a page nor leaves one out.
type ReplayJob struct {
	ID     string
	Record []byte
}

// MaxReplayPage is how many deliveries [Store.ReplayPage] takes.
const MaxReplayPage = stepSize

// maxReplayJobID is in bytes.
const maxReplayJobID = 128

func keyReplayJob(id string) []byte { return append(metaKey(metaReplayJob), id...) }

// ReplayPage replays like [Store.Replay], at most [MaxReplayPage] deliveries, and
// writes a job's record in the same batch: record makes it, on the committer's
// goroutine, from one error for each delivery. Those are returned, too, unless
// nothing was written, or nobody knows whether it was.
func (s *Store) ReplayPage(ctx context.Context, at time.Time, id string, list []Replay, record func(errs []error) []byte) ([]error, error) {
	if id == "" || len(id) > maxReplayJobID || len(list) > MaxReplayPage {
		return nil, fmt.Errorf("replay job %q with %d deliveries: %w", id, len(list), ErrBadRecord)
	}
	result := make([]error, len(list)) // the step may outlive a caller that leaves
	err := s.step(ctx, &step{run: func(db *pebble.DB, b *building) error {
		for i := range list {
			result[i] = b.replay(db, at, &list[i])
		}
		return b.b.Set(keyReplayJob(id), record(result), nil)
	}})
	if err != nil {
		return nil, fmt.Errorf("replay job %q: %w", id, err)
	}
	return result, nil
}

// PutReplayJob writes a job's record; nil means that it is durable.
func (s *Store) PutReplayJob(ctx context.Context, id string, record []byte) error {
	_, err := s.ReplayPage(ctx, time.Time{}, id, nil, func([]error) []byte { return record })
	return err
}

// DeleteReplayJobs removes the records of jobs, those that there are.
func (s *Store) DeleteReplayJobs(ctx context.Context, ids ...string) error {
	err := s.step(ctx, &step{run: func(_ *pebble.DB, b *building) error {
		for _, id := range ids {
			if err := b.b.Delete(keyReplayJob(id), nil); err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		return fmt.Errorf("delete %d replay jobs: %w", len(ids), err)
	}
	return nil
}

// ReplayJob returns one job's record; ok is false when there is none.
func (s *Store) ReplayJob(id string) (record []byte, ok bool, err error) {
	if record, ok, err = s.get(keyReplayJob(id)); err != nil {
		return nil, false, fmt.Errorf("replay job %q: %w", id, err)
	}
	return record, ok, nil
}

// ReplayJobs returns all jobs in the order of their ids.
func (s *Store) ReplayJobs() (jobs []ReplayJob, err error) {
	prefix := metaKey(metaReplayJob)
	err = s.view(func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			jobs = append(jobs, ReplayJob{ID: string(it.Key()[len(prefix):]), Record: append([]byte(nil), v...)})
		}
		return it.Error()
	})
	if err != nil {
		return nil, fmt.Errorf("list replay jobs: %w", err)
	}
	return jobs, nil
}
