package delivery

import "testing"

func TestTLSMaterialIsEqualByWhatIsInIt(t *testing.T) {
	ca, pair := &TLSMaterial{CAPEM: []byte("ca")}, &TLSMaterial{ClientCertPEM: []byte("c"), ClientKeyPEM: []byte("k")}
	for name, c := range map[string]struct {
		a, b *TLSMaterial
		want bool
	}{
		"nothing":          {nil, nil, true},
		"nothing, written": {nil, &TLSMaterial{}, true},
		"one is missing":   {ca, nil, false},
		"the same bytes":   {ca, &TLSMaterial{CAPEM: []byte("ca")}, true},
		"other parts":      {ca, pair, false},
		"another key":      {pair, &TLSMaterial{ClientCertPEM: []byte("c"), ClientKeyPEM: []byte("other")}, false},
	} {
		if got, back := c.a.Equal(c.b), c.b.Equal(c.a); got != c.want || back != c.want {
			t.Errorf("%s: %v and %v, want %v", name, got, back, c.want)
		}
	}
}

func TestFaultsOfTLSMaterialAreNamedWithoutIt(t *testing.T) {
	for field, m := range map[string]TLSMaterial{
		"ca_pem":         {CAPEM: []byte("no PEM")},
		"":               {ClientCertPEM: []byte("alone")},
		"client_key_pem": {ClientCertPEM: []byte("no"), ClientKeyPEM: []byte("PEM")},
	} {
		if got := m.Faults(); len(got) != 1 || got[0].Field != field || got[0].Rule == "" || got[0].Hint == "" {
			t.Errorf("%q: %+v", field, got)
		}
	}
	if got := new(TLSMaterial).Faults(); len(got) != 0 {
		t.Errorf("nothing has faults: %+v", got)
	}
}
