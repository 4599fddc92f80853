package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// stage is what a benchmark of a whole node happens on: a directory on a disk,
// a receiver and a load generator, each in a process of its own, and what was
// found to be wrong.
type stage struct {
	run        Run
	nodeConfig string
	progress   *progress
	dir        *host.RunDir
	fs         string
	receiver   *worker.Worker
	load       *worker.Worker
	origins    []string // of the receiver
	secret     string
	nodes      int // data directories so far
	failures   []string
	doubts     []string
}

func newStage(run Run, nodeConfig string) stage {
	return stage{run: run, nodeConfig: nodeConfig, progress: newProgress(run.Progress)}
}

// open makes directory and processes, looks at the disk, and returns the
// receiver's origins. The caller calls close, whatever the error.
func (s *stage) open(origins int) ([]string, error) {
	var err error
	if s.dir, err = s.run.open(s.progress); err != nil {
		return nil, err
	}
	if s.fs, err = host.Disk(s.dir.Path); err != nil {
		return nil, err
	}
	secret, err := signing.GenerateSecret(signing.Standard)
	if err != nil {
		return nil, err
	}
	s.secret = secret.Reveal()
	if s.receiver, err = s.start("receiver", strconv.Itoa(origins)); err != nil {
		return nil, err
	}
	if s.load, err = s.start("load"); err != nil {
		return nil, err
	}
	return s.origins, s.receiver.Call(context.Background(), "origins", nil, &s.origins)
}

func (s *stage) start(kind string, args ...string) (*worker.Worker, error) {
	return worker.StartWorker(worker.Command{
		Name: kind, Args: append([]string{"bench", "worker", kind}, args...), Cores: s.run.Cores, Log: s.dir.Join(kind + ".log"),
	})
}

func (s *stage) close() error {
	const patience = 10 * time.Second
	var errs []error
	for _, w := range []*worker.Worker{s.load, s.receiver} {
		if w != nil {
			errs = append(errs, w.Stop(patience))
		}
	}
	if s.dir != nil {
		errs = append(errs, s.dir.Remove())
	}
	return errors.Join(errs...)
}

// fail notes a promise that did not hold.
func (s *stage) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.failures = append(s.failures, text)
	s.progress.say("FAILED: %s", text)
}

// newData returns a fresh data directory for a node.
func (s *stage) newData() nodeSpec {
	s.nodes++
	name := "node" + strconv.Itoa(s.nodes)
	return nodeSpec{data: s.dir.Join(name), log: s.dir.Join(name + ".log"), config: s.nodeConfig, cores: s.run.Cores}
}

// begin starts a phase of the receiver in which nobody hangs.
func (s *stage) begin(ctx context.Context, tag string, events, subscribers int, fanOut bool) error {
	return s.receiver.Call(ctx, "begin", load.Phase{
		Tag: tag, Events: events, Subscribers: subscribers, FanOut: fanOut, Secret: s.secret, Hang: -1,
	}, nil)
}
