package config

import "testing"

// A setting that is set in one configuration and left out in the next is taken
// over like any other, though its empty text may not be written in a file.
func TestWhatIsLeftOutIsTakenOver(t *testing.T) {
	set := Default()
	set.APIToken = NewSecret("a-token-of-more-than-sixteen-bytes")
	set.Redis.URL = NewSecret("redis://127.0.0.1:6379")
	unset := Default()
	was := set.Changed(unset)
	if len(was) != 2 {
		t.Fatalf("%v differ", was)
	}
	running := set.Clone()
	if left := running.Changed(set); len(left) != 0 {
		t.Fatalf("the copy differs in %v", left)
	}
	running.Take(unset, was)
	if left := running.Changed(unset); len(left) != 0 {
		t.Errorf("%v were not taken over", left)
	}
	if !set.APIToken.IsSet() {
		t.Error("the copy shares something")
	}
}
