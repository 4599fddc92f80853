//go:build !race

package transport

// failedPosts is how many POSTs fail in each way.
const failedPosts = 1000
