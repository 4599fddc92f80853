package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// UseCores binds the calling thread, and every process that it starts, to the
// first n of the cores that it may use now; 0 = all of them. The caller holds
// the thread (runtime.LockOSThread). It returns how many it got.
func UseCores(n int) (int, error) {
	var allowed, chosen unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, fmt.Errorf("cores: %w", err)
	}
	if n == 0 || n >= allowed.Count() {
		return allowed.Count(), nil
	}
	for cpu := 0; chosen.Count() < n; cpu++ {
		if allowed.IsSet(cpu) {
			chosen.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &chosen); err != nil {
		return 0, fmt.Errorf("cores: %w", err)
	}
	return n, nil
}
