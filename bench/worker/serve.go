package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Method answers one call. in is nil when the caller sent nothing.
type Method func(ctx context.Context, in json.RawMessage) (any, error)

// Handle makes a method of a function with typed arguments.
func Handle[In, Out any](fn func(context.Context, In) (Out, error)) Method {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var in In
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &in); err != nil {
				return nil, fmt.Errorf("read arguments: %w", err)
			}
		}
		return fn(ctx, in)
	}
}

// call and answer are the lines of the protocol.
type call struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	In     json.RawMessage `json:"in,omitempty"`
}

type answer struct {
	ID     uint64          `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// maxLine bounds a line: a hundred thousand latencies fit.
const maxLine = 64 << 20

// Serve answers calls until in ends or ctx does; calls run side by side. It
// returns when the last one has ended; those still running are canceled.
func Serve(ctx context.Context, in io.Reader, out io.Writer, methods map[string]Method) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{out: out, methods: methods}
	defer s.calls.Wait()
	defer cancel()
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() { // ends with in; a process that serves has nothing else to do then
		scan := bufio.NewScanner(in)
		scan.Buffer(make([]byte, 0, 64<<10), maxLine)
		for scan.Scan() {
			select {
			case lines <- append([]byte(nil), scan.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
		failed <- scan.Err()
	}()
	for {
		select {
		case line := <-lines:
			if err := s.start(ctx, line); err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

type server struct {
	methods map[string]Method
	calls   sync.WaitGroup

	mu  sync.Mutex
	out io.Writer
}

func (s *server) start(ctx context.Context, line []byte) error {
	var c call
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("read call: %w", err)
	}
	s.calls.Go(func() {
		a := answer{ID: c.ID}
		result, err := s.do(ctx, c)
		if err == nil {
			a.Result, err = json.Marshal(result)
		}
		if err != nil {
			a.Error = err.Error()
		}
		s.write(a)
	})
	return nil
}

func (s *server) do(ctx context.Context, c call) (any, error) {
	method, ok := s.methods[c.Method]
	if !ok {
		return nil, errors.New("no such method: " + c.Method)
	}
	return method(ctx, c.In)
}

// write sends one line. A parent that is gone cannot be told so.
func (s *server) write(a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		line = fmt.Appendf(nil, `{"id":%d,"error":"answer cannot be encoded"}`, a.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(line, '\n'))
}
