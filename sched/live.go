package sched

import "fmt"

// What of a [Config] can be changed while attempts are made.

// SetBreaker has outcomes judged by another policy from now on; zero fields are the
// defaults. A circuit that is open waits as long as was decided.
func (s *Scheduler) SetBreaker(policy BreakerPolicy) error {
	cfg := Config{Breaker: policy}.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("sched: %w", err)
	}
	s.breaker.Store(&cfg.Breaker)
	return nil
}

// SetInFlight changes MaxInFlight and MaxSlow; zero is the default, and MaxNew is a
// quarter. When there are fewer than are in flight, those end as they would, and
// nothing begins before.
func (s *Scheduler) SetInFlight(most, slow int) error {
	cfg := Config{MaxInFlight: most, MaxSlow: slow}.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("sched: %w", err)
	}
	d := s.dispatch
	d.mu.Lock()
	d.most = cfg.MaxInFlight
	d.bound = [classes]int{classFast: cfg.MaxInFlight, classNew: cfg.MaxNew, classSlow: cfg.MaxSlow}
	d.vacancyLocked()
	d.mu.Unlock()
	s.pump()
	return nil
}
