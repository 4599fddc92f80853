package archtest

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// root of the repository, seen from this package.
const root = "../.."

var repository = sync.OnceValues(func() (*Tree, error) { return Load(root) })

// load parses the repository once for all tests.
func load(t *testing.T) *Tree {
	t.Helper()
	tree, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// none fails the test for each violation.
func none(t *testing.T, violations []Violation) {
	t.Helper()
	for _, v := range violations {
		t.Error(v)
	}
}

func dependencies(t *testing.T) []Dependency {
	t.Helper()
	deps, err := ReadDependencies(root)
	if err != nil {
		t.Fatal(err)
	}
	return deps
}

func TestImportsStayWithinTheFences(t *testing.T) {
	none(t, Imports(load(t), dependencies(t)))
}

func TestEveryDirectDependencyIsExplained(t *testing.T) {
	violations, err := Dependencies(root, dependencies(t))
	if err != nil {
		t.Fatal(err)
	}
	none(t, violations)
}

func TestDecisionsAreRecordedWithTheirReasons(t *testing.T) {
	violations, err := Records(root)
	if err != nil {
		t.Fatal(err)
	}
	none(t, violations)
}

func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	violations, err := Links(root)
	if err != nil {
		t.Fatal(err)
	}
	none(t, violations)
}

func TestTopLevelIsTheArchitectureDiagram(t *testing.T) {
	violations, err := TopLevel(root)
	if err != nil {
		t.Fatal(err)
	}
	none(t, violations)
}

func TestPackagesAreNamedAfterWhatTheyProvide(t *testing.T) { none(t, Names(load(t))) }

func TestEveryPackageOpensWithDocGo(t *testing.T) { none(t, PackageDocs(load(t))) }

func TestEveryExportedNameIsDocumented(t *testing.T) { none(t, Documented(load(t))) }

func TestNothingThatMustNotAppearAppears(t *testing.T) { none(t, Style(load(t))) }

func TestFilesAndFunctionsStayReadable(t *testing.T) {
	tree := load(t)
	none(t, Sizes(tree))
	report := Measure(tree)
	t.Log("sizes of the product's code:\n" + report.String())
	if report.P90Function > P90FunctionLines {
		t.Errorf("one function in ten has more than %d lines, the limit is %d", report.P90Function, P90FunctionLines)
	}
}

// The rules name directories; a rule about a directory that was renamed would
// hold for ever and guard nothing. A box of the diagram that is not built yet
// may be named all the same.
func TestRulesNameDirectoriesThatExist(t *testing.T) {
	tree := load(t)
	exists := func(dir string) bool {
		if slices.Contains(topLevel, dir) {
			return true
		}
		return slices.ContainsFunc(tree.Packages, func(p *Package) bool { return under(p.Dir, dir) })
	}
	check := func(rule string, dirs ...string) {
		for _, dir := range dirs {
			if !exists(dir) {
				t.Errorf("%s names %s, where no package is", rule, dir)
			}
		}
	}
	for _, b := range boxes {
		check("the box of "+b.dir, slices.Concat([]string{b.dir}, b.may, b.tests)...)
	}
	for _, r := range reservations {
		check("the reservation of "+r.dir, slices.Concat([]string{r.dir}, r.by)...)
	}
	for _, d := range dependencies(t) {
		check(DependenciesFile+": "+d.Module, d.Dirs...)
	}
}

func TestLoadSeesTestsAndBuildTagsButNoFixtures(t *testing.T) {
	var names []string
	for _, p := range load(t).Packages {
		for _, f := range p.Files {
			names = append(names, f.Path)
		}
	}
	for _, want := range []string{"internal/archtest/tree.go", "internal/archtest/repository_test.go"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s was not loaded", want)
		}
	}
	for _, name := range names {
		if strings.Contains(name, "testdata/") || strings.HasPrefix(name, "tools/") {
			t.Errorf("%s was loaded", name)
		}
	}
}
