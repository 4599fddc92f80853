package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Worker is a process that answers calls.
type Worker struct {
	*Process
	reading sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer // nil after the process's output ended
}

// StartWorker starts a process that calls [Serve].
func StartWorker(c Command) (*Worker, error) {
	p, err := Start(c)
	if err != nil {
		return nil, err
	}
	w := &Worker{Process: p, waiting: map[uint64]chan answer{}}
	w.reading.Go(w.read)
	return w, nil
}

// read hands answers to their callers until the output ends.
func (w *Worker) read() {
	lines := bufio.NewScanner(w.out)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			break // not ours: whoever waits hears that the worker is of no use
		}
		w.mu.Lock()
		to := w.waiting[a.ID]
		delete(w.waiting, a.ID)
		w.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.waiting {
		close(to)
	}
	w.waiting = nil
}

// errGone says that the process's output ended.
var errGone = errors.New("the worker is gone")

// Call makes one call and decodes its result into out (nil = ignore). When ctx
// ends first the call goes on in the worker and its answer is dropped.
func (w *Worker) Call(ctx context.Context, method string, in, out any) error {
	to := make(chan answer, 1)
	id, err := w.send(method, in, to)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", w.name, method, err)
	}
	select {
	case a, ok := <-to:
		switch {
		case !ok:
			return w.lost(method)
		case a.Error != "":
			return fmt.Errorf("%s: %s: %s", w.name, method, a.Error)
		case out == nil:
			return nil
		}
		if err := json.Unmarshal(a.Result, out); err != nil {
			return fmt.Errorf("%s: %s: read the answer: %w", w.name, method, err)
		}
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		delete(w.waiting, id)
		w.mu.Unlock()
		return fmt.Errorf("%s: %s: %w", w.name, method, context.Cause(ctx))
	}
}

// lost explains a call that was never answered, with the process's own words if
// it has ended.
func (w *Worker) lost(method string) error {
	select {
	case <-w.done:
		return fmt.Errorf("%s: %w", method, w.ended("ended"))
	case <-time.After(time.Second):
		return fmt.Errorf("%s: %s: %w", w.name, method, errGone)
	}
}

func (w *Worker) send(method string, in any, to chan answer) (uint64, error) {
	var raw json.RawMessage
	if in != nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return 0, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		return 0, errGone
	}
	w.last++
	line, err := json.Marshal(call{ID: w.last, Method: method, In: raw})
	if err != nil {
		return 0, err
	}
	// The pipe holds a call; a worker always reads the next one.
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	w.waiting[w.last] = to
	return w.last, nil
}

// Stop ends the worker by the end of its input, and kills it if that does not
// help within the given time; see [Process.Stop].
func (w *Worker) Stop(within time.Duration) error {
	err := w.stop(within, func() {})
	w.reading.Wait()
	return err
}

// Kill is kill -9; see [Process.Kill].
func (w *Worker) Kill() {
	w.Process.Kill()
	w.reading.Wait()
}
