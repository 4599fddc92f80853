package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/storage"
)

func (a *app) store() *cobra.Command {
	return group("store", "The store: figures, backup, check, compaction",
		a.storeStats(), a.storeBackup(), a.storeCompact(), a.storeCheck())
}

func (a *app) storeStats() *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Show the store's figures", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var out object
			if err := a.client.do(c.Context(), http.MethodGet, "/v1/store", nil, nil, &out); err != nil {
				return err
			}
			return a.show(out, "epoch", "partitions", "tenants", "subscribers", "open_deliveries", "disk_bytes", "wal_bytes",
				"memtable_bytes", "tables", "compactions_running", "spool_files")
		},
	}
}

func (a *app) storeBackup() *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR", Short: "Copy the store into a new directory while the node runs", Args: oneArg("DIR"),
		Long: `backup asks the running node to copy its store into a new directory on its own
machine. The copy is consistent and holds everything that a node needs, the key
that seals secrets included: keep it as secret as the store, and move it to
another disk.

To restore, start a node on the copy: dispatcher serve --data DIR. It sends again
what was in flight when the copy was made.`,
		Example: `  dispatcher store backup "/backups/$(date +%F)"`,
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return usageError(err)
			}
			if err := a.client.do(c.Context(), http.MethodPost, "/v1/store/backup", nil, object{"directory": dir}, nil); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, object{"directory": dir})
			}
			_, err = fmt.Fprintln(a.Out, dir)
			return err
		},
	}
}

func (a *app) storeCompact() *cobra.Command {
	return &cobra.Command{
		Use: "compact", Short: "Rewrite the store so that what was deleted takes no space", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.client.do(c.Context(), http.MethodPost, "/v1/store/compact", nil, nil, nil)
		},
	}
}

func (a *app) storeCheck() *cobra.Command {
	var data string
	c := &cobra.Command{
		Use: "check", Short: "Read every row of a store that no node has open, and hold it against the others", Args: noArgs,
		Long: `check opens a store that no node has open and reads all of it: values decode, every
pending delivery has its event, everything that waits has its wake-up, and the
counters add up. It raises the store's epoch,
as every opening does, and changes nothing else.`,
		Example: `  dispatcher store check --data ./data
  dispatcher store check --data /backups/2026-01-02`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runCheck(c.Context(), data) },
	}
	c.Flags().StringVar(&data, "data", "data", "directory of the store")
	return c
}

func (a *app) runCheck(ctx context.Context, data string) (err error) {
	if _, err := os.Stat(data); err != nil {
		return usageError(fmt.Errorf("--data: %w", err))
	}
	s, err := storage.Open(storage.Config{Dir: data, Watermark: storage.Watermark{Bytes: -1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	last := time.Now()
	report, err := s.Check(ctx, func(rows int64) {
		if time.Since(last) > time.Second {
			last = time.Now()
			a.note("%d rows read", rows)
		}
	})
	if err != nil {
		return err
	}
	if a.json {
		err = printJSON(a.Out, report)
	} else {
		err = a.printCheck(report)
	}
	if report.Bad > 0 {
		return errors.Join(err, fmt.Errorf("%d faults", report.Bad))
	}
	return err
}

func (a *app) printCheck(report storage.CheckReport) error {
	rows := make([]object, 0, len(report.Rows))
	for _, kind := range sortedKeys(report.Rows) {
		rows = append(rows, object{"kind": kind, "rows": float64(report.Rows[kind])})
	}
	if err := printTable(a.Out, rows, field("KIND", "kind"), field("ROWS", "rows")); err != nil {
		return err
	}
	for _, fault := range report.Faults {
		fmt.Fprintln(a.Out, "fault:", fault)
	}
	if report.Bad == 0 {
		fmt.Fprintln(a.Out, "the store is sound")
	}
	return nil
}
