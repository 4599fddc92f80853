package storage

// Accepting returns nil if publishes are accepted. Otherwise it says why not: a
// [delivery.StoreFullError] below the watermark, where deliveries go on, or what
// Healthy says.
func (s *Store) Accepting() error {
	if err := s.Healthy(); err != nil {
		return err
	}
	if full := s.disk.full.Load(); full != nil {
		return full
	}
	return nil
}
