# Bare `make` lists the targets. Everything but race, lint and test-real needs
# Go alone; race needs a C compiler, test-real installs its peers with apt-get.

GO          ?= go
BIN         := bin
DISPATCHER  := $(BIN)/dispatcher
LINTER      := $(BIN)/golangci-lint

# Arguments for the programs behind the targets of the same name.
DEMO_FLAGS  ?=
RUN_FLAGS   ?=
BENCH_FLAGS ?= engine
TEST_FLAGS  ?=
# Inputs tried per fuzz target. A count and not a duration: until Go 1.27 a
# duration sometimes ends in a false "context deadline exceeded".
FUZZ_RUNS   ?= 300x

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# The product is pure Go, so what is tested is what is shipped: no C library,
# one static binary. Only the race detector needs cgo.
export CGO_ENABLED ?= 0

# The packages with goroutines of their own. Those that only start processes, or
# only map one form to another, are not worth the detector's time.
RACE_PKGS = $(shell $(GO) list ./engine ./ingress/... ./internal/netguard ./internal/testnet/... ./protoselect ./sched ./storage ./transport)

.DEFAULT_GOAL := help
.PHONY: help build demo run test race lint fuzz-smoke bench microbench test-real \
        fmt generate tidy vet ci clean

help: ## Print this list
	@echo 'Usage: make TARGET [VARIABLE=VALUE ...]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/dispatcher, one static binary
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o $(DISPATCHER) ./cmd/dispatcher

demo: build ## See it work: senders, receivers and failures in one process (DEMO_FLAGS)
	$(DISPATCHER) demo $(DEMO_FLAGS)

run: build ## Run a node on 127.0.0.1:8080 with its data in ./data (RUN_FLAGS)
	$(DISPATCHER) serve --data data $(RUN_FLAGS)

test: ## All tests; Go is enough (TEST_FLAGS)
	$(GO) test -timeout 5m $(TEST_FLAGS) ./...

race: ## The tests under the race detector; needs gcc (TEST_FLAGS)
	CGO_ENABLED=1 $(GO) test -race -timeout 10m $(TEST_FLAGS) $(RACE_PKGS)

lint: $(LINTER) ## Static checks with the golangci-lint pinned in tools/lint
	$(LINTER) config verify
	$(LINTER) run --allow-parallel-runners

fuzz-smoke: ## Every fuzz target for a moment (FUZZ_RUNS)
	scripts/fuzz-smoke $(FUZZ_RUNS)

bench: build ## Durable publish to 2xx beside the bare client's floor (BENCH_FLAGS)
	$(DISPATCHER) bench $(BENCH_FLAGS)

microbench: ## The Benchmark functions of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

test-real: ## Against real peers: nginx, ngtcp2, Redis, Chromium, webhook libraries (needs apt-get, npm)
	scripts/test-real

fmt: ## Format the code and apply the modernizers of go fix
	gofmt -w $$(git ls-files '*.go' | grep -v /testdata/)
	$(GO) fix ./...

generate: ## Regenerate what is generated
	$(GO) generate ./...

tidy: ## Tidy every module file
	$(GO) mod tidy
	cd tools/lint && GOWORK=off $(GO) mod tidy
	cd tools/manifests && GOWORK=off $(GO) mod tidy

vet: ## go vet, the tests against real peers included
	$(GO) vet ./...
	$(GO) vet -tags real ./...

ci: ## What the project's CI runs, with a time budget per suite
	.ci/run

clean: ## Remove the build products
	rm -rf $(BIN)

# A module file of its own keeps the linter's two hundred dependencies out of
# the product's go.mod, and still pins them by hash.
$(LINTER): tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && GOWORK=off $(GO) build -o $(CURDIR)/$(LINTER) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
