package api

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/signing"
)

func TestSchemesOfSourcesAreThoseOfSigning(t *testing.T) {
	field, _ := reflect.TypeFor[SourceSettings]().FieldByName("Scheme")
	var want []string
	for _, s := range signing.Schemes() {
		want = append(want, string(s))
	}
	got := strings.Split(field.Tag.Get("enum"), ",")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestEverySettingOfASourceIsDocumented holds the documented form against the one
// that is read.
func TestEverySettingOfASourceIsDocumented(t *testing.T) {
	names := func(typ reflect.Type) (out []string) {
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	for documented, read := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[SourceSettings]():    reflect.TypeFor[ingress.Source](),
		reflect.TypeFor[SourceDestination](): reflect.TypeFor[ingress.Destination](),
		reflect.TypeFor[SourceTLS]():         reflect.TypeFor[ingress.OriginTLS](),
	} {
		if got, want := names(documented), names(read); !slices.Equal(got, want) {
			t.Errorf("documented %v\nread       %v", got, want)
		}
	}
}
