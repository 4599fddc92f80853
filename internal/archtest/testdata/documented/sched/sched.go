package sched

func Start() {}

// Stop is documented.
func Stop() {}

func private() {}

type Actor struct {
	Name string
}

func (a *Actor) Run()               {}
func (a *Actor) run()               {}
func (a Actor) String() string      { return "" }
func (l list[T]) Push2()            {}
func (m *Many[K, V]) Each(f func()) {}

type list[T any] []T

// Many is documented, Each is not.
type Many[K, V any] struct{}

// These are two.
type (
	First  struct{}
	Second struct{} // Second has a comment at its end.
)

// Config is documented, one of its fields is not.
type Config struct {
	// Slots is documented.
	Slots int
	Depth int
	Width int // Width is documented at its end.
	inner int
	// Near and Far are documented together.
	Near int
	Far  int
	Fa   int
}

// Queue is documented, and its methods with it.
type Queue interface {
	// Pull is documented.
	Pull() int
	Put(int)
	String() string
}

const Limit = 3

// Reasons of a group are documented together.
const (
	Alpha = iota
	Beta
)

const (
	Gamma = iota
	Delta // Delta has a comment at its end.
	epsilon
)

var Default, other = 1, 2

//go:noinline
func Directive() {}
