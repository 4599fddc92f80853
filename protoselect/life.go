package protoselect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Start loads the saved memory and begins to save changes. A memory that cannot
// be read is reported and the selector starts without it: that only costs
// probes. It is idempotent.
func (s *Selector) Start(ctx context.Context) error {
	s.mu.Lock()
	if s.started || s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.started = true
	s.mu.Unlock()
	if s.cfg.Memory == nil {
		return nil
	}
	s.load(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.wg.Go(s.saveLoop)
	}
	return nil
}

// Stop ends every dial that nobody waits for and saves the memory. Deliveries
// in flight are ended by their own contexts; new ones are refused. It is
// idempotent and bounded by ctx.
func (s *Selector) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.stop()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("stop protoselect: %w", context.Cause(ctx))
	}
	if err := s.save(ctx); err != nil {
		return fmt.Errorf("stop protoselect: %w", err)
	}
	return nil
}

func (s *Selector) load(ctx context.Context) {
	err := s.cfg.Memory.Load(ctx, func(key string, value []byte) error {
		s.mu.Lock()
		err := s.m.restore(time.Now(), key, value)
		s.unlock()
		if err != nil {
			s.memoryFailed(err) // this entry is lost, the others are not
		}
		return nil
	})
	if err != nil {
		s.memoryFailed(fmt.Errorf("load protocol memory: %w", err))
	}
}

func (s *Selector) memoryFailed(err error) {
	s.cfg.Logger.Warn("protocol memory failed", "error", err)
	call(s.cfg.Observer.MemoryFailed, err)
}

func (s *Selector) wakeSaver() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// saveLoop saves what changed, at most once per interval. It sleeps while
// nothing changes.
func (s *Selector) saveLoop() {
	timer := time.NewTimer(s.cfg.SaveEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.base.Done():
			return
		}
		timer.Reset(s.cfg.SaveEvery)
		select {
		case <-timer.C:
		case <-s.base.Done():
			return
		}
		if err := s.save(s.base); err != nil && s.base.Err() == nil {
			s.memoryFailed(err)
			s.wakeSaver()
		}
	}
}

// saveBatch bounds how many routes are copied under the lock at once.
const saveBatch = 128

// save writes everything that is dirty.
func (s *Selector) save(ctx context.Context) error {
	if s.cfg.Memory == nil {
		return nil
	}
	for {
		routes, pins, changes := s.dirtyBatch()
		if len(changes) == 0 {
			return nil
		}
		if err := s.cfg.Memory.Save(ctx, changes); err != nil {
			s.markDirty(routes, pins)
			return fmt.Errorf("save protocol memory: %w", err)
		}
	}
}

// dirtyBatch takes some dirty entries and encodes them outside the lock.
func (s *Selector) dirtyBatch() (routes []delivery.Route, pins []delivery.Origin, changes []MemoryChange) {
	now := time.Now()
	var errs error
	encode := func(key string, v any) {
		value, err := json.Marshal(v)
		if err != nil {
			errs = errors.Join(errs, err)
			return
		}
		changes = append(changes, MemoryChange{Key: key, Value: value})
	}
	var saved []savedRoute
	var savedPins []savedPin
	s.mu.Lock()
	for r := range s.dirty {
		if len(routes) == saveBatch {
			break
		}
		delete(s.dirty, r)
		routes = append(routes, r)
		e, ok := s.m.routes.Peek(r)
		if ok {
			if v, worth := e.saved(now); worth {
				saved = append(saved, v)
				continue
			}
		}
		changes = append(changes, MemoryChange{Key: routeKey(r)})
	}
	for o := range s.dirtyPins {
		delete(s.dirtyPins, o)
		pins = append(pins, o)
		if p, ok := s.m.pins[o]; ok {
			savedPins = append(savedPins, savePin(now, o, p))
		} else {
			changes = append(changes, MemoryChange{Key: pinKey(o)})
		}
	}
	s.mu.Unlock()
	for _, v := range saved {
		if r, ok := v.route(); ok {
			encode(routeKey(r), v)
		}
	}
	for _, v := range savedPins {
		encode(pinKey(delivery.Origin{Scheme: v.Scheme, Host: v.Host, Port: v.Port}), v)
	}
	if errs != nil {
		s.memoryFailed(fmt.Errorf("encode protocol memory: %w", errs))
	}
	return routes, pins, changes
}

func (s *Selector) markDirty(routes []delivery.Route, pins []delivery.Origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirtyLocked(routes)
	for _, o := range pins {
		s.dirtyPins[o] = struct{}{}
	}
}
