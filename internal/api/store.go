package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// Maintenance is the store's part of [Node].
type Maintenance interface {
	StoreStats(ctx context.Context) (engine.StoreStats, error)
	BackupStore(ctx context.Context, dir string) error
	CompactStore(ctx context.Context) error
}

type backupInput struct {
	Body struct {
		Directory string `json:"directory" doc:"a new directory on the node's machine, absolute; it will hold secrets"`
	}
}

func (s *Server) registerStore() {
	stats := operation(http.MethodGet, "/v1/store", "store-stats", "Show the store's figures", http.StatusOK)
	huma.Register(s.api, stats, func(ctx context.Context, _ *struct{}) (*bodyOf[engine.StoreStats], error) {
		out, err := s.node.StoreStats(ctx)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(out), nil
	})
	backup := operation(http.MethodPost, "/v1/store/backup", "store-backup", "Copy the store into a new directory while the node runs", http.StatusNoContent, http.StatusConflict)
	huma.Register(s.api, backup, func(ctx context.Context, in *backupInput) (*struct{}, error) {
		if err := s.node.BackupStore(ctx, in.Body.Directory); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
	compact := operation(http.MethodPost, "/v1/store/compact", "store-compact", "Rewrite the store so that what was deleted takes no space", http.StatusNoContent)
	huma.Register(s.api, compact, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		if err := s.node.CompactStore(ctx); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
}
