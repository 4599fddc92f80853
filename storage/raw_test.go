package storage

import (
	"context"
	"errors"
	"testing"
)

func TestRawCommitsAreAllTimed(t *testing.T) {
	took, all, err := RawCommits{Dir: t.TempDir(), Writers: 3, Commits: 20, Bytes: 100}.Run(t.Context())
	if err != nil || len(took) != 20 || all <= 0 {
		t.Errorf("%d commits in %v: %v", len(took), all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := (RawCommits{Dir: t.TempDir(), Writers: 1, Commits: 5, Bytes: 8}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, _, err := (RawCommits{Dir: "/dev/null/x", Writers: 1, Commits: 1, Bytes: 8}).Run(t.Context()); err == nil {
		t.Error("a directory that cannot be made was opened")
	}
}
