// Package helpers is named unlike its directory.
package helpers
