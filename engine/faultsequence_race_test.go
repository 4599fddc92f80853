//go:build race

package engine

const faultSequences = 400
