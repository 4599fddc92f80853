package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestShapesOfAFile(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"empty":                 {"", "node"},
		"comments only":         {"# nothing\n", "node"},
		"a document marker":     {"---\nnode: n1\n", "n1"},
		"a directive":           {"%YAML 1.2\n---\nnode: n1\n", "n1"},
		"quotes":                {"node: \"n1\"\n", "n1"},
		"a number as text":      {"node: 007\n", "007"},
		"a truth as text":       {"node: true\n", "true"},
		"a block":               {"node: |\n  n1\n", "n1"},
		"a comment behind":      {"node: n1 # mine\n", "n1"},
		"a quoted key":          {"\"node\": n1\n", "n1"},
		"an empty section":      {"limits:\nnode: n1\n", "n1"},
		"a section in one line": {"limits: {in_flight: 5}\nnode: n1\n", "n1"},
		"JSON":                  {`{"node": "n1", "limits": {"in_flight": 5}}`, "n1"},
		"line ends of Windows":  {"node: n1\r\nlimits:\r\n  in_flight: 5\r\n", "n1"},
		"a byte order mark":     {"\ufeffnode: n1\n", "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			if c := mustLoad(t, Options{File: fileWith(t, tc.text)}); c.Node != tc.want {
				t.Errorf("node is %q, want %q", c.Node, tc.want)
			}
		})
	}
}

func TestFilesThatAreRefusedSayWhere(t *testing.T) {
	for name, tc := range map[string]struct{ text, where, want string }{
		"an unknown key":            {"node: x\nlisen: y\n", ":2", "did you mean listen?"},
		"a key in a wrong section":  {"in_flight: 5\n", ":1", "did you mean limits.in_flight?"},
		"an unknown section":        {"limit:\n  in_flight: 5\n", ":1", "unknown key"},
		"nothing alike":             {"xyzzy: 1\n", ":1", "known here are"},
		"nothing alike in section":  {"log:\n  xyzzy: 1\n", ":2", "known here are format, level"},
		"a section inside another":  {"log:\n  limits: {}\n", ":2", "log.limits"},
		"a key twice":               {"node: x\nnode: y\n", ":2", "already defined"},
		"a broken quote":            {"node: 'x\n", ":1", "is not YAML"},
		"a tab":                     {"limits:\n\tin_flight: 5\n", "", "is not YAML"},
		"a list at the top":         {"- node\n", ":1", "is not a section"},
		"a text at the top":         {"node\n", ":1", "is not a section"},
		"a value for a section":     {"limits: 5\n", ":1", "is not a section"},
		"a section for a value":     {"node:\n  x: 1\n", "", "is not a plain value"},
		"no value":                  {"listen:\nnode: x\n", ":1", "has no value"},
		"a list for one value":      {"node: [a, b]\n", ":1", "takes one value"},
		"a list in a list":          {"allow_private: [[10.0.0.0/8]]\n", ":1", "is not a plain value"},
		"an anchor":                 {"node: &n x\n", ":1", "anchor"},
		"an alias":                  {"data: &n x\nnode: *n\n", "", "anchor"},
		"a merge key":               {"<<: {node: x}\n", ":1", "merge key"},
		"a tag":                     {"node: !!str x\n", ":1", "type tag"},
		"two documents":             {"node: x\n---\nnode: y\n", ":3", "more than one document"},
		"a number as key":           {"1: x\n", ":1", "no name"},
		"an unquoted IPv6 address":  {"listen: [::1]:8080\n", ":1", "is not YAML"},
		"a file for what is public": {"node_file: x\n", ":1", "unknown key"},
		"a bad list member":         {"allow_private: [10.0.0.0/8, 10.1.2.3/8]\n", ":1", `"10.1.2.3/8" has bits after its length; write 10.0.0.0/8, or 10.1.2.3/32`},
		"a long value":              {"log: {level: " + strings.Repeat("x", 5000) + "}\n", ":1", "…"},
	} {
		t.Run(name, func(t *testing.T) {
			path := fileWith(t, tc.text)
			_, err := Load(Options{File: path})
			if _, ok := errors.AsType[*InvalidError](err); !ok {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), path+tc.where) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q at %s", err, tc.want, tc.where)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("message of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestTheNearestKeyIsSuggested(t *testing.T) {
	l := &loader{fields: Default().fields()}
	for path, want := range map[string]string{
		"allow_privat":               "allow_private",
		"allow-private":              "allow_private",
		"ingress.tls_certificate":    "ingress.tls_cert",
		"retention.event":            "retention.events",
		"retention.dead_leters":      "retention.dead_letters",
		"limits.in_flihgt":           "limits.in_flight",
		"storage.in_flight":          "limits.in_flight",
		"storage.memtabel":           "storage.memtable",
		"timeouts.attmept":           "timeouts.attempt",
		"redis.ulr":                  "redis.url",
		"http_3":                     "http3",
		strings.Repeat("listen", 99): "",
	} {
		got := l.suggest(path)
		if want != "" && got != "did you mean "+want+"?" {
			t.Errorf("%.60s: %s, want %s", path, got, want)
		}
		if want == "" && strings.Contains(got, "did you mean") {
			t.Errorf("%.60s: %s", path, got)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"listen", "listen", 0}, {"ca", "abc", 3},
	} {
		if got := editDistance(tc.a, tc.b); got != tc.want || editDistance(tc.b, tc.a) != tc.want {
			t.Errorf("%q, %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("listen: 127.0.0.1:1\nlimits:\n  in_flight: 5\n"))
	f.Add([]byte("allow_private: [10.0.0.0/8, \"fd00::/8\"]\nhttp3: 25%\n"))
	f.Add([]byte("a: &a [*a]\n<<: *a\n"))
	f.Add([]byte("? [x]\n: - y\n"))
	f.Add([]byte("{{{{[[[["))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := &loader{config: Default(), byPath: map[string]*field{}, failed: map[string]bool{}}
		l.config.origins = map[string]Origin{}
		for _, field := range l.config.fields() {
			l.fields = append(l.fields, field)
			l.byPath[field.path] = field
		}
		(&yamlFile{loader: l, name: "f"}).read(raw)
		l.validate()
		for _, p := range l.problems {
			if p.Field == "" || p.Rule == "" || p.Origin == "" {
				t.Fatalf("incomplete problem %+v", p)
			}
		}
		for _, s := range l.config.Settings() {
			if !s.List && len(s.Values) != 1 {
				t.Fatalf("%s has %d values", s.Path, len(s.Values))
			}
		}
	})
}

func FuzzLists(f *testing.F) {
	f.Add("10.0.0.0/8,fd00::/8")
	f.Add(",")
	f.Fuzz(func(t *testing.T, text string) {
		c := Default()
		for _, field := range c.fields() {
			if !field.value.isList() || field.value.set([]string{text}) != nil {
				continue
			}
			first := field.value.texts()
			if err := field.value.set(first); err != nil || !slices.Equal(first, field.value.texts()) {
				t.Fatalf("%s: %q became %q, %v", field.path, first, field.value.texts(), err)
			}
		}
	})
}
