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

// Take gives c the values and origins that some settings have in another. Both have
// been loaded.
func (c *Config) Take(from *Config, paths []string) {
	if c.origins == nil {
		c.origins = map[string]Origin{}
	}
	mine, theirs := c.fields(), from.fields()
	for i, f := range mine {
		if slices.Contains(paths, f.path) {
			f.value.take(theirs[i].value)
			c.origins[f.path] = from.origins[f.path]
		}
	}
}

// Clone returns a copy that shares nothing.
func (c *Config) Clone() *Config {
	out := Default()
	out.origins = make(map[string]Origin, len(c.origins))
	var all []string
	for _, f := range c.fields() {
		all = append(all, f.path)
	}
	out.Take(c, all)
	return out
}

// Live returns the paths of the settings that a running node takes over on SIGHUP, in
// the order of the example. All others need a restart.
func Live() []string {
	var out []string
	for _, f := range Default().fields() {
		if f.live {
			out = append(out, f.path)
		}
	}
	return out
}
