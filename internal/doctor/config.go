package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// Config says what to examine.
type Config struct {
	// URL is a subscriber's URL. Required; a bad one is a finding, no error.
	URL string
	// TLS is a CA and a client certificate as a subscriber has them. Default:
	// the system's roots, no certificate.
	TLS *delivery.TLSMaterial
	// Timeout bounds the whole examination. Default 30 s; 1 s to 10 min.
	Timeout time.Duration
	// Post asks for a signed test POST. Default: no request is made.
	Post *Post
	// Version is named in the request's user-agent. Default "devel".
	Version string

	// Guard, Transport and Selector are as a node has them; their zero values are
	// the defaults. An egress proxy is ignored.
	Guard     netguard.Config
	Transport transport.Config
	Selector  protoselect.Config
}

// Post is how to sign the test POST.
type Post struct {
	// Scheme is the signing scheme. Default: signing.Standard.
	Scheme signing.Scheme
	// Secret is the subscriber's. Required.
	Secret signing.Secret
}

// ConfigError says that an examination was not begun, since its configuration
// cannot be used.
type ConfigError struct{ Err error }

// Error implements error.
func (e *ConfigError) Error() string { return "doctor: " + e.Err.Error() }

// Unwrap returns the reasons.
func (e *ConfigError) Unwrap() error { return e.Err }

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Version = cmp.Or(c.Version, "devel")
	c.Guard.Proxy = ""
	if c.Post != nil {
		own := *c.Post
		own.Scheme = cmp.Or(own.Scheme, signing.Standard)
		c.Post = &own
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.URL == "" {
		errs = append(errs, errors.New("url: required"))
	}
	if c.Timeout < time.Second || c.Timeout > 10*time.Minute {
		errs = append(errs, fmt.Errorf("timeout: %v is not within 1 s and 10 min", c.Timeout))
	}
	if c.Post != nil {
		if err := signing.CheckSecret(c.Post.Scheme, c.Post.Secret, true); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
