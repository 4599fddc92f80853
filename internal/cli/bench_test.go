package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/dispatcher-engine/dispatcher/bench"
)

// runBench runs a command line that must not get as far as measuring.
func runBench(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = Run(t.Context(), "test", append([]string{"bench"}, args...), Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return status, stdout.String(), stderr.String()
}

func TestBenchRefusesWhatCannotBeMeasured(t *testing.T) {
	cases := []struct {
		args []string
		want string
	}{
		{[]string{"engine", "--workloads", "nonsense"}, `workload "nonsense"`},
		{[]string{"engine", "--quick", "--rounds", "-1"}, "rounds"},
		{[]string{"engine", "--body", "x"}, "invalid argument"},
		{[]string{"storage", "--rows", "10", "--subscribers", "11"}, "subscribers"},
		{[]string{"sched", "--zipf", "0.5"}, "zipf"},
		{[]string{"isolation", "--hang-for", "1ms"}, "hang-for"},
		{[]string{"idle", "--subscribers", "-1"}, "subscribers"},
		{[]string{"isolation", "--parts", "nonsense"}, "there are hanging"},
		{[]string{"transports", "--network", "nowhere"}, "there are lan"},
		{[]string{"transports", "--link", "wire"}, "tun or loopback"},
		{[]string{"engine", "extra"}, "no argument"},
		{[]string{"worker"}, "needs one of"},
		{[]string{"worker", "receiver", "x"}, "want a number"},
		{[]string{"nonsense"}, "it has engine"},
	}
	for _, c := range cases {
		status, out, errs := runBench(t, c.args...)
		if status != ExitUsage || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%v: status %d, %q %q", c.args, status, out, errs)
		}
	}
}

func TestBenchWorkersEndWithTheirInput(t *testing.T) {
	for _, kind := range []string{"load", "receiver", "storage", "link-client", "link-server"} {
		if status, _, errs := runBench(t, "worker", kind); status != ExitOK {
			t.Errorf("%s: status %d, %s", kind, status, errs)
		}
	}
}

func TestFlagsWinOverThePreset(t *testing.T) {
	var given bench.EngineConfig
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	bindEngine(flags, &given)
	if err := flags.Parse([]string{"--single=7", "--scale=3,4", "--latency-for=9s", "--workloads=single"}); err != nil {
		t.Fatal(err)
	}
	got := bench.EngineQuick()
	overlay(flags, func(f *pflag.FlagSet) { bindEngine(f, &got) })
	if got.Single != 7 || !slices.Equal(got.Scale, []int{3, 4}) || got.LatencyFor != 9*time.Second || !slices.Equal(got.Workloads, []string{"single"}) {
		t.Errorf("flags were lost: %+v", got)
	}
	if quick := bench.EngineQuick(); got.Backlog != quick.Backlog || got.Rounds != quick.Rounds || got.Run.Cores != 2 {
		t.Errorf("the preset was lost: %+v", got)
	}
}

func TestACommandLineRepeatsItsRun(t *testing.T) {
	a := &app{}
	c := a.benchTransports()
	if err := c.ParseFlags([]string{"--network", "x:rtt=5ms,loss=1%", "--network=wan", "--quick", "--out", "", "--seed", "3", "--scenarios", "burst,large"}); err != nil {
		t.Fatal(err)
	}
	const want = `transports --network=x:rtt=5ms,loss=1% --network=wan --out="" --quick --scenarios=burst,large --seed=3`
	if got := repeatable(c, 3); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
