package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Annotations that complete a command's help.
const exitsNote = "exits"

// talkExits are the statuses of commands that talk to a node.
const talkExits = `0  done
1  the node refused what was asked, or could not do it: stderr names the field or the reason
2  the command line is wrong, or there is no token
3  the node could not be reached, or the token is not enough
4  what was named does not exist`

// exits say for the other commands what their statuses mean, by command path; one
// that is not here has those of the group that it is in.
var exits = map[string]string{
	"dispatcher": `0  done
1  the command failed
2  the command line or the configuration is wrong
3  a running node could not be reached, or refused the token
4  what was asked for does not exist`,
	"dispatcher serve": `0  stopped as asked, and everything that was accepted is on disk
1  it could not start, or could not stop in time: the log says why
2  the command line or the configuration is wrong`,
	"dispatcher demo": `0  stopped as asked; with --exit: every delivery arrived once, with a valid signature
1  a delivery did not, or the node could not start
2  the command line is wrong`,
	"dispatcher config": `0  the configuration is good, or was printed
1  it could not be printed
2  the command line or the configuration is wrong: each setting is named`,
	"dispatcher receive": `0  stopped as asked
1  it could not listen
2  the command line is wrong`,
	"dispatcher healthcheck": `0  it lives, with --ready: it takes publishes
1  it does not: stderr says why
2  the command line is wrong`,
	"dispatcher doctor": `0  a delivery works, or would, as far as was looked
1  it would not: the table says where it ends
2  the command line or the configuration is wrong`,
	"dispatcher bench": `0  measured, and what has to hold held
1  something did not hold, or could not be measured
2  the command line is wrong`,
	"dispatcher sign": `0  signed
1  it could not be signed, such as for a secret that is none
2  the command line is wrong`,
	"dispatcher verify": `0  the signature is good
1  it is not: stderr names the mistake
2  the command line is wrong`,
	"dispatcher version": `0  printed
2  the command line is wrong`,
	"dispatcher store check": `0  nothing is wrong
1  something is, or the store cannot be opened
2  the command line is wrong`,
	"dispatcher completion": `0  printed
1  it could not be printed
2  the command line is wrong`,
	"dispatcher help": `0  printed`,
}

// examples are those of commands that say everything in one line.
var examples = map[string]string{
	"dispatcher bench":                     "  dispatcher bench engine --quick\n  dispatcher bench transports --quick",
	"dispatcher completion":                "  source <(dispatcher completion bash)",
	"dispatcher completion bash":           "  source <(dispatcher completion bash)\n  dispatcher completion bash > /etc/bash_completion.d/dispatcher",
	"dispatcher completion fish":           "  dispatcher completion fish > ~/.config/fish/completions/dispatcher.fish",
	"dispatcher completion powershell":     "  dispatcher completion powershell | Out-String | Invoke-Expression",
	"dispatcher completion zsh":            "  dispatcher completion zsh > ~/.zsh/completions/_dispatcher",
	"dispatcher help":                      "  dispatcher help dlq replay",
	"dispatcher config":                    "  dispatcher config check --config dispatcher.yaml\n  dispatcher config print --config dispatcher.yaml",
	"dispatcher config check":              "  dispatcher config check --config dispatcher.yaml",
	"dispatcher config example":            "  dispatcher config example > dispatcher.yaml",
	"dispatcher deliveries":                "  dispatcher deliveries list --tenant t1 --state dead\n  dispatcher deliveries show 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1",
	"dispatcher deliveries show":           "  dispatcher deliveries show 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1\n  dispatcher deliveries show 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1 --json | jq .timeline",
	"dispatcher deliveries replay":         "  dispatcher deliveries replay 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1\n  dispatcher deliveries replay 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1 --force   # although it was delivered",
	"dispatcher dlq":                       "  dispatcher dlq groups\n  dispatcher dlq replay --tenant t1 --subscriber ep1 --per-second 20",
	"dispatcher dlq list":                  "  dispatcher dlq list --tenant t1 --since 24h\n  dispatcher dlq list --signature 'rejected: status 400' --json",
	"dispatcher dlq groups":                "  dispatcher dlq groups --tenant t1\n  dispatcher dlq groups --json | jq '.data[] | {subscriber, signature, count}'",
	"dispatcher dlq replay":                "  dispatcher dlq replay --tenant t1 --subscriber ep1 --signature 'rejected: status 400' --per-second 20",
	"dispatcher dlq purge":                 "  dispatcher dlq purge --tenant t1 --until 720h",
	"dispatcher events":                    "  dispatcher events publish --tenant t1 --topic order.created --payload '{\"n\":1}'\n  dispatcher events show order-1 --tenant t1",
	"dispatcher events show":               "  dispatcher events show order-1 --tenant t1",
	"dispatcher events deliveries":         "  dispatcher events deliveries order-1 --tenant t1",
	"dispatcher protocols":                 "  dispatcher protocols list\n  dispatcher protocols probe hooks.example.com:443",
	"dispatcher protocols list":            "  dispatcher protocols list --json",
	"dispatcher protocols show":            "  dispatcher protocols show hooks.example.com:443",
	"dispatcher protocols forget":          "  dispatcher protocols forget hooks.example.com:443",
	"dispatcher protocols probe":           "  dispatcher protocols probe hooks.example.com:443",
	"dispatcher sources":                   "  dispatcher sources list --tenant t1",
	"dispatcher sources list":              "  dispatcher sources list --tenant t1",
	"dispatcher sources show":              "  dispatcher sources show github --tenant t1",
	"dispatcher sources delete":            "  dispatcher sources delete github --tenant t1",
	"dispatcher store":                     "  dispatcher store stats\n  dispatcher store backup /backups/monday",
	"dispatcher store compact":             "  dispatcher store compact --timeout 10m",
	"dispatcher store stats":               "  dispatcher store stats --json",
	"dispatcher subscribers":               "  dispatcher subscribers create --tenant t1 --url https://hooks.example.com/in\n  dispatcher subscribers show ep1 --tenant t1",
	"dispatcher subscribers delete":        "  dispatcher subscribers delete ep1 --tenant t1",
	"dispatcher subscribers list":          "  dispatcher subscribers list --tenant t1",
	"dispatcher subscribers pause":         "  dispatcher subscribers pause ep1 --tenant t1",
	"dispatcher subscribers resume":        "  dispatcher subscribers resume ep1 --tenant t1",
	"dispatcher subscribers rotate-secret": "  dispatcher subscribers rotate-secret ep1 --tenant t1",
	"dispatcher subscribers show":          "  dispatcher subscribers show ep1 --tenant t1 --json | jq .breaker",
	"dispatcher subscribers test":          "  dispatcher subscribers test ep1 --tenant t1",
	"dispatcher tenants":                   "  dispatcher tenants put t1 --weight 2\n  dispatcher tenants list",
	"dispatcher tenants delete":            "  dispatcher tenants delete t1",
	"dispatcher tenants list":              "  dispatcher tenants list --json",
	"dispatcher tenants put":               "  dispatcher tenants put t1 --name Acme --rate 100 --max-in-flight 200",
	"dispatcher tokens":                    "  dispatcher tokens create --name checkout-service --scope publish --tenant t1\n  dispatcher tokens list",
	"dispatcher tokens list":               "  dispatcher tokens list",
	"dispatcher tokens revoke":             "  dispatcher tokens revoke dc73s37jrssiasqh",
	"dispatcher tokens show":               "  dispatcher tokens show   # the one that is used\n  dispatcher tokens show dc73s37jrssiasqh",
	"dispatcher version":                   "  dispatcher version --json",
}

// instruct completes the help of a command and of those below it: an example and
// what its exit statuses mean. talks are the groups that talk to a node.
func instruct(c *cobra.Command, inherited string) {
	path := c.CommandPath()
	if text := exits[path]; text != "" {
		inherited = text
	} else if c.GroupID == "talk" {
		inherited = talkExits
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[exitsNote] = inherited
	if c.Example == "" {
		c.Example = examples[path]
	}
	for _, sub := range c.Commands() {
		instruct(sub, inherited)
	}
}

// helpTemplate is cobra's with the exit statuses at the end, as in a manual page.
func helpTemplate(c *cobra.Command) string {
	return strings.TrimRight(c.HelpTemplate(), "\n") +
		fmt.Sprintf("{{with index .Annotations %q}}\nExit status:\n{{range split .}}  {{.}}\n{{end}}{{end}}", exitsNote)
}
