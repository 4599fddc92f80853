package config

import (
	"fmt"
	"slices"
	"strings"
)

// suggest returns what to do about an unknown key: the known one that is nearest
// to it, or the keys of its section.
func (l *loader) suggest(path string) string {
	best, distance := "", len(path)
	for _, f := range l.fields {
		if d := keyDistance(path, f.path); d < distance {
			best, distance = f.path, d
		}
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	if best != "" && distance <= max(2, len(key)/3) {
		return fmt.Sprintf("did you mean %s?", best)
	}
	section, _, nested := strings.Cut(path, ".")
	if !nested {
		section = ""
	}
	var keys []string
	for _, f := range l.fields {
		if f.section() == section {
			keys = append(keys, f.key())
		}
	}
	if section == "" {
		for name := range sections {
			keys = append(keys, name)
		}
	}
	if len(keys) == 0 {
		return "remove it; dispatcher config print shows every key"
	}
	slices.Sort(keys)
	return "known here are " + strings.Join(keys, ", ")
}

// keyDistance is the distance of two paths. A right key in a wrong section is
// near, and so is one that was written out or cut short: that is how keys are
// usually mistaken.
func keyDistance(a, b string) int {
	d := editDistance(a, b)
	const abbreviated = 6
	if n := min(len(a), len(b)); n >= abbreviated && max(len(a), len(b)) <= 2*n && a[:n] == b[:n] {
		d = min(d, 2)
	}
	keyA, keyB := a[strings.LastIndexByte(a, '.')+1:], b[strings.LastIndexByte(b, '.')+1:]
	return min(d, editDistance(keyA, keyB)+1)
}

// editDistance is the Levenshtein distance, a swap of neighbours counted as one.
func editDistance(a, b string) int {
	const most = 64 // keys are shorter; what is not is no slip
	if len(a) > most || len(b) > most {
		return max(len(a), len(b))
	}
	var previous, before [most + 1]int
	for j := range len(b) + 1 {
		previous[j] = j
	}
	for i := range len(a) {
		var row [most + 1]int
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(previous[j+1]+1, row[j]+1, previous[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, previous = previous, row
	}
	return previous[len(b)]
}
