// Package config reads what an operator sets: a YAML file, the environment and
// flags become one [Config], and every value remembers where it came from.
//
//	default ─► file ─► environment ─► flags      the later wins, key by key
//	    │        │          │           │
//	    └────────┴────┬─────┴───────────┘
//	                  ▼
//	        one table of fields (fields_*.go): path, type, bounds, text
//	                  │
//	   ┌──────────────┼────────────────┬──────────────────┐
//	   ▼              ▼                ▼                  ▼
//	Load, checks   BindFlags    Config.Settings    the commented example
//
// It guarantees that nothing is ignored quietly: an unknown key, a value out of
// its bounds and a setting that contradicts another are errors, all of them
// reported at once, each with its field, its value, where that was set, the rule
// and how to mend it. Names in the environment that look like ours and are not
// give a warning only, since other programs set such names as well.
//
// A secret is never rendered, never part of an error and never a flag, whose
// value every user of the machine could read; it may be given as the name of a
// file that holds it.
//
// What it deliberately does not do: it knows no other package of the engine
// (package cli maps a Config to theirs), reads nothing again while the node
// runs, and looks for no file in default places.
package config
