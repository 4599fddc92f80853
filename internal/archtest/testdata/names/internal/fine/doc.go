// Package fine is fine.
package fine
