package engine

import (
	"encoding/base64"
	"strings"
)

// tenantCursor is a place in a list that goes through the tenants: inside one
// (tenant, inner), or after one.
type tenantCursor struct {
	tenant, inner string
	after         string
}

// String encodes the cursor; ids have no separator in them.
func (c tenantCursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(c.tenant + "\n" + c.after + "\n" + c.inner))
}

func parseTenantCursor(s string) (tenantCursor, error) {
	if s == "" {
		return tenantCursor{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	parts := strings.SplitN(string(raw), "\n", 3)
	if err != nil || len(parts) != 3 {
		return tenantCursor{}, &InvalidError{Fields: []FieldError{{
			Field: "cursor", Value: clipped(s), Rule: "a next_cursor of the same list", Hint: "start again without a cursor",
		}}}
	}
	return tenantCursor{tenant: parts[0], after: parts[1], inner: parts[2]}, nil
}
