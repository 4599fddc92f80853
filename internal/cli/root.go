package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is what the commands share.
type app struct {
	Streams
	version string
	client  client
	json    bool
}

// Run executes one command line and returns its exit status.
func Run(ctx context.Context, version string, args []string, streams Streams) int {
	a := &app{Streams: streams, version: version}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(streams.Err, "dispatcher: %v\n", err)
	}
	return status(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dispatcher",
		Short: "Send webhooks durably, signed, over HTTP/3 or TCP",
		Long: `dispatcher takes events, stores them durably and delivers each one, signed, to
every subscriber that wants it.`,
		Example: `  dispatcher demo                        # see it work, nothing to set up
  dispatcher serve --data ./data         # run a node
  dispatcher subscribers create --tenant t1 --url https://hooks.example.com/in
  dispatcher events publish --tenant t1 --topic order.created --payload '{"n":1}'
  dispatcher deliveries list --tenant t1`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError(fmt.Errorf("unknown command %q; see %q", args[0], c.CommandPath()+" --help"))
		},
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       a.version,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w; see %q", err, c.CommandPath()+" --help"))
	})
	root.AddGroup(
		&cobra.Group{ID: "node", Title: "Run:"},
		&cobra.Group{ID: "talk", Title: "Talk to a running node:"},
		&cobra.Group{ID: "tool", Title: "Tools:"},
	)
	root.AddCommand(a.nodeCommands()...)
	for _, c := range a.talkCommands() {
		c.GroupID = "talk"
		a.client.bind(c.PersistentFlags())
		c.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON for scripts")
		root.AddCommand(c)
	}
	for _, c := range a.toolCommands() {
		c.GroupID = "tool"
		root.AddCommand(c)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	instruct(root, "")
	cobra.AddTemplateFunc("split", func(text string) []string { return strings.Split(text, "\n") })
	root.SetHelpTemplate(helpTemplate(root))
	return root
}

func (a *app) talkCommands() []*cobra.Command {
	return []*cobra.Command{a.tenants(), a.subscribers(), a.sources(), a.events(), a.deliveries(), a.dlq(), a.replays(), a.protocols(), a.store(), a.tokens()}
}

func (a *app) toolCommands() []*cobra.Command {
	return []*cobra.Command{a.receive(), a.healthcheck(), a.doctor(), a.bench(), a.sign(), a.verify(), a.versionCommand()}
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(a.Out, map[string]string{"version": a.version})
			}
			_, err := fmt.Fprintln(a.Out, "dispatcher", a.version)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON for scripts")
	return c
}

// group is a command that only holds others; a wrong name gets a list of them.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			names := make([]string, 0, len(subs))
			for _, s := range subs {
				names = append(names, s.Name())
			}
			return usageError(fmt.Errorf("%s has no command %q; it has %s", c.CommandPath(), args[0], strings.Join(names, ", ")))
		},
	}
	c.AddCommand(subs...)
	return c
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(fmt.Errorf("%s takes no argument, got %q", c.CommandPath(), args[0]))
	}
	return nil
}

func oneArg(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError(fmt.Errorf("%s takes one argument, %s, got %d", c.CommandPath(), name, len(args)))
		}
		return nil
	}
}

// need marks flags as required, with this package's exit status.
func need(c *cobra.Command, names ...string) {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		for _, name := range names {
			if f := c.Flags().Lookup(name); f == nil || !f.Changed {
				return usageError(fmt.Errorf("%s needs --%s; see --help", c.CommandPath(), name))
			}
		}
		return run(c, args)
	}
}
