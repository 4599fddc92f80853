package delivery

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
)

// TLSMaterial is a subscriber's own CA and client certificate. The key's bytes
// must not be shown.
type TLSMaterial struct {
	CAPEM         []byte
	ClientCertPEM []byte
	ClientKeyPEM  []byte
}

// TLSFault is what is wrong with a part of [TLSMaterial]. It holds none of it.
type TLSFault struct {
	Field string // "ca_pem", "client_key_pem", or "" for the whole
	Rule  string
	Hint  string
}

// Faults returns everything that keeps m from being used.
func (m *TLSMaterial) Faults() []TLSFault {
	var out []TLSFault
	if len(m.CAPEM) > 0 && !x509.NewCertPool().AppendCertsFromPEM(m.CAPEM) {
		out = append(out, TLSFault{"ca_pem", "PEM with at least one certificate", "paste the CA's certificate, BEGIN and END lines included"})
	}
	if (len(m.ClientCertPEM) == 0) != (len(m.ClientKeyPEM) == 0) {
		return append(out, TLSFault{"", "client_cert_pem and client_key_pem go together", "give both or none"})
	}
	if len(m.ClientCertPEM) > 0 {
		if _, err := tls.X509KeyPair(m.ClientCertPEM, m.ClientKeyPEM); err != nil {
			out = append(out, TLSFault{"client_key_pem", "a key that fits client_cert_pem, in PEM", "check that the two files belong together"})
		}
	}
	return out
}

// IsZero reports whether there is nothing in m; nil is nothing, too.
func (m *TLSMaterial) IsZero() bool {
	return m == nil || len(m.CAPEM)+len(m.ClientCertPEM)+len(m.ClientKeyPEM) == 0
}

// Equal reports whether both are the same material; nil is nothing.
func (m *TLSMaterial) Equal(other *TLSMaterial) bool {
	if m.IsZero() || other.IsZero() {
		return m.IsZero() && other.IsZero()
	}
	return bytes.Equal(m.CAPEM, other.CAPEM) && bytes.Equal(m.ClientCertPEM, other.ClientCertPEM) && bytes.Equal(m.ClientKeyPEM, other.ClientKeyPEM)
}
