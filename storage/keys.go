package storage

// One byte opens every key and says what the row is. The letters are part of
// the store format.
const (
	prefixConfig  byte = 'C' // configuration records; layout in registry.go
	prefixIndex   byte = 'I' // indexes; the second byte is an index kind
	prefixMeta    byte = 'M' // format, epoch, reserved positions
	prefixEvent   byte = 'E' // event
	prefixDedupe  byte = 'D' // bucket, tenant, hash
	prefixOpen    byte = 'O' // hour → number of open deliveries
	prefixReady   byte = 'Q' // partition, subscriber, lane, seq
	prefixRetry   byte = 'R' // partition, subscriber, due, seq
	prefixParked  byte = 'K' // partition, subscriber, key, seq
	prefixBlocked byte = 'B' // partition, subscriber, key
	prefixWake    byte = 'W' // partition, due, subscriber, seq
	prefixLease   byte = 'L' // partition, subscriber, place, lane or key
	prefixHealth  byte = 'H' // partition, subscriber
	prefixTime    byte = 'T' // partition, hour, subscriber, event
	prefixDead    byte = 'X' // partition, subscriber, event
)

// Kinds of index, the byte after [prefixIndex]. Those from indexRegistry up
// belong to the configuration registry.
const (
	indexTenantEvents byte = 0x01 // tenant, event: what a tenant published, by time
	indexRegistry     byte = 0x10
)
