// The storage package is described, but not in the usual form.
package storage
