package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/dispatcher-engine/dispatcher/internal/cli"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "devel"

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, version, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}
