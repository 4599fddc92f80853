// Package sched is described in the wrong file.
package sched
