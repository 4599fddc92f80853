package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ByteSize is a number of bytes.
type ByteSize int64

// Binary multiples, the ones that sizes are shown in.
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
	TiB ByteSize = 1 << 40
)

// String returns the size in the largest unit that it is a whole number of.
func (b ByteSize) String() string {
	for _, u := range []struct {
		name string
		size ByteSize
	}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}} {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// parseSize reads "64MiB", "1.5 GiB", "10MB" or a number of bytes.
func parseSize(text string) (ByteSize, error) {
	number, unit := splitUnit(text)
	lower := strings.ToLower(unit)
	factor, ok := sizeUnits[lower]
	if !ok {
		switch lower {
		case "k", "m", "g", "t":
			big := strings.ToUpper(unit)
			return 0, bad(fmt.Sprintf("the unit %q may mean two sizes", unit),
				fmt.Sprintf("write %s%siB (binary) or %s%sB (decimal)", number, big, number, big))
		}
		return 0, bad(fmt.Sprintf("%q is no unit of size", clip(unit)), "use B, KiB, MiB, GiB, TiB, or the decimal KB, MB, GB, TB")
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || number == "" || strings.ContainsAny(number, "eExXpP_+") {
		return 0, bad("is not a size", "write a number and a unit, such as 64MiB")
	}
	bytes := n * factor
	switch {
	case bytes < 0:
		return 0, bad("must not be negative", "write a size of 0 or more")
	case bytes > 1<<52: // beyond, a float64 skips whole numbers
		return 0, bad("is larger than any machine's memory or disk", "write a size below 4096TiB")
	case bytes != math.Trunc(bytes):
		return 0, bad("is not a whole number of bytes", "write it in a smaller unit")
	}
	return ByteSize(bytes), nil
}

// splitUnit separates a number from the letters after it.
func splitUnit(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	i := strings.IndexFunc(text, func(r rune) bool { return r >= 'A' && r != '_' })
	if i < 0 {
		return text, ""
	}
	return strings.TrimSpace(text[:i]), text[i:]
}

const day = 24 * time.Hour

// parseDuration reads what [time.ParseDuration] does, and days.
func parseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	days, rest, hasDays := strings.Cut(text, "d")
	var total time.Duration
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, notADuration()
		}
		if total, text = time.Duration(n)*day, rest; rest == "" { //nolint:gosec // 16 bits
			return total, nil
		}
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && text != "0" {
		return 0, bad("has no unit", fmt.Sprintf("write %[1]ss for seconds, %[1]sm for minutes, %[1]sh for hours or %[1]sd for days", clip(text)))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, notADuration()
	}
	if d < 0 {
		return 0, bad("must not be negative", "write a duration of 0 or more")
	}
	if total+d < total {
		return 0, notADuration()
	}
	return total + d, nil
}

func notADuration() error {
	return bad("is not a duration", "write one such as 500ms, 15s, 5m, 24h or 7d")
}

// formatDuration is [time.Duration.String] without zero minutes and seconds.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
