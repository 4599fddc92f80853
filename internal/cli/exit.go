package cli

import "errors"

// Exit statuses, documented in the help of the root command.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNotFound    = 4
)

// ExitError carries an exit status with an error.
type ExitError struct {
	Status int
	Err    error
}

// Error implements error.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// status returns the exit status of a command's error.
func status(err error) int {
	if err == nil {
		return ExitOK
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Status
	}
	return ExitFailed
}

func usageError(err error) error { return &ExitError{Status: ExitUsage, Err: err} }
