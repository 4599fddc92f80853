//go:build race

package transport

// failedPosts is how many POSTs fail in each way. The race detector makes them
// many times as dear.
const failedPosts = 200
