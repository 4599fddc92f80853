// Package util holds this and that.
package util
