// Package host knows the machine under the benchmarks: what it is, whether it
// is quiet, how fast its disk syncs, and what a process has used of it.
//
//	Describe ─► facts and warnings of a report
//	Disk ─────► file system of a directory; refuses one that lives in memory
//	Syncs ────► fsync p50/p99 of this moment
//	Usage ────► CPU time, VmRSS, VmHWM of a process (/proc)
//	RunDir ───► a directory of one run, removed with it, or by the next run
//	            when this one was killed
//
// It measures and never tunes: no governor is set, no cache dropped, no limit
// raised. What a figure depends on is printed beside it instead. Figures need
// Linux; elsewhere the functions say so with [errors.ErrUnsupported].
package host
