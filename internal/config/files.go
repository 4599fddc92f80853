package config

import (
	"crypto/tls"
	"os"
)

// CheckFiles looks at the files and directories that the configuration names,
// as `dispatcher config check` does: what would fail at the start is found
// before it. Its error is an *[InvalidError].
func (c *Config) CheckFiles() error {
	var problems []*FieldError
	refuse := func(path, value string, err error) {
		problems = append(problems, &FieldError{
			Field: path, Value: value, Origin: c.origins[path].String(),
			Rule: "cannot be used: " + reasonOf(err), Mend: "check the path, its permissions and its content",
		})
	}
	if i := c.Ingress; i.TLSCert != "" {
		if _, err := tls.LoadX509KeyPair(i.TLSCert, i.TLSKey); err != nil {
			refuse("ingress.tls_cert", i.TLSCert, err)
		}
	}
	for path, dir := range map[string]string{"data": c.Data, "qlog.dir": c.Qlog.Dir} {
		info, err := os.Stat(dir)
		switch {
		case dir == "" || os.IsNotExist(err): // it is made
		case err != nil:
			refuse(path, dir, err)
		case !info.IsDir():
			refuse(path, dir, &os.PathError{Err: errNoDirectory})
		}
	}
	if len(problems) > 0 {
		return &InvalidError{problems}
	}
	return nil
}
