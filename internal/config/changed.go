package config

import "slices"

// Changed returns the paths of the settings that differ, in the order of the
// example. It shows no values: some are secrets.
func (c *Config) Changed(to *Config) []string {
	var out []string
	was, is := c.fields(), to.fields()
	for i, f := range was {
		if !slices.Equal(f.value.texts(), is[i].value.texts()) {
			out = append(out, f.path)
		}
	}
	return out
}
