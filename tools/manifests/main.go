// Command manifests checks Kubernetes manifests against the types that the API
// server itself decodes them into: unknown fields, fields in the wrong place and
// values of the wrong type are errors. It reads the files that it is given and
// needs no cluster.
//
// It has a module file of its own, so that Kubernetes' dependencies stay out of
// the product's.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: manifests FILE...")
		os.Exit(2)
	}
	failed := false
	for _, name := range os.Args[1:] {
		if err := check(name); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check decodes every document of a file, strictly.
func check(name string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(raw)))
	defer documents.Close()
	buffer := make([]byte, 1<<20)
	for n := 1; ; n++ {
		size, err := documents.Read(buffer)
		switch {
		case errors.Is(err, io.EOF) && n > 1:
			return nil
		case err != nil:
			return fmt.Errorf("document %d: %w", n, err)
		}
		object, kind, err := decoder.Decode(buffer[:size], nil, nil)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		meta, ok := object.(metav1.Object)
		if !ok || meta.GetName() == "" {
			return fmt.Errorf("document %d: %s without a name", n, kind.Kind)
		}
		fmt.Printf("%s: %s %s is valid\n", name, kind.Kind, meta.GetName())
	}
}
